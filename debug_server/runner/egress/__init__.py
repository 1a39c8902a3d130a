"""The filtering proxy of a command whose network policy is neither ``none`` nor ``open``.

The command has a network namespace of its own with ``lo`` alone. ``inside`` creates listening sockets there; this
process stays in the host's namespace, takes connections from them and connects out, to what the policy names. Planning
imports ``policy`` and ``upstream``; the keeper ``serve``, ``inside``, ``variables`` and ``peers``. Standard library
only: each command has a process of its own, so each import costs each of them memory.

Reading order: ``policy`` and ``addresses`` (what is allowed), ``names`` (what a host is), ``serve`` (the process),
``loop`` (its tasks), ``connection`` (one connection of the command), ``request``, ``exchange`` and ``tunnel`` (HTTP,
CONNECT), ``hello`` (the name in TLS), ``dialer`` (the way out), ``dns`` (names for the command), ``denials`` (reports).
"""
