"""The programs that ``config/runners.yml`` names: each does one small job in the repository it is started in.

They are started as processes and import nothing of ``debug_server`` but the generated messages of the probe.
"""

import os

os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")  # it ends the process when no thread can be had
