"""Errors of commands that could not be started, and their exit reasons."""

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
from debug_server.runner.cancellation import StartCancelledError

_LOG = logging.getLogger(__name__)
_MAX_MESSAGE = 400  # characters of the message of an unexpected error


@contextmanager
def unexpected_as_start_failure(command: Command) -> Iterator[None]:
    """Convert an unexpected exception (a bug, triggered by unusual files) to an error, so that the command ends."""
    try:
        yield
    except (DebugServerError, OSError):
        raise
    except Exception as error:
        raise start_failure(command, error) from error


def start_failure(command: Command, error: Exception) -> CommandExecutionError:
    """The error for an unexpected exception, which is logged with its traceback."""
    _LOG.error("preparation_failed", extra={"command_id": command.id}, exc_info=error)
    return CommandExecutionError(
        f"command {command.id} could not be prepared: {type(error).__name__}: {str(error)[:_MAX_MESSAGE]}"
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


def text_without_tool_output(error: DebugServerError | KeyboardInterrupt) -> str:
    """The text of an error without the output of a build tool, which is already in the log."""
    return (error.without_output if isinstance(error, EnvironmentBuildError) else str(error)) or "interrupted"
