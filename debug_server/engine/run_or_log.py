"""Runs a step for one of many sessions or repositories: a failure is logged and does not affect the others."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from debug_server.errors import DebugServerError

_LOG = logging.getLogger(__name__)
_EXPECTED = (DebugServerError, OSError, ValueError)  # any other exception is a bug
_Result = TypeVar("_Result")


def run_or_log(
    event: str, step: Callable[[], _Result], /, *, reraise: type[DebugServerError] | tuple[()] = (), **fields: object
) -> _Result | None:
    """Return the result of ``step``; if it fails, log ``event`` with ``fields`` and return None.

    Errors of the classes in ``reraise`` are raised.
    """
    try:
        return step()
    except reraise:
        raise
    except _EXPECTED as error:
        _LOG.warning(event, extra={**fields, "error": str(error)})
    except Exception:  # noqa: BLE001 - one bug must not stop the server or a ``run``
        _LOG.error(event, extra=fields, exc_info=True)
    return None
