"""A step for one of many sessions or repositories: what goes wrong with it is logged and costs the others nothing."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from debug_server.errors import DebugServerError

_LOG = logging.getLogger(__name__)
_TROUBLE = (DebugServerError, OSError, ValueError)  # of the world; anything else is a defect of ours
_Result = TypeVar("_Result")


def attempt(
    event: str, step: Callable[[], _Result], /, *, passing: type[DebugServerError] | tuple[()] = (), **fields: object
) -> _Result | None:
    """What ``step`` returns; when it fails, ``event`` is logged with ``fields`` and the answer is None.

    ``passing`` errors are the caller's.
    """
    try:
        return step()
    except passing:
        raise
    except _TROUBLE as error:
        _LOG.warning(event, extra={**fields, "error": str(error)})
    except Exception:  # noqa: BLE001 - the boundary of one of many: no defect in it may end a server or a ``run``
        _LOG.error(event, extra=fields, exc_info=True)
    return None
