"""Ctrl-C that is not lost: one that Python drops comes again.

An exception in a weak reference's callback or in a destructor has nowhere to go, and Python drops it. Each import runs
such a callback: of the interrupts that come while the program loads, one in some hundred would change nothing.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from typing import Any

_PAUSE_SECONDS = 0.005  # for the callback to return


def send_dropped_again() -> None:
    """From now on in this process; everything else that is dropped is told as before."""
    tell = sys.unraisablehook

    def dropped(unraisable: Any) -> None:
        if not issubclass(unraisable.exc_type, KeyboardInterrupt):
            tell(unraisable)
            return
        left = threading.Event()
        threading.Thread(target=_send_again, args=(left,), name="interrupt", daemon=True).start()
        left.set()

    sys.unraisablehook = dropped


def _send_again(left: threading.Event) -> None:
    left.wait()
    time.sleep(_PAUSE_SECONDS)
    os.kill(os.getpid(), signal.SIGINT)
