"""The service's threads, where no more can be started."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from debug_server.errors import ResourcesExhaustedError
from debug_server.service.threads import Threads


def test_what_was_refused_is_not_done_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work for which there is no thread is refused and forgotten."""

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    done: list[Any] = []
    with Threads(2, "test") as pool:
        with monkeypatch.context() as patched, pytest.raises(ResourcesExhaustedError):
            patched.setattr(threading.Thread, "start", refuse)
            pool.submit(done.append, 1)
        pool.submit(done.append, 2).result(100)
    assert done == [2]
