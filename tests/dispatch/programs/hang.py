"""Says that it runs, ignores a polite request to end, and never ends by itself (ten minutes, for a forgotten one)."""

import signal
import time

signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("hanging", flush=True)
time.sleep(600)
