"""Writes a line and is killed in the middle of the next one."""

import os
import signal
import sys

print("before the kill", flush=True)
sys.stdout.write("half a li")
sys.stdout.flush()
os.kill(os.getpid(), signal.SIGKILL)
