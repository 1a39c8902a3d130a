"""The keeper: the small process that owns one command and outlives the server.

Standard library only, and little of it: every keeper is a fork of a pre-warmed process and what is imported here is
carried by each of them. The server's side is ``debug_server.runner.launcher``.

Reading order: ``forkserver`` (makes keepers), ``spare`` (waits), ``keeper`` (owns one command), ``slot`` (starts it),
``mounts`` (gives it mounts of its own), ``tree`` and ``group_tree`` (hold and empty it), ``deadlines`` (when its time
is over), ``ladder`` (stops it), ``verdict`` (says how it ended), ``frames`` (the language of the socket).
"""
