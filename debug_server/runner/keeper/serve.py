"""Runs commands in a keeper process, one after the other, until the server disconnects."""

from __future__ import annotations

import os
import socket

from debug_server.runner.keeper.containment import Containment
from debug_server.runner.keeper.keeper import Keeper
from debug_server.runner.keeper.rundir import RefusedError
from debug_server.runner.keeper.spare import Spare

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

_COMMANDS_PER_KEEPER = 200


def serve(connection: socket.socket, containment: Containment, boot: str) -> NoReturn:
    """Serve commands on ``connection`` until the server disconnects, then exit."""
    spare = Spare(connection, containment, boot)
    for left in reversed(range(_COMMANDS_PER_KEEPER)):
        failure = spare.prepare()
        orders = spare.await_orders()
        if orders is None:
            break
        if failure is not None and (failure := spare.prepare()) is not None:
            spare.refuse(f"the command could not be prepared: {failure}", failure.errno)
            break
        try:
            Keeper(spare, orders, last=left == 0).run()
        except RefusedError as error:
            spare.give_up(str(error))
            break
        except BaseException as error:  # noqa: BLE001 - the process boundary: nothing above could end the tree
            _report(spare, error)
            break
    spare.leave()
    os._exit(0)


def _report(spare: Spare, error: BaseException) -> None:
    """Send the error to the server, and keep the traceback in the run directory."""
    import traceback

    spare.run_dir.report(traceback.format_exc())
    if isinstance(error, OSError):
        spare.give_up(str(error), error.errno)
    else:
        spare.give_up(f"{type(error).__name__}: {error}")
