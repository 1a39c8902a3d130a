"""The keeper: the small process that owns one command and outlives the server.

Standard library only, and little of it: every keeper is a fork of a pre-warmed process and what is imported here is
carried by each of them. The server's side is ``debug_server.runner.launcher``.

Reading order: ``forkserver`` (makes keepers), ``keeper`` (owns one command), ``embryo`` (becomes the command),
``tree`` (holds and empties the process tree), ``verdict`` (says how it ended), ``frames`` (the socket's language).
"""
