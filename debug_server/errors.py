"""The one error tree of the product; every class has a stable ``code``.

DebugServerError
 +-- InvalidInputError            invalid_input        a value from the caller is wrong; names it and the fix
 |    +-- ConfigurationError      invalid_configuration  a configuration file, variable or flag is wrong
 |    +-- UnmetRequirementError   requirement_unmet    `require` named a limit or layer this machine lacks
 |    +-- PayloadTooLargeError    payload_too_large    a request exceeds the size limit of the surface
 |    +-- UnsupportedMediaTypeError  unsupported_media_type  the content type of a body is not accepted
 |    +-- RangeNotSatisfiableError  range_not_satisfiable  a range starts after the end of a log
 +-- AccessError                  unauthorized         the caller is not authenticated
 |    +-- ForbiddenError          forbidden            the caller is authenticated but not allowed
 +-- UnsupportedByServerError     unsupported_by_server  the server has no such operation: it is older than the client
 +-- UnavailableError             draining             the server takes no requests now; try again
 |    +-- UnreachableError        unreachable          nothing answers at the server's address; start it, or try again
 |    +-- QuotaExceededError      quota_exceeded       the caller's quota is used up; try again later
 |    +-- TooManyFollowersError   too_many_followers   the limit of log followers is reached; try again later
 |    +-- ResourcesExhaustedError  resources_exhausted  no thread or process can be created now; try again
 |    +-- DiskFullError           disk_full            new work is refused until space is freed
 |    +-- WorkerNotReadyError     worker_not_ready     a supervised worker is starting, failing or draining
 |    +-- WorkerExitedError       worker_exited        it ended during the request; try again
 |    +-- WorkerBusyError         worker_busy          its limit of concurrent work is reached; try again
 |    +-- WorkerTimeoutError      worker_request_timeout  it did not answer in time
 |    +-- HandshakeError          handshake_failed     the program does not speak the expected protocol
 +-- WorkerError                  worker_error         a supervised worker answered with an error
 +-- DebuggerUnavailableError     debugger_unavailable no debugger is attached to the session
 +-- MetadataError                metadata_error       the store refuses: unknown row, lease mismatch
 |    +-- NotFoundError           not_found
 |    +-- ConflictError           conflict             the row is not in the state that the caller expected
 |    |    +-- StillRunningError  still_running        commands were cancelled and have not ended yet; try again
 |    +-- StoreUnavailableError   store_unavailable    the database cannot be opened, read or written
 +-- QueueFullError               queue_full           the limit of waiting commands is reached; try again later
 +-- EngineBusyError              engine_busy          another live server owns this store
 +-- KeeperError                  keeper_error         a keeper or the fork server did not answer
 +-- WorktreePoolError            worktree_error       mirror, tree, lease
 |    +-- UnknownCommitError      unknown_commit
 |    +-- RemoteUnreachableError  remote_unreachable
 |    +-- CapacityExhaustedError  capacity_exhausted
 |    +-- LeaseLostError          lease_lost
 +-- PatchApplicationError        patch_failed         the patch does not apply; names file, hunk and line
 +-- EnvironmentBuildError        env_failed           the environment could not be built; has the tool's output
 +-- CommandExecutionError        spawn_failed         the command could not be started
 +-- CommandFailedError           command_failed       the command did not succeed: Completed.check of the SDK
"""

from __future__ import annotations

import errno
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


class DebugServerError(Exception):
    """Base of everything the product raises on purpose; ``str()`` is a sentence for a person."""

    code = "internal_error"


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldViolation:
    """One wrong field of a request."""

    field: str
    reason: str  # with the value, unless it is long or may be secret

    @property
    def message(self) -> str:
        """The field and the reason, as one phrase."""
        return f"{self.field}: {self.reason}"


class InvalidInputError(DebugServerError, ValueError):
    """A value from the caller is wrong; if the request has fields, ``violations`` has each wrong one.

    ``field`` names the first of them.
    """

    code = "invalid_input"

    def __init__(
        self, message: str = "", *, field: str | None = None, violations: Sequence[FieldViolation] = ()
    ) -> None:
        super().__init__(message)
        self.field = field or (violations[0].field if violations else None)
        self.violations = tuple(violations)


class ConfigurationError(InvalidInputError):
    """A configuration file, variable or flag is wrong."""

    code = "invalid_configuration"


class UnmetRequirementError(InvalidInputError):
    """Something named in ``require`` cannot be enforced on this machine."""

    code = "requirement_unmet"


class PayloadTooLargeError(InvalidInputError):
    """A request exceeds the size limit of the surface."""

    code = "payload_too_large"


class UnsupportedMediaTypeError(InvalidInputError):
    """The surface does not accept the content type of a body."""

    code = "unsupported_media_type"


class RangeNotSatisfiableError(InvalidInputError):
    """A range starts after the end of a log, which has ``size`` bytes."""

    code = "range_not_satisfiable"

    def __init__(self, message: str, *, size: int) -> None:
        super().__init__(message)
        self.size = size


class AccessError(DebugServerError):
    """The caller is not authenticated."""

    code = "unauthorized"


class ForbiddenError(AccessError):
    """The caller is authenticated but not allowed to do this."""

    code = "forbidden"


class UnsupportedByServerError(DebugServerError):
    """The server has no such operation; it is older than the client, or does not serve this part."""

    code = "unsupported_by_server"


class UnavailableError(DebugServerError):
    """The server does not take requests now; ``retry_after`` says when to try again."""

    code = "draining"

    def __init__(self, message: str, *, retry_after: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class UnreachableError(UnavailableError):
    """Nothing answers at the server's address; ``connected`` if a connection was lost after the request was sent."""

    code = "unreachable"

    def __init__(self, message: str, *, retry_after: float = 1.0, connected: bool = False) -> None:
        super().__init__(message, retry_after=retry_after)
        self.connected = connected


class QuotaExceededError(UnavailableError):
    """The caller's quota is used up."""

    code = "quota_exceeded"


class TooManyFollowersError(UnavailableError):
    """The limit of followers of logs and events is reached."""

    code = "too_many_followers"


class ResourcesExhaustedError(UnavailableError):
    """No further thread or process can be created now."""

    code = "resources_exhausted"

    @classmethod
    def of(cls, error: BaseException) -> ResourcesExhaustedError | None:
        """This error for an ``error`` that says that no thread or process could be created; else None."""
        no_thread = isinstance(error, RuntimeError) and "can't start new thread" in str(error)
        no_process = isinstance(error, BlockingIOError) and error.errno == errno.EAGAIN
        if not no_thread and not no_process:
            return None
        what = "thread" if no_thread else "process"
        return cls(f"the server cannot create another {what} (limit of processes reached): retry later")


class DiskFullError(UnavailableError):
    """The disk of the data folder is too full for new work."""

    code = "disk_full"

    @classmethod
    def of(cls, error: BaseException, doing: str) -> DiskFullError | None:
        """This error for an ``error`` that says that no byte or no file more fits on the disk; else None."""
        if not isinstance(error, OSError) or error.errno not in (errno.ENOSPC, errno.EDQUOT):
            return None
        return cls(
            f"{doing}: {error.strerror}: close or reset sessions, or free space, then try again", retry_after=30.0
        )


class WorkerNotReadyError(UnavailableError):
    """A supervised worker takes no requests now; ``status`` is its status object."""

    code = "worker_not_ready"

    def __init__(self, message: str, *, status: Mapping[str, Any] | None = None, retry_after: float = 1.0) -> None:
        super().__init__(message, retry_after=retry_after)
        self.status: Mapping[str, Any] = {} if status is None else status


class WorkerExitedError(UnavailableError):
    """A supervised worker ended during a request; its next run can serve it."""

    code = "worker_exited"


class WorkerBusyError(UnavailableError):
    """A supervised worker has reached its limit of concurrent work."""

    code = "worker_busy"


class WorkerTimeoutError(UnavailableError):
    """A supervised worker did not answer, or not end, in time."""

    code = "worker_request_timeout"


class HandshakeError(UnavailableError):
    """The started program does not speak the expected protocol."""

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
    """No such row; ``what`` is its noun, such as session, if surfaces can say where the existing ones are listed."""

    code = "not_found"

    def __init__(self, message: str = "", *, what: str | None = None) -> None:
        super().__init__(message)
        self.what = what


class ConflictError(MetadataError):
    """The row is not in the state that the caller expected."""

    code = "conflict"


class StillRunningError(ConflictError):
    """Commands were cancelled, but have not ended yet."""

    code = "still_running"


class StoreUnavailableError(MetadataError):
    """The database cannot be opened, read or written."""

    code = "store_unavailable"


class QueueFullError(DebugServerError):
    """The limit of waiting commands is reached."""

    code = "queue_full"


class EngineBusyError(DebugServerError):
    """Another live server owns this store."""

    code = "engine_busy"


class KeeperError(DebugServerError, RuntimeError):
    """A keeper or the fork server did not answer."""

    code = "keeper_error"


class WorktreePoolError(DebugServerError, RuntimeError):
    """A mirror, a tree or a lease is not available."""

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
    """The environment could not be built; ``tool_output`` has the last lines of the tool, which are also in the log."""

    code = "env_failed"

    def __init__(self, message: str = "", *, tool_output: str = "") -> None:
        super().__init__(f"{message}\nlast lines of its output:\n{tool_output}" if tool_output else message)
        self.without_output = message


class CommandExecutionError(DebugServerError, RuntimeError):
    """The command could not be started."""

    code = "spawn_failed"


class CommandFailedError(DebugServerError, RuntimeError):
    """The command did not exit with status 0; raised by ``Completed.check`` of the SDK."""

    code = "command_failed"
