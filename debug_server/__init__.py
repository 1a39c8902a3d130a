"""debug-server: runs commands for people and coding agents, and never loses a command.

Importing the package loads nothing else: the keeper's fork server starts from here and must stay lean.
"""

import os

# gRPC's fork support ends the process when no thread can be had. It is read when grpc is imported, which only modules
# of this package do here.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

__version__ = "0.1.0"
