"""The one error tree of the product; every class has a stable ``code``.

DebugServerError
 +-- InvalidInputError            invalid_input        a value the caller gave is wrong; names it and the fix
 |    +-- ConfigurationError      invalid_configuration  a file or variable of the operator's is wrong
 |    +-- UnmetRequirementError   requirement_unmet    `require` named a limit or layer this machine lacks
 |    +-- PayloadTooLargeError    payload_too_large    a request is larger than the surface takes
 |    +-- UnsupportedMediaTypeError  unsupported_media_type  a body's content type is not taken here
 |    +-- RangeNotSatisfiableError  range_not_satisfiable  a range lies behind the end of a log
 +-- AccessError                  unauthorized         who the caller is, is not known
 |    +-- ForbiddenError          forbidden            it is known, and may not
 +-- UnavailableError             draining             the server is on its way out; try again
 |    +-- QuotaExceededError      quota_exceeded       the caller's own bound; try again later
 |    +-- TooManyFollowersError   too_many_followers   as many follow logs as the server has room for; try again later
 |    +-- ResourcesExhaustedError  resources_exhausted  no thread or process can be created now; try again
 |    +-- DiskFullError           disk_full            new work is refused until space is freed
 |    +-- WorkerNotReadyError     worker_not_ready     a supervised worker is starting, failing or draining
 |    +-- WorkerExitedError       worker_exited        it ended while it was used; try again
 |    +-- WorkerBusyError         worker_busy          it has as much to do as it takes; try again
 |    +-- WorkerTimeoutError      worker_request_timeout  it did not answer in time
 |    +-- HandshakeError          handshake_failed     what was started is not the worker that was expected
 +-- WorkerError                  worker_error         a supervised worker answered with an error
 +-- DebuggerUnavailableError     debugger_unavailable no debugger is attached to the session
 +-- MetadataError                metadata_error       the store refuses: unknown row, lease mismatch
 |    +-- NotFoundError           not_found
 |    +-- ConflictError           conflict             the row is not in the state the caller relied on
 |    +-- StoreUnavailableError   store_unavailable    the database cannot be opened, read or written
 +-- QueueFullError               queue_full           the engine's bound is reached; try again later
 +-- EngineBusyError              engine_busy          another live server owns this store
 +-- KeeperError                  keeper_error         a keeper or the fork server did not answer
 +-- WorktreePoolError            worktree_error       mirror, tree, lease
 |    +-- UnknownCommitError      unknown_commit
 |    +-- RemoteUnreachableError  remote_unreachable
 |    +-- CapacityExhaustedError  capacity_exhausted
 |    +-- LeaseLostError          lease_lost
 +-- PatchApplicationError        patch_failed         the patch does not apply; names file, hunk and line
 +-- EnvironmentBuildError        env_failed           the environment could not be built; carries the tool's words
 +-- CommandExecutionError        spawn_failed         the command could not be started
"""

from __future__ import annotations

import errno
from collections.abc import Mapping
from typing import Any


class DebugServerError(Exception):
    """Base of everything the product raises on purpose; ``str()`` is a sentence for a person."""

    code = "internal_error"


class InvalidInputError(DebugServerError, ValueError):
    """A value the caller gave is wrong; ``field`` names it where the message came in fields."""

    code = "invalid_input"

    def __init__(self, message: str = "", *, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


class ConfigurationError(InvalidInputError):
    """A configuration file, variable or flag is wrong."""

    code = "invalid_configuration"


class UnmetRequirementError(InvalidInputError):
    """Something named in ``require`` cannot be enforced on this machine."""

    code = "requirement_unmet"


class PayloadTooLargeError(InvalidInputError):
    """A request is larger than the surface takes."""

    code = "payload_too_large"


class UnsupportedMediaTypeError(InvalidInputError):
    """The content type of a request's body is not one that the surface takes."""

    code = "unsupported_media_type"


class RangeNotSatisfiableError(InvalidInputError):
    """A range lies behind the end of a log, which has ``size`` bytes."""

    code = "range_not_satisfiable"

    def __init__(self, message: str, *, size: int) -> None:
        super().__init__(message)
        self.size = size


class AccessError(DebugServerError):
    """Who the caller is, is not known."""

    code = "unauthorized"


class ForbiddenError(AccessError):
    """The caller is known and may not."""

    code = "forbidden"


class UnavailableError(DebugServerError):
    """The server does not take requests now; ``retry_after`` says when to try again."""

    code = "draining"

    def __init__(self, message: str, *, retry_after: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class QuotaExceededError(UnavailableError):
    """The caller's own bound is reached."""

    code = "quota_exceeded"


class TooManyFollowersError(UnavailableError):
    """As many follow logs and events as the server has room for."""

    code = "too_many_followers"


class ResourcesExhaustedError(UnavailableError):
    """The machine, or the user's limit, gives no further thread or process now."""

    code = "resources_exhausted"

    @classmethod
    def of(cls, error: BaseException) -> ResourcesExhaustedError | None:
        """The same as one of ours, where ``error`` says that no thread or process could be created; else None."""
        no_thread = isinstance(error, RuntimeError) and "can't start new thread" in str(error)
        no_process = isinstance(error, BlockingIOError) and error.errno == errno.EAGAIN
        if not no_thread and not no_process:
            return None
        what = "thread" if no_thread else "process"
        return cls(f"the server cannot create another {what} (limit of processes reached): retry later")


class DiskFullError(UnavailableError):
    """The disk that holds the server's data has no room for new work."""

    code = "disk_full"


class WorkerNotReadyError(UnavailableError):
    """A supervised worker takes no requests now; ``status`` is its status object."""

    code = "worker_not_ready"

    def __init__(self, message: str, *, status: Mapping[str, Any] | None = None, retry_after: float = 1.0) -> None:
        super().__init__(message, retry_after=retry_after)
        self.status: Mapping[str, Any] = {} if status is None else status


class WorkerExitedError(UnavailableError):
    """A supervised worker ended while it was used; its successor will answer."""

    code = "worker_exited"


class WorkerBusyError(UnavailableError):
    """A supervised worker has as much to do as it takes."""

    code = "worker_busy"


class WorkerTimeoutError(UnavailableError):
    """A supervised worker did not answer, or not end, in time."""

    code = "worker_request_timeout"


class HandshakeError(UnavailableError):
    """What was started does not speak the protocol that was expected of it."""

    code = "handshake_failed"


class WorkerError(DebugServerError):
    """A supervised worker answered a request with an error; ``number`` and ``data`` are its own."""

    code = "worker_error"

    def __init__(self, message: str, *, number: int | None = None, data: Any = None) -> None:
        super().__init__(message)
        self.number = number
        self.data = data


class DebuggerUnavailableError(DebugServerError):
    """No debugger is attached to the session."""

    code = "debugger_unavailable"


class MetadataError(DebugServerError):
    """The metadata store refuses an operation."""

    code = "metadata_error"


class NotFoundError(MetadataError):
    """No such row."""

    code = "not_found"


class ConflictError(MetadataError):
    """The row is no longer in the state that the caller relied on."""

    code = "conflict"


class StoreUnavailableError(MetadataError):
    """The database cannot be opened, read or written."""

    code = "store_unavailable"


class QueueFullError(DebugServerError):
    """The engine's bound on waiting commands is reached."""

    code = "queue_full"


class EngineBusyError(DebugServerError):
    """Another live server owns this store."""

    code = "engine_busy"


class KeeperError(DebugServerError, RuntimeError):
    """A keeper or the fork server did not answer."""

    code = "keeper_error"


class WorktreePoolError(DebugServerError, RuntimeError):
    """A mirror, a tree or a lease cannot be had."""

    code = "worktree_error"


class UnknownCommitError(WorktreePoolError):
    """The repository has no such commit, branch or tag."""

    code = "unknown_commit"


class RemoteUnreachableError(WorktreePoolError):
    """The remote did not answer, or refused."""

    code = "remote_unreachable"


class CapacityExhaustedError(WorktreePoolError):
    """No workspace became free before the deadline."""

    code = "capacity_exhausted"


class LeaseLostError(WorktreePoolError):
    """The lease expired or was taken by a newer generation."""

    code = "lease_lost"


class PatchApplicationError(DebugServerError, RuntimeError):
    """The patch does not apply; nothing was changed."""

    code = "patch_failed"


class EnvironmentBuildError(DebugServerError, RuntimeError):
    """The environment could not be built; ``tool_output`` is what its tool said last, which the log has already."""

    code = "env_failed"

    def __init__(self, message: str = "", *, tool_output: str = "") -> None:
        super().__init__(f"{message}\nlast lines of its output:\n{tool_output}" if tool_output else message)
        self.without_output = message


class CommandExecutionError(DebugServerError, RuntimeError):
    """The command could not be started."""

    code = "spawn_failed"
