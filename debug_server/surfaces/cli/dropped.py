"""Sends SIGINT again when Python has dropped the KeyboardInterrupt of a Ctrl-C.

Python drops every exception that is raised in a weak reference's callback or in a destructor, even KeyboardInterrupt.
Every import runs such a callback, so about one in a hundred interrupts during start-up would have no effect.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from typing import Any

_PAUSE_SECONDS = 0.005  # lets the callback return before the signal is sent again


def send_dropped_again() -> None:
    """Install the hook; other dropped exceptions are reported as before."""
    default_hook = sys.unraisablehook

    def dropped(unraisable: Any) -> None:
        if not issubclass(unraisable.exc_type, KeyboardInterrupt):
            default_hook(unraisable)
            return
        left = threading.Event()
        threading.Thread(target=_send_again, args=(left,), name="interrupt", daemon=True).start()
        left.set()

    sys.unraisablehook = dropped


def _send_again(left: threading.Event) -> None:
    left.wait()
    time.sleep(_PAUSE_SECONDS)
    os.kill(os.getpid(), signal.SIGINT)
