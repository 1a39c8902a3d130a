"""The programs that ``config/runners.yml`` names: each does one small job in the repository that it is started in.

They run as separate processes. Only the probe imports from ``debug_server``: the generated messages.
"""

import os

os.environ.setdefault(
    "GRPC_ENABLE_FORK_SUPPORT", "0"
)  # with fork support gRPC aborts the process when it cannot start a thread
