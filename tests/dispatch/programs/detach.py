"""Leaves a child behind in a session of its own that holds the pipes and ignores hang-ups, and ends with status 0.

The child's command line holds DISPATCH_TASK_ID, so that a test finds it; it ends by itself after ten minutes.
"""

import os
import subprocess
import sys

CHILD = "import signal, time; signal.signal(signal.SIGHUP, signal.SIG_IGN); time.sleep(600)"

child = subprocess.Popen(
    [sys.executable, "-c", CHILD, f"detached-by-{os.environ.get('DISPATCH_TASK_ID', 'nobody')}"],
    start_new_session=True,
    cwd="/",
)
print(f"left {child.pid} behind", flush=True)
os._exit(0)  # without waiting for the child, and without Popen's warning about it
