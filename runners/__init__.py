"""The programs that ``config/runners.yml`` names: each does one small job in the repository that it is started in.

They run as processes; of ``debug_server`` only the probe imports something: the generated messages.
"""

import os

os.environ.setdefault(
    "GRPC_ENABLE_FORK_SUPPORT", "0"
)  # with fork support gRPC aborts the process when it cannot start a thread
