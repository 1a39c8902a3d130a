import datetime

from google.protobuf import struct_pb2 as _struct_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Confirmation(_message.Message):
    __slots__ = ("message",)
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    message: str
    def __init__(self, message: _Optional[str] = ...) -> None: ...

class Chunk(_message.Message):
    __slots__ = ("offset", "data")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    offset: int
    data: bytes
    def __init__(self, offset: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...

class RegisterRepositoryRequest(_message.Message):
    __slots__ = ("name", "remote_url", "default_branch", "description", "settings")
    NAME_FIELD_NUMBER: _ClassVar[int]
    REMOTE_URL_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_BRANCH_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    name: str
    remote_url: str
    default_branch: str
    description: str
    settings: _struct_pb2.Struct
    def __init__(self, name: _Optional[str] = ..., remote_url: _Optional[str] = ..., default_branch: _Optional[str] = ..., description: _Optional[str] = ..., settings: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...

class GetRepositoryRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class RemoveRepositoryRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class ListRepositoriesRequest(_message.Message):
    __slots__ = ("after", "limit", "order")
    AFTER_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    ORDER_FIELD_NUMBER: _ClassVar[int]
    after: int
    limit: int
    order: str
    def __init__(self, after: _Optional[int] = ..., limit: _Optional[int] = ..., order: _Optional[str] = ...) -> None: ...

class Repository(_message.Message):
    __slots__ = ("id", "name", "remote_url", "default_branch", "description", "settings", "created_at", "updated_at")
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    REMOTE_URL_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_BRANCH_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    UPDATED_AT_FIELD_NUMBER: _ClassVar[int]
    id: int
    name: str
    remote_url: str
    default_branch: str
    description: str
    settings: _struct_pb2.Struct
    created_at: _timestamp_pb2.Timestamp
    updated_at: _timestamp_pb2.Timestamp
    def __init__(self, id: _Optional[int] = ..., name: _Optional[str] = ..., remote_url: _Optional[str] = ..., default_branch: _Optional[str] = ..., description: _Optional[str] = ..., settings: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., created_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., updated_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class RepositoryList(_message.Message):
    __slots__ = ("items", "next_after")
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    NEXT_AFTER_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[Repository]
    next_after: int
    def __init__(self, items: _Optional[_Iterable[_Union[Repository, _Mapping]]] = ..., next_after: _Optional[int] = ...) -> None: ...

class OpenSessionRequest(_message.Message):
    __slots__ = ("repository", "commit_sha", "patch", "metadata", "requested_by", "expires_in", "manifests", "python", "commands", "extras", "groups", "env", "cwd", "commit", "patch_bytes")
    class EnvEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    REPOSITORY_FIELD_NUMBER: _ClassVar[int]
    COMMIT_SHA_FIELD_NUMBER: _ClassVar[int]
    PATCH_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    REQUESTED_BY_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_IN_FIELD_NUMBER: _ClassVar[int]
    MANIFESTS_FIELD_NUMBER: _ClassVar[int]
    PYTHON_FIELD_NUMBER: _ClassVar[int]
    COMMANDS_FIELD_NUMBER: _ClassVar[int]
    EXTRAS_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    ENV_FIELD_NUMBER: _ClassVar[int]
    CWD_FIELD_NUMBER: _ClassVar[int]
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    PATCH_BYTES_FIELD_NUMBER: _ClassVar[int]
    repository: str
    commit_sha: str
    patch: str
    metadata: _struct_pb2.Struct
    requested_by: str
    expires_in: float
    manifests: _containers.RepeatedScalarFieldContainer[str]
    python: str
    commands: _containers.RepeatedScalarFieldContainer[str]
    extras: _containers.RepeatedScalarFieldContainer[str]
    groups: _containers.RepeatedScalarFieldContainer[str]
    env: _containers.ScalarMap[str, str]
    cwd: str
    commit: str
    patch_bytes: bytes
    def __init__(self, repository: _Optional[str] = ..., commit_sha: _Optional[str] = ..., patch: _Optional[str] = ..., metadata: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., requested_by: _Optional[str] = ..., expires_in: _Optional[float] = ..., manifests: _Optional[_Iterable[str]] = ..., python: _Optional[str] = ..., commands: _Optional[_Iterable[str]] = ..., extras: _Optional[_Iterable[str]] = ..., groups: _Optional[_Iterable[str]] = ..., env: _Optional[_Mapping[str, str]] = ..., cwd: _Optional[str] = ..., commit: _Optional[str] = ..., patch_bytes: _Optional[bytes] = ...) -> None: ...

class GetSessionRequest(_message.Message):
    __slots__ = ("session_id",)
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    session_id: int
    def __init__(self, session_id: _Optional[int] = ...) -> None: ...

class ListSessionsRequest(_message.Message):
    __slots__ = ("after", "limit", "order", "status", "repository")
    AFTER_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    ORDER_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    REPOSITORY_FIELD_NUMBER: _ClassVar[int]
    after: int
    limit: int
    order: str
    status: _containers.RepeatedScalarFieldContainer[str]
    repository: str
    def __init__(self, after: _Optional[int] = ..., limit: _Optional[int] = ..., order: _Optional[str] = ..., status: _Optional[_Iterable[str]] = ..., repository: _Optional[str] = ...) -> None: ...

class ForkSessionRequest(_message.Message):
    __slots__ = ("session_id", "count")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    session_id: int
    count: int
    def __init__(self, session_id: _Optional[int] = ..., count: _Optional[int] = ...) -> None: ...

class ResetSessionRequest(_message.Message):
    __slots__ = ("session_id",)
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    session_id: int
    def __init__(self, session_id: _Optional[int] = ...) -> None: ...

class DiffSessionRequest(_message.Message):
    __slots__ = ("session_id",)
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    session_id: int
    def __init__(self, session_id: _Optional[int] = ...) -> None: ...

class FetchDiffRequest(_message.Message):
    __slots__ = ("session_id",)
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    session_id: int
    def __init__(self, session_id: _Optional[int] = ...) -> None: ...

class CloseSessionRequest(_message.Message):
    __slots__ = ("session_id",)
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    session_id: int
    def __init__(self, session_id: _Optional[int] = ...) -> None: ...

class DebugSessionRequest(_message.Message):
    __slots__ = ("session_id", "action", "payload")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    session_id: int
    action: str
    payload: _struct_pb2.Struct
    def __init__(self, session_id: _Optional[int] = ..., action: _Optional[str] = ..., payload: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...

class Session(_message.Message):
    __slots__ = ("id", "session_id", "repository_id", "worktree_id", "status", "commit_sha", "patch_hash", "requested_by", "expires_at", "metadata", "created_at", "updated_at")
    ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    REPOSITORY_ID_FIELD_NUMBER: _ClassVar[int]
    WORKTREE_ID_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    COMMIT_SHA_FIELD_NUMBER: _ClassVar[int]
    PATCH_HASH_FIELD_NUMBER: _ClassVar[int]
    REQUESTED_BY_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    UPDATED_AT_FIELD_NUMBER: _ClassVar[int]
    id: int
    session_id: int
    repository_id: int
    worktree_id: int
    status: str
    commit_sha: str
    patch_hash: str
    requested_by: str
    expires_at: _timestamp_pb2.Timestamp
    metadata: _struct_pb2.Struct
    created_at: _timestamp_pb2.Timestamp
    updated_at: _timestamp_pb2.Timestamp
    def __init__(self, id: _Optional[int] = ..., session_id: _Optional[int] = ..., repository_id: _Optional[int] = ..., worktree_id: _Optional[int] = ..., status: _Optional[str] = ..., commit_sha: _Optional[str] = ..., patch_hash: _Optional[str] = ..., requested_by: _Optional[str] = ..., expires_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., metadata: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., created_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., updated_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class SessionList(_message.Message):
    __slots__ = ("items", "next_after")
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    NEXT_AFTER_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[Session]
    next_after: int
    def __init__(self, items: _Optional[_Iterable[_Union[Session, _Mapping]]] = ..., next_after: _Optional[int] = ...) -> None: ...

class SessionDiff(_message.Message):
    __slots__ = ("session_id", "patch", "exact", "patch_bytes")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    PATCH_FIELD_NUMBER: _ClassVar[int]
    EXACT_FIELD_NUMBER: _ClassVar[int]
    PATCH_BYTES_FIELD_NUMBER: _ClassVar[int]
    session_id: int
    patch: str
    exact: bool
    patch_bytes: bytes
    def __init__(self, session_id: _Optional[int] = ..., patch: _Optional[str] = ..., exact: _Optional[bool] = ..., patch_bytes: _Optional[bytes] = ...) -> None: ...

class Limits(_message.Message):
    __slots__ = ("memory_bytes", "cpus", "cpu_seconds", "pids", "open_files", "file_size_bytes", "output_bytes", "wall_seconds", "idle_seconds")
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    CPUS_FIELD_NUMBER: _ClassVar[int]
    CPU_SECONDS_FIELD_NUMBER: _ClassVar[int]
    PIDS_FIELD_NUMBER: _ClassVar[int]
    OPEN_FILES_FIELD_NUMBER: _ClassVar[int]
    FILE_SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_BYTES_FIELD_NUMBER: _ClassVar[int]
    WALL_SECONDS_FIELD_NUMBER: _ClassVar[int]
    IDLE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    memory_bytes: int
    cpus: float
    cpu_seconds: float
    pids: int
    open_files: int
    file_size_bytes: int
    output_bytes: int
    wall_seconds: float
    idle_seconds: float
    def __init__(self, memory_bytes: _Optional[int] = ..., cpus: _Optional[float] = ..., cpu_seconds: _Optional[float] = ..., pids: _Optional[int] = ..., open_files: _Optional[int] = ..., file_size_bytes: _Optional[int] = ..., output_bytes: _Optional[int] = ..., wall_seconds: _Optional[float] = ..., idle_seconds: _Optional[float] = ...) -> None: ...

class SubmitCommandRequest(_message.Message):
    __slots__ = ("session_id", "argv", "cwd", "env", "log_name", "limits", "require", "artifacts", "tty", "stdin", "priority", "secrets", "isolation", "network")
    class EnvEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    ARGV_FIELD_NUMBER: _ClassVar[int]
    CWD_FIELD_NUMBER: _ClassVar[int]
    ENV_FIELD_NUMBER: _ClassVar[int]
    LOG_NAME_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    REQUIRE_FIELD_NUMBER: _ClassVar[int]
    ARTIFACTS_FIELD_NUMBER: _ClassVar[int]
    TTY_FIELD_NUMBER: _ClassVar[int]
    STDIN_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    SECRETS_FIELD_NUMBER: _ClassVar[int]
    ISOLATION_FIELD_NUMBER: _ClassVar[int]
    NETWORK_FIELD_NUMBER: _ClassVar[int]
    session_id: int
    argv: _containers.RepeatedScalarFieldContainer[str]
    cwd: str
    env: _containers.ScalarMap[str, str]
    log_name: str
    limits: Limits
    require: _containers.RepeatedScalarFieldContainer[str]
    artifacts: _containers.RepeatedScalarFieldContainer[str]
    tty: bool
    stdin: bool
    priority: int
    secrets: _containers.RepeatedScalarFieldContainer[str]
    isolation: str
    network: str
    def __init__(self, session_id: _Optional[int] = ..., argv: _Optional[_Iterable[str]] = ..., cwd: _Optional[str] = ..., env: _Optional[_Mapping[str, str]] = ..., log_name: _Optional[str] = ..., limits: _Optional[_Union[Limits, _Mapping]] = ..., require: _Optional[_Iterable[str]] = ..., artifacts: _Optional[_Iterable[str]] = ..., tty: _Optional[bool] = ..., stdin: _Optional[bool] = ..., priority: _Optional[int] = ..., secrets: _Optional[_Iterable[str]] = ..., isolation: _Optional[str] = ..., network: _Optional[str] = ...) -> None: ...

class GetCommandRequest(_message.Message):
    __slots__ = ("command_id",)
    COMMAND_ID_FIELD_NUMBER: _ClassVar[int]
    command_id: int
    def __init__(self, command_id: _Optional[int] = ...) -> None: ...

class ListCommandsRequest(_message.Message):
    __slots__ = ("session_id", "after", "limit", "order")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    ORDER_FIELD_NUMBER: _ClassVar[int]
    session_id: int
    after: int
    limit: int
    order: str
    def __init__(self, session_id: _Optional[int] = ..., after: _Optional[int] = ..., limit: _Optional[int] = ..., order: _Optional[str] = ...) -> None: ...

class FindCommandsRequest(_message.Message):
    __slots__ = ("after", "limit", "order", "status", "repository", "session_id")
    AFTER_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    ORDER_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    REPOSITORY_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    after: int
    limit: int
    order: str
    status: _containers.RepeatedScalarFieldContainer[str]
    repository: str
    session_id: int
    def __init__(self, after: _Optional[int] = ..., limit: _Optional[int] = ..., order: _Optional[str] = ..., status: _Optional[_Iterable[str]] = ..., repository: _Optional[str] = ..., session_id: _Optional[int] = ...) -> None: ...

class RerunCommandRequest(_message.Message):
    __slots__ = ("command_id", "env")
    class EnvEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    COMMAND_ID_FIELD_NUMBER: _ClassVar[int]
    ENV_FIELD_NUMBER: _ClassVar[int]
    command_id: int
    env: _containers.ScalarMap[str, str]
    def __init__(self, command_id: _Optional[int] = ..., env: _Optional[_Mapping[str, str]] = ...) -> None: ...

class WaitCommandRequest(_message.Message):
    __slots__ = ("command_id", "timeout")
    COMMAND_ID_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    command_id: int
    timeout: float
    def __init__(self, command_id: _Optional[int] = ..., timeout: _Optional[float] = ...) -> None: ...

class CancelCommandRequest(_message.Message):
    __slots__ = ("command_id",)
    COMMAND_ID_FIELD_NUMBER: _ClassVar[int]
    command_id: int
    def __init__(self, command_id: _Optional[int] = ...) -> None: ...

class SignalCommandRequest(_message.Message):
    __slots__ = ("command_id", "signal")
    COMMAND_ID_FIELD_NUMBER: _ClassVar[int]
    SIGNAL_FIELD_NUMBER: _ClassVar[int]
    command_id: int
    signal: int
    def __init__(self, command_id: _Optional[int] = ..., signal: _Optional[int] = ...) -> None: ...

class WriteStdinRequest(_message.Message):
    __slots__ = ("command_id", "write_id", "data", "close")
    COMMAND_ID_FIELD_NUMBER: _ClassVar[int]
    WRITE_ID_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    CLOSE_FIELD_NUMBER: _ClassVar[int]
    command_id: int
    write_id: str
    data: bytes
    close: bool
    def __init__(self, command_id: _Optional[int] = ..., write_id: _Optional[str] = ..., data: _Optional[bytes] = ..., close: _Optional[bool] = ...) -> None: ...

class StartRunRequest(_message.Message):
    __slots__ = ("repository", "commit_sha", "patch", "argv", "cwd", "env", "log_name", "limits", "require", "artifacts", "tty", "stdin", "priority", "manifests", "python", "metadata", "extras", "groups", "secrets", "commit", "patch_bytes", "isolation", "network")
    class EnvEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    REPOSITORY_FIELD_NUMBER: _ClassVar[int]
    COMMIT_SHA_FIELD_NUMBER: _ClassVar[int]
    PATCH_FIELD_NUMBER: _ClassVar[int]
    ARGV_FIELD_NUMBER: _ClassVar[int]
    CWD_FIELD_NUMBER: _ClassVar[int]
    ENV_FIELD_NUMBER: _ClassVar[int]
    LOG_NAME_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    REQUIRE_FIELD_NUMBER: _ClassVar[int]
    ARTIFACTS_FIELD_NUMBER: _ClassVar[int]
    TTY_FIELD_NUMBER: _ClassVar[int]
    STDIN_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    MANIFESTS_FIELD_NUMBER: _ClassVar[int]
    PYTHON_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    EXTRAS_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    SECRETS_FIELD_NUMBER: _ClassVar[int]
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    PATCH_BYTES_FIELD_NUMBER: _ClassVar[int]
    ISOLATION_FIELD_NUMBER: _ClassVar[int]
    NETWORK_FIELD_NUMBER: _ClassVar[int]
    repository: str
    commit_sha: str
    patch: str
    argv: _containers.RepeatedScalarFieldContainer[str]
    cwd: str
    env: _containers.ScalarMap[str, str]
    log_name: str
    limits: Limits
    require: _containers.RepeatedScalarFieldContainer[str]
    artifacts: _containers.RepeatedScalarFieldContainer[str]
    tty: bool
    stdin: bool
    priority: int
    manifests: _containers.RepeatedScalarFieldContainer[str]
    python: str
    metadata: _struct_pb2.Struct
    extras: _containers.RepeatedScalarFieldContainer[str]
    groups: _containers.RepeatedScalarFieldContainer[str]
    secrets: _containers.RepeatedScalarFieldContainer[str]
    commit: str
    patch_bytes: bytes
    isolation: str
    network: str
    def __init__(self, repository: _Optional[str] = ..., commit_sha: _Optional[str] = ..., patch: _Optional[str] = ..., argv: _Optional[_Iterable[str]] = ..., cwd: _Optional[str] = ..., env: _Optional[_Mapping[str, str]] = ..., log_name: _Optional[str] = ..., limits: _Optional[_Union[Limits, _Mapping]] = ..., require: _Optional[_Iterable[str]] = ..., artifacts: _Optional[_Iterable[str]] = ..., tty: _Optional[bool] = ..., stdin: _Optional[bool] = ..., priority: _Optional[int] = ..., manifests: _Optional[_Iterable[str]] = ..., python: _Optional[str] = ..., metadata: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., extras: _Optional[_Iterable[str]] = ..., groups: _Optional[_Iterable[str]] = ..., secrets: _Optional[_Iterable[str]] = ..., commit: _Optional[str] = ..., patch_bytes: _Optional[bytes] = ..., isolation: _Optional[str] = ..., network: _Optional[str] = ...) -> None: ...

class ExecCommandRequest(_message.Message):
    __slots__ = ("argv", "session_id", "repository", "commit_sha", "patch", "manifests", "python", "extras", "groups", "metadata", "cwd", "env", "log_name", "limits", "require", "secrets", "artifacts", "tty", "stdin", "priority", "timeout", "wait", "on_disconnect", "output_bytes", "merged", "digest", "commit", "patch_bytes", "isolation", "network")
    class EnvEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ARGV_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    REPOSITORY_FIELD_NUMBER: _ClassVar[int]
    COMMIT_SHA_FIELD_NUMBER: _ClassVar[int]
    PATCH_FIELD_NUMBER: _ClassVar[int]
    MANIFESTS_FIELD_NUMBER: _ClassVar[int]
    PYTHON_FIELD_NUMBER: _ClassVar[int]
    EXTRAS_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    CWD_FIELD_NUMBER: _ClassVar[int]
    ENV_FIELD_NUMBER: _ClassVar[int]
    LOG_NAME_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    REQUIRE_FIELD_NUMBER: _ClassVar[int]
    SECRETS_FIELD_NUMBER: _ClassVar[int]
    ARTIFACTS_FIELD_NUMBER: _ClassVar[int]
    TTY_FIELD_NUMBER: _ClassVar[int]
    STDIN_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    WAIT_FIELD_NUMBER: _ClassVar[int]
    ON_DISCONNECT_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_BYTES_FIELD_NUMBER: _ClassVar[int]
    MERGED_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    PATCH_BYTES_FIELD_NUMBER: _ClassVar[int]
    ISOLATION_FIELD_NUMBER: _ClassVar[int]
    NETWORK_FIELD_NUMBER: _ClassVar[int]
    argv: _containers.RepeatedScalarFieldContainer[str]
    session_id: int
    repository: str
    commit_sha: str
    patch: str
    manifests: _containers.RepeatedScalarFieldContainer[str]
    python: str
    extras: _containers.RepeatedScalarFieldContainer[str]
    groups: _containers.RepeatedScalarFieldContainer[str]
    metadata: _struct_pb2.Struct
    cwd: str
    env: _containers.ScalarMap[str, str]
    log_name: str
    limits: Limits
    require: _containers.RepeatedScalarFieldContainer[str]
    secrets: _containers.RepeatedScalarFieldContainer[str]
    artifacts: _containers.RepeatedScalarFieldContainer[str]
    tty: bool
    stdin: bool
    priority: int
    timeout: float
    wait: float
    on_disconnect: str
    output_bytes: int
    merged: bool
    digest: bool
    commit: str
    patch_bytes: bytes
    isolation: str
    network: str
    def __init__(self, argv: _Optional[_Iterable[str]] = ..., session_id: _Optional[int] = ..., repository: _Optional[str] = ..., commit_sha: _Optional[str] = ..., patch: _Optional[str] = ..., manifests: _Optional[_Iterable[str]] = ..., python: _Optional[str] = ..., extras: _Optional[_Iterable[str]] = ..., groups: _Optional[_Iterable[str]] = ..., metadata: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., cwd: _Optional[str] = ..., env: _Optional[_Mapping[str, str]] = ..., log_name: _Optional[str] = ..., limits: _Optional[_Union[Limits, _Mapping]] = ..., require: _Optional[_Iterable[str]] = ..., secrets: _Optional[_Iterable[str]] = ..., artifacts: _Optional[_Iterable[str]] = ..., tty: _Optional[bool] = ..., stdin: _Optional[bool] = ..., priority: _Optional[int] = ..., timeout: _Optional[float] = ..., wait: _Optional[float] = ..., on_disconnect: _Optional[str] = ..., output_bytes: _Optional[int] = ..., merged: _Optional[bool] = ..., digest: _Optional[bool] = ..., commit: _Optional[str] = ..., patch_bytes: _Optional[bytes] = ..., isolation: _Optional[str] = ..., network: _Optional[str] = ...) -> None: ...

class ExecResult(_message.Message):
    __slots__ = ("command_id", "session_id", "status", "ended", "exit_code", "exit_reason", "message", "created_at", "started_at", "finished_at", "queued_seconds", "wall_seconds", "cpu_seconds", "stdout", "stderr", "stdout_tail", "stderr_tail", "stdout_encoding", "stderr_encoding", "stdout_bytes", "stderr_bytes", "log_bytes", "merged", "left_out", "digest")
    COMMAND_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    EXIT_CODE_FIELD_NUMBER: _ClassVar[int]
    EXIT_REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_FIELD_NUMBER: _ClassVar[int]
    FINISHED_AT_FIELD_NUMBER: _ClassVar[int]
    QUEUED_SECONDS_FIELD_NUMBER: _ClassVar[int]
    WALL_SECONDS_FIELD_NUMBER: _ClassVar[int]
    CPU_SECONDS_FIELD_NUMBER: _ClassVar[int]
    STDOUT_FIELD_NUMBER: _ClassVar[int]
    STDERR_FIELD_NUMBER: _ClassVar[int]
    STDOUT_TAIL_FIELD_NUMBER: _ClassVar[int]
    STDERR_TAIL_FIELD_NUMBER: _ClassVar[int]
    STDOUT_ENCODING_FIELD_NUMBER: _ClassVar[int]
    STDERR_ENCODING_FIELD_NUMBER: _ClassVar[int]
    STDOUT_BYTES_FIELD_NUMBER: _ClassVar[int]
    STDERR_BYTES_FIELD_NUMBER: _ClassVar[int]
    LOG_BYTES_FIELD_NUMBER: _ClassVar[int]
    MERGED_FIELD_NUMBER: _ClassVar[int]
    LEFT_OUT_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    command_id: int
    session_id: int
    status: str
    ended: bool
    exit_code: int
    exit_reason: str
    message: str
    created_at: _timestamp_pb2.Timestamp
    started_at: _timestamp_pb2.Timestamp
    finished_at: _timestamp_pb2.Timestamp
    queued_seconds: float
    wall_seconds: float
    cpu_seconds: float
    stdout: bytes
    stderr: bytes
    stdout_tail: bytes
    stderr_tail: bytes
    stdout_encoding: str
    stderr_encoding: str
    stdout_bytes: int
    stderr_bytes: int
    log_bytes: int
    merged: _containers.RepeatedCompositeFieldContainer[OutputPiece]
    left_out: _containers.RepeatedCompositeFieldContainer[LeftOut]
    digest: Digest
    def __init__(self, command_id: _Optional[int] = ..., session_id: _Optional[int] = ..., status: _Optional[str] = ..., ended: _Optional[bool] = ..., exit_code: _Optional[int] = ..., exit_reason: _Optional[str] = ..., message: _Optional[str] = ..., created_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., started_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., finished_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., queued_seconds: _Optional[float] = ..., wall_seconds: _Optional[float] = ..., cpu_seconds: _Optional[float] = ..., stdout: _Optional[bytes] = ..., stderr: _Optional[bytes] = ..., stdout_tail: _Optional[bytes] = ..., stderr_tail: _Optional[bytes] = ..., stdout_encoding: _Optional[str] = ..., stderr_encoding: _Optional[str] = ..., stdout_bytes: _Optional[int] = ..., stderr_bytes: _Optional[int] = ..., log_bytes: _Optional[int] = ..., merged: _Optional[_Iterable[_Union[OutputPiece, _Mapping]]] = ..., left_out: _Optional[_Iterable[_Union[LeftOut, _Mapping]]] = ..., digest: _Optional[_Union[Digest, _Mapping]] = ...) -> None: ...

class OutputPiece(_message.Message):
    __slots__ = ("offset", "stream", "data", "encoding")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    ENCODING_FIELD_NUMBER: _ClassVar[int]
    offset: int
    stream: str
    data: bytes
    encoding: str
    def __init__(self, offset: _Optional[int] = ..., stream: _Optional[str] = ..., data: _Optional[bytes] = ..., encoding: _Optional[str] = ...) -> None: ...

class LeftOut(_message.Message):
    __slots__ = ("stream", "bytes", "start", "end")
    STREAM_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    stream: str
    bytes: int
    start: int
    end: int
    def __init__(self, stream: _Optional[str] = ..., bytes: _Optional[int] = ..., start: _Optional[int] = ..., end: _Optional[int] = ...) -> None: ...

class Command(_message.Message):
    __slots__ = ("id", "session_id", "sequence", "command", "cwd", "status", "exit_code", "exit_reason", "exit", "cancel_requested", "log_bytes", "created_at", "updated_at", "started_at", "finished_at", "ended", "waits_for")
    ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    CWD_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    EXIT_CODE_FIELD_NUMBER: _ClassVar[int]
    EXIT_REASON_FIELD_NUMBER: _ClassVar[int]
    EXIT_FIELD_NUMBER: _ClassVar[int]
    CANCEL_REQUESTED_FIELD_NUMBER: _ClassVar[int]
    LOG_BYTES_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    UPDATED_AT_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_FIELD_NUMBER: _ClassVar[int]
    FINISHED_AT_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    WAITS_FOR_FIELD_NUMBER: _ClassVar[int]
    id: int
    session_id: int
    sequence: int
    command: _containers.RepeatedScalarFieldContainer[str]
    cwd: str
    status: str
    exit_code: int
    exit_reason: str
    exit: Exit
    cancel_requested: bool
    log_bytes: int
    created_at: _timestamp_pb2.Timestamp
    updated_at: _timestamp_pb2.Timestamp
    started_at: _timestamp_pb2.Timestamp
    finished_at: _timestamp_pb2.Timestamp
    ended: bool
    waits_for: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, id: _Optional[int] = ..., session_id: _Optional[int] = ..., sequence: _Optional[int] = ..., command: _Optional[_Iterable[str]] = ..., cwd: _Optional[str] = ..., status: _Optional[str] = ..., exit_code: _Optional[int] = ..., exit_reason: _Optional[str] = ..., exit: _Optional[_Union[Exit, _Mapping]] = ..., cancel_requested: _Optional[bool] = ..., log_bytes: _Optional[int] = ..., created_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., updated_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., started_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., finished_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., ended: _Optional[bool] = ..., waits_for: _Optional[_Iterable[int]] = ...) -> None: ...

class FoundCommand(_message.Message):
    __slots__ = ("id", "session_id", "sequence", "command", "cwd", "status", "exit_code", "exit_reason", "exit", "cancel_requested", "log_bytes", "created_at", "updated_at", "started_at", "finished_at", "ended", "waits_for", "repository", "directory", "requested_by", "subject")
    ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    CWD_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    EXIT_CODE_FIELD_NUMBER: _ClassVar[int]
    EXIT_REASON_FIELD_NUMBER: _ClassVar[int]
    EXIT_FIELD_NUMBER: _ClassVar[int]
    CANCEL_REQUESTED_FIELD_NUMBER: _ClassVar[int]
    LOG_BYTES_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    UPDATED_AT_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_FIELD_NUMBER: _ClassVar[int]
    FINISHED_AT_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    WAITS_FOR_FIELD_NUMBER: _ClassVar[int]
    REPOSITORY_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    REQUESTED_BY_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    id: int
    session_id: int
    sequence: int
    command: _containers.RepeatedScalarFieldContainer[str]
    cwd: str
    status: str
    exit_code: int
    exit_reason: str
    exit: Exit
    cancel_requested: bool
    log_bytes: int
    created_at: _timestamp_pb2.Timestamp
    updated_at: _timestamp_pb2.Timestamp
    started_at: _timestamp_pb2.Timestamp
    finished_at: _timestamp_pb2.Timestamp
    ended: bool
    waits_for: _containers.RepeatedScalarFieldContainer[int]
    repository: str
    directory: str
    requested_by: str
    subject: str
    def __init__(self, id: _Optional[int] = ..., session_id: _Optional[int] = ..., sequence: _Optional[int] = ..., command: _Optional[_Iterable[str]] = ..., cwd: _Optional[str] = ..., status: _Optional[str] = ..., exit_code: _Optional[int] = ..., exit_reason: _Optional[str] = ..., exit: _Optional[_Union[Exit, _Mapping]] = ..., cancel_requested: _Optional[bool] = ..., log_bytes: _Optional[int] = ..., created_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., updated_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., started_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., finished_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., ended: _Optional[bool] = ..., waits_for: _Optional[_Iterable[int]] = ..., repository: _Optional[str] = ..., directory: _Optional[str] = ..., requested_by: _Optional[str] = ..., subject: _Optional[str] = ...) -> None: ...

class FoundCommandList(_message.Message):
    __slots__ = ("items", "next_after")
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    NEXT_AFTER_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[FoundCommand]
    next_after: int
    def __init__(self, items: _Optional[_Iterable[_Union[FoundCommand, _Mapping]]] = ..., next_after: _Optional[int] = ...) -> None: ...

class Exit(_message.Message):
    __slots__ = ("reason", "exit_code", "signal", "message", "limit", "wall_seconds", "cpu_seconds", "peak_memory_bytes", "stdout_bytes", "stderr_bytes", "mechanism", "limits", "evidence", "isolation")
    REASON_FIELD_NUMBER: _ClassVar[int]
    EXIT_CODE_FIELD_NUMBER: _ClassVar[int]
    SIGNAL_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    WALL_SECONDS_FIELD_NUMBER: _ClassVar[int]
    CPU_SECONDS_FIELD_NUMBER: _ClassVar[int]
    PEAK_MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    STDOUT_BYTES_FIELD_NUMBER: _ClassVar[int]
    STDERR_BYTES_FIELD_NUMBER: _ClassVar[int]
    MECHANISM_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    EVIDENCE_FIELD_NUMBER: _ClassVar[int]
    ISOLATION_FIELD_NUMBER: _ClassVar[int]
    reason: str
    exit_code: int
    signal: int
    message: str
    limit: str
    wall_seconds: float
    cpu_seconds: float
    peak_memory_bytes: int
    stdout_bytes: int
    stderr_bytes: int
    mechanism: str
    limits: _struct_pb2.Struct
    evidence: _struct_pb2.Struct
    isolation: _struct_pb2.Struct
    def __init__(self, reason: _Optional[str] = ..., exit_code: _Optional[int] = ..., signal: _Optional[int] = ..., message: _Optional[str] = ..., limit: _Optional[str] = ..., wall_seconds: _Optional[float] = ..., cpu_seconds: _Optional[float] = ..., peak_memory_bytes: _Optional[int] = ..., stdout_bytes: _Optional[int] = ..., stderr_bytes: _Optional[int] = ..., mechanism: _Optional[str] = ..., limits: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., evidence: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., isolation: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...

class CommandList(_message.Message):
    __slots__ = ("items", "next_after")
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    NEXT_AFTER_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[Command]
    next_after: int
    def __init__(self, items: _Optional[_Iterable[_Union[Command, _Mapping]]] = ..., next_after: _Optional[int] = ...) -> None: ...

class Run(_message.Message):
    __slots__ = ("session", "command")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    session: Session
    command: Command
    def __init__(self, session: _Optional[_Union[Session, _Mapping]] = ..., command: _Optional[_Union[Command, _Mapping]] = ...) -> None: ...

class ReadLogRequest(_message.Message):
    __slots__ = ("command_id", "offset", "limit")
    COMMAND_ID_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    command_id: int
    offset: int
    limit: int
    def __init__(self, command_id: _Optional[int] = ..., offset: _Optional[int] = ..., limit: _Optional[int] = ...) -> None: ...

class FollowLogRequest(_message.Message):
    __slots__ = ("command_id", "offset")
    COMMAND_ID_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    command_id: int
    offset: int
    def __init__(self, command_id: _Optional[int] = ..., offset: _Optional[int] = ...) -> None: ...

class LogPiece(_message.Message):
    __slots__ = ("offset", "stream", "data", "timestamp", "command_id")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    COMMAND_ID_FIELD_NUMBER: _ClassVar[int]
    offset: int
    stream: str
    data: bytes
    timestamp: _timestamp_pb2.Timestamp
    command_id: int
    def __init__(self, offset: _Optional[int] = ..., stream: _Optional[str] = ..., data: _Optional[bytes] = ..., timestamp: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., command_id: _Optional[int] = ...) -> None: ...

class LogPage(_message.Message):
    __slots__ = ("pieces", "next_offset", "ended")
    PIECES_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    pieces: _containers.RepeatedCompositeFieldContainer[LogPiece]
    next_offset: int
    ended: bool
    def __init__(self, pieces: _Optional[_Iterable[_Union[LogPiece, _Mapping]]] = ..., next_offset: _Optional[int] = ..., ended: _Optional[bool] = ...) -> None: ...

class ReadLogTextRequest(_message.Message):
    __slots__ = ("command_id", "offset", "tail", "grep", "ignore_case", "context", "max_matches", "limit", "encoding")
    COMMAND_ID_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    TAIL_FIELD_NUMBER: _ClassVar[int]
    GREP_FIELD_NUMBER: _ClassVar[int]
    IGNORE_CASE_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    MAX_MATCHES_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    ENCODING_FIELD_NUMBER: _ClassVar[int]
    command_id: int
    offset: int
    tail: int
    grep: str
    ignore_case: bool
    context: int
    max_matches: int
    limit: int
    encoding: str
    def __init__(self, command_id: _Optional[int] = ..., offset: _Optional[int] = ..., tail: _Optional[int] = ..., grep: _Optional[str] = ..., ignore_case: _Optional[bool] = ..., context: _Optional[int] = ..., max_matches: _Optional[int] = ..., limit: _Optional[int] = ..., encoding: _Optional[str] = ...) -> None: ...

class LogText(_message.Message):
    __slots__ = ("command_id", "offset", "next_offset", "log_bytes", "ended", "text", "exact", "skipped_bytes", "matches")
    COMMAND_ID_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LOG_BYTES_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    EXACT_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_BYTES_FIELD_NUMBER: _ClassVar[int]
    MATCHES_FIELD_NUMBER: _ClassVar[int]
    command_id: int
    offset: int
    next_offset: int
    log_bytes: int
    ended: bool
    text: str
    exact: bool
    skipped_bytes: int
    matches: _containers.RepeatedCompositeFieldContainer[LogMatch]
    def __init__(self, command_id: _Optional[int] = ..., offset: _Optional[int] = ..., next_offset: _Optional[int] = ..., log_bytes: _Optional[int] = ..., ended: _Optional[bool] = ..., text: _Optional[str] = ..., exact: _Optional[bool] = ..., skipped_bytes: _Optional[int] = ..., matches: _Optional[_Iterable[_Union[LogMatch, _Mapping]]] = ...) -> None: ...

class LogMatch(_message.Message):
    __slots__ = ("offset", "end", "text", "before", "after")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    offset: int
    end: int
    text: str
    before: _containers.RepeatedScalarFieldContainer[str]
    after: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, offset: _Optional[int] = ..., end: _Optional[int] = ..., text: _Optional[str] = ..., before: _Optional[_Iterable[str]] = ..., after: _Optional[_Iterable[str]] = ...) -> None: ...

class DigestLogRequest(_message.Message):
    __slots__ = ("command_id", "max_tokens")
    COMMAND_ID_FIELD_NUMBER: _ClassVar[int]
    MAX_TOKENS_FIELD_NUMBER: _ClassVar[int]
    command_id: int
    max_tokens: int
    def __init__(self, command_id: _Optional[int] = ..., max_tokens: _Optional[int] = ...) -> None: ...

class Digest(_message.Message):
    __slots__ = ("start", "end", "lines", "text", "first_error", "failing", "failing_count", "tracebacks", "repeats", "head", "tail", "omitted")
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    LINES_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    FIRST_ERROR_FIELD_NUMBER: _ClassVar[int]
    FAILING_FIELD_NUMBER: _ClassVar[int]
    FAILING_COUNT_FIELD_NUMBER: _ClassVar[int]
    TRACEBACKS_FIELD_NUMBER: _ClassVar[int]
    REPEATS_FIELD_NUMBER: _ClassVar[int]
    HEAD_FIELD_NUMBER: _ClassVar[int]
    TAIL_FIELD_NUMBER: _ClassVar[int]
    OMITTED_FIELD_NUMBER: _ClassVar[int]
    start: int
    end: int
    lines: int
    text: str
    first_error: Excerpt
    failing: _containers.RepeatedCompositeFieldContainer[FailingTest]
    failing_count: int
    tracebacks: _containers.RepeatedCompositeFieldContainer[TracebackHead]
    repeats: _containers.RepeatedCompositeFieldContainer[FoldedLine]
    head: _containers.RepeatedCompositeFieldContainer[FoldedLine]
    tail: _containers.RepeatedCompositeFieldContainer[FoldedLine]
    omitted: Omitted
    def __init__(self, start: _Optional[int] = ..., end: _Optional[int] = ..., lines: _Optional[int] = ..., text: _Optional[str] = ..., first_error: _Optional[_Union[Excerpt, _Mapping]] = ..., failing: _Optional[_Iterable[_Union[FailingTest, _Mapping]]] = ..., failing_count: _Optional[int] = ..., tracebacks: _Optional[_Iterable[_Union[TracebackHead, _Mapping]]] = ..., repeats: _Optional[_Iterable[_Union[FoldedLine, _Mapping]]] = ..., head: _Optional[_Iterable[_Union[FoldedLine, _Mapping]]] = ..., tail: _Optional[_Iterable[_Union[FoldedLine, _Mapping]]] = ..., omitted: _Optional[_Union[Omitted, _Mapping]] = ...) -> None: ...

class Excerpt(_message.Message):
    __slots__ = ("offset", "end", "text")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    offset: int
    end: int
    text: str
    def __init__(self, offset: _Optional[int] = ..., end: _Optional[int] = ..., text: _Optional[str] = ...) -> None: ...

class FoldedLine(_message.Message):
    __slots__ = ("offset", "end", "text", "count", "last")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    offset: int
    end: int
    text: str
    count: int
    last: str
    def __init__(self, offset: _Optional[int] = ..., end: _Optional[int] = ..., text: _Optional[str] = ..., count: _Optional[int] = ..., last: _Optional[str] = ...) -> None: ...

class FailingTest(_message.Message):
    __slots__ = ("id", "framework", "offset", "end")
    ID_FIELD_NUMBER: _ClassVar[int]
    FRAMEWORK_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    id: str
    framework: str
    offset: int
    end: int
    def __init__(self, id: _Optional[str] = ..., framework: _Optional[str] = ..., offset: _Optional[int] = ..., end: _Optional[int] = ...) -> None: ...

class TracebackHead(_message.Message):
    __slots__ = ("offset", "end", "text", "where")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    WHERE_FIELD_NUMBER: _ClassVar[int]
    offset: int
    end: int
    text: str
    where: str
    def __init__(self, offset: _Optional[int] = ..., end: _Optional[int] = ..., text: _Optional[str] = ..., where: _Optional[str] = ...) -> None: ...

class Omitted(_message.Message):
    __slots__ = ("lines", "failing", "tracebacks", "repeats", "skipped_bytes")
    LINES_FIELD_NUMBER: _ClassVar[int]
    FAILING_FIELD_NUMBER: _ClassVar[int]
    TRACEBACKS_FIELD_NUMBER: _ClassVar[int]
    REPEATS_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_BYTES_FIELD_NUMBER: _ClassVar[int]
    lines: int
    failing: int
    tracebacks: int
    repeats: int
    skipped_bytes: int
    def __init__(self, lines: _Optional[int] = ..., failing: _Optional[int] = ..., tracebacks: _Optional[int] = ..., repeats: _Optional[int] = ..., skipped_bytes: _Optional[int] = ...) -> None: ...

class ListArtifactsRequest(_message.Message):
    __slots__ = ("session_id", "after", "limit", "order")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    ORDER_FIELD_NUMBER: _ClassVar[int]
    session_id: int
    after: int
    limit: int
    order: str
    def __init__(self, session_id: _Optional[int] = ..., after: _Optional[int] = ..., limit: _Optional[int] = ..., order: _Optional[str] = ...) -> None: ...

class GetArtifactRequest(_message.Message):
    __slots__ = ("session_id", "artifact_id")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    ARTIFACT_ID_FIELD_NUMBER: _ClassVar[int]
    session_id: int
    artifact_id: int
    def __init__(self, session_id: _Optional[int] = ..., artifact_id: _Optional[int] = ...) -> None: ...

class FetchArtifactRequest(_message.Message):
    __slots__ = ("session_id", "artifact_id", "offset")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    ARTIFACT_ID_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    session_id: int
    artifact_id: int
    offset: int
    def __init__(self, session_id: _Optional[int] = ..., artifact_id: _Optional[int] = ..., offset: _Optional[int] = ...) -> None: ...

class Artifact(_message.Message):
    __slots__ = ("id", "session_id", "command_id", "kind", "name", "size", "sha256", "content_type", "created_at")
    ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    COMMAND_ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    CONTENT_TYPE_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    id: int
    session_id: int
    command_id: int
    kind: str
    name: str
    size: int
    sha256: str
    content_type: str
    created_at: _timestamp_pb2.Timestamp
    def __init__(self, id: _Optional[int] = ..., session_id: _Optional[int] = ..., command_id: _Optional[int] = ..., kind: _Optional[str] = ..., name: _Optional[str] = ..., size: _Optional[int] = ..., sha256: _Optional[str] = ..., content_type: _Optional[str] = ..., created_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class ArtifactList(_message.Message):
    __slots__ = ("items", "next_after")
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    NEXT_AFTER_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[Artifact]
    next_after: int
    def __init__(self, items: _Optional[_Iterable[_Union[Artifact, _Mapping]]] = ..., next_after: _Optional[int] = ...) -> None: ...

class ReadEventsRequest(_message.Message):
    __slots__ = ("after", "limit", "session_id", "command_id", "kind")
    AFTER_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    COMMAND_ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    after: int
    limit: int
    session_id: int
    command_id: int
    kind: str
    def __init__(self, after: _Optional[int] = ..., limit: _Optional[int] = ..., session_id: _Optional[int] = ..., command_id: _Optional[int] = ..., kind: _Optional[str] = ...) -> None: ...

class FollowEventsRequest(_message.Message):
    __slots__ = ("after", "limit", "session_id", "command_id", "kind")
    AFTER_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    COMMAND_ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    after: int
    limit: int
    session_id: int
    command_id: int
    kind: str
    def __init__(self, after: _Optional[int] = ..., limit: _Optional[int] = ..., session_id: _Optional[int] = ..., command_id: _Optional[int] = ..., kind: _Optional[str] = ...) -> None: ...

class Event(_message.Message):
    __slots__ = ("seq", "kind", "session_id", "command_id", "subject", "data", "created_at")
    SEQ_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    COMMAND_ID_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    seq: int
    kind: str
    session_id: int
    command_id: int
    subject: str
    data: _struct_pb2.Struct
    created_at: _timestamp_pb2.Timestamp
    def __init__(self, seq: _Optional[int] = ..., kind: _Optional[str] = ..., session_id: _Optional[int] = ..., command_id: _Optional[int] = ..., subject: _Optional[str] = ..., data: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., created_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class EventList(_message.Message):
    __slots__ = ("items", "next_after")
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    NEXT_AFTER_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[Event]
    next_after: int
    def __init__(self, items: _Optional[_Iterable[_Union[Event, _Mapping]]] = ..., next_after: _Optional[int] = ...) -> None: ...

class ListLeasesRequest(_message.Message):
    __slots__ = ("after", "limit", "order")
    AFTER_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    ORDER_FIELD_NUMBER: _ClassVar[int]
    after: int
    limit: int
    order: str
    def __init__(self, after: _Optional[int] = ..., limit: _Optional[int] = ..., order: _Optional[str] = ...) -> None: ...

class Lease(_message.Message):
    __slots__ = ("id", "repository_id", "path", "status", "commit_sha", "owner", "expires_at")
    ID_FIELD_NUMBER: _ClassVar[int]
    REPOSITORY_ID_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    COMMIT_SHA_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_FIELD_NUMBER: _ClassVar[int]
    id: int
    repository_id: int
    path: str
    status: str
    commit_sha: str
    owner: str
    expires_at: _timestamp_pb2.Timestamp
    def __init__(self, id: _Optional[int] = ..., repository_id: _Optional[int] = ..., path: _Optional[str] = ..., status: _Optional[str] = ..., commit_sha: _Optional[str] = ..., owner: _Optional[str] = ..., expires_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class LeaseList(_message.Message):
    __slots__ = ("items", "next_after")
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    NEXT_AFTER_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[Lease]
    next_after: int
    def __init__(self, items: _Optional[_Iterable[_Union[Lease, _Mapping]]] = ..., next_after: _Optional[int] = ...) -> None: ...

class ListWorkersRequest(_message.Message):
    __slots__ = ("after", "limit")
    AFTER_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    after: int
    limit: int
    def __init__(self, after: _Optional[int] = ..., limit: _Optional[int] = ...) -> None: ...

class RestartWorkerRequest(_message.Message):
    __slots__ = ("worker", "instance")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    worker: str
    instance: int
    def __init__(self, worker: _Optional[str] = ..., instance: _Optional[int] = ...) -> None: ...

class ResetWorkerRequest(_message.Message):
    __slots__ = ("worker", "instance")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    worker: str
    instance: int
    def __init__(self, worker: _Optional[str] = ..., instance: _Optional[int] = ...) -> None: ...

class StopWorkerRequest(_message.Message):
    __slots__ = ("worker", "instance")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    worker: str
    instance: int
    def __init__(self, worker: _Optional[str] = ..., instance: _Optional[int] = ...) -> None: ...

class WorkerList(_message.Message):
    __slots__ = ("items", "next_after")
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    NEXT_AFTER_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[_struct_pb2.Struct]
    next_after: int
    def __init__(self, items: _Optional[_Iterable[_Union[_struct_pb2.Struct, _Mapping]]] = ..., next_after: _Optional[int] = ...) -> None: ...

class CreateTokenRequest(_message.Message):
    __slots__ = ("name", "scopes", "expires_in", "quotas")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SCOPES_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_IN_FIELD_NUMBER: _ClassVar[int]
    QUOTAS_FIELD_NUMBER: _ClassVar[int]
    name: str
    scopes: _containers.RepeatedScalarFieldContainer[str]
    expires_in: float
    quotas: _struct_pb2.Struct
    def __init__(self, name: _Optional[str] = ..., scopes: _Optional[_Iterable[str]] = ..., expires_in: _Optional[float] = ..., quotas: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...

class ListTokensRequest(_message.Message):
    __slots__ = ("after", "limit", "order")
    AFTER_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    ORDER_FIELD_NUMBER: _ClassVar[int]
    after: int
    limit: int
    order: str
    def __init__(self, after: _Optional[int] = ..., limit: _Optional[int] = ..., order: _Optional[str] = ...) -> None: ...

class RevokeTokenRequest(_message.Message):
    __slots__ = ("token_id",)
    TOKEN_ID_FIELD_NUMBER: _ClassVar[int]
    token_id: int
    def __init__(self, token_id: _Optional[int] = ...) -> None: ...

class Token(_message.Message):
    __slots__ = ("id", "name", "scopes", "expires_at", "revoked_at", "last_used_at", "created_at", "token", "quotas")
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    SCOPES_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_FIELD_NUMBER: _ClassVar[int]
    REVOKED_AT_FIELD_NUMBER: _ClassVar[int]
    LAST_USED_AT_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    QUOTAS_FIELD_NUMBER: _ClassVar[int]
    id: int
    name: str
    scopes: _containers.RepeatedScalarFieldContainer[str]
    expires_at: _timestamp_pb2.Timestamp
    revoked_at: _timestamp_pb2.Timestamp
    last_used_at: _timestamp_pb2.Timestamp
    created_at: _timestamp_pb2.Timestamp
    token: str
    quotas: _struct_pb2.Struct
    def __init__(self, id: _Optional[int] = ..., name: _Optional[str] = ..., scopes: _Optional[_Iterable[str]] = ..., expires_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., revoked_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., last_used_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., created_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., token: _Optional[str] = ..., quotas: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...

class TokenList(_message.Message):
    __slots__ = ("items", "next_after")
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    NEXT_AFTER_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[Token]
    next_after: int
    def __init__(self, items: _Optional[_Iterable[_Union[Token, _Mapping]]] = ..., next_after: _Optional[int] = ...) -> None: ...

class WhoAmIRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Identity(_message.Message):
    __slots__ = ("token_id", "name", "scopes")
    TOKEN_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    SCOPES_FIELD_NUMBER: _ClassVar[int]
    token_id: int
    name: str
    scopes: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, token_id: _Optional[int] = ..., name: _Optional[str] = ..., scopes: _Optional[_Iterable[str]] = ...) -> None: ...

class HealthRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class HealthReport(_message.Message):
    __slots__ = ("ok", "message", "checks")
    class ChecksEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    OK_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    CHECKS_FIELD_NUMBER: _ClassVar[int]
    ok: bool
    message: str
    checks: _containers.ScalarMap[str, str]
    def __init__(self, ok: _Optional[bool] = ..., message: _Optional[str] = ..., checks: _Optional[_Mapping[str, str]] = ...) -> None: ...
