"""The keeper: the small process that owns one command and outlives the server.

Imports little, and only from the standard library: every keeper is a fork of a pre-warmed process, so each import costs
every keeper memory. The server's side is ``debug_server.runner.keeper_pool``.

Reading order: ``forkserver`` (forks keepers), ``serve`` (one command after the other), ``spare`` (an idle keeper),
``keeper`` (owns one command), ``command`` (what it knows of it), ``slot`` (starts it), ``mounts`` (its mount
namespace), ``tree`` and ``group_tree`` (its processes), ``deadlines`` (its time limits), ``ladder`` (stops it),
``classify`` (why it ended), ``frames`` (the protocol of the socket).
"""
