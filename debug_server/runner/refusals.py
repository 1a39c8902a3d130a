"""Why a command was not started: the error that says so, and the exit reason it becomes."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from debug_server.errors import (
    CommandExecutionError,
    DebugServerError,
    EnvironmentBuildError,
    LeaseLostError,
    PatchApplicationError,
)
from debug_server.model import Command, ExitReason
from debug_server.runner.cancelling import StartCancelledError

_LOG = logging.getLogger(__name__)
_SAID = 400  # characters of an error that is not ours


@contextmanager
def defects_told(command: Command) -> Iterator[None]:
    """A workspace's files are anybody's and may hold what nobody thought of: the command has its end all the same."""
    try:
        yield
    except (DebugServerError, OSError):
        raise
    except Exception as error:
        raise as_refusal(command, error) from error


def as_refusal(command: Command, error: Exception) -> CommandExecutionError:
    """The error for a defect of ours: logged whole, told in one line."""
    _LOG.error("preparation_failed", extra={"command_id": command.id}, exc_info=error)
    return CommandExecutionError(
        f"command {command.id} could not be prepared: {type(error).__name__}: {str(error)[:_SAID]}"
    )


def reason_of(error: DebugServerError | KeyboardInterrupt) -> ExitReason:
    """The exit reason of a command that was not started because of ``error``."""
    if isinstance(error, KeyboardInterrupt | StartCancelledError):
        return ExitReason.CANCELLED
    if isinstance(error, PatchApplicationError):
        return ExitReason.PATCH_FAILED
    if isinstance(error, EnvironmentBuildError):
        return ExitReason.ENV_FAILED
    if isinstance(error, LeaseLostError):
        return ExitReason.LEASE_LOST
    return ExitReason.SPAWN_FAILED


def unlogged(error: DebugServerError | KeyboardInterrupt) -> str:
    """An error's words without the output of a build tool, which is in the log above them."""
    return (error.without_output if isinstance(error, EnvironmentBuildError) else str(error)) or "interrupted"
