from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class StatusResponse(_message.Message):
    __slots__ = ("ok", "message", "error")
    OK_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    ok: bool
    message: str
    error: str
    def __init__(self, ok: _Optional[bool] = ..., message: _Optional[str] = ..., error: _Optional[str] = ...) -> None: ...

class RepoEntry(_message.Message):
    __slots__ = ("name", "local_path", "remote_url", "branch", "env_template", "gitignore_profile", "status", "role", "env_stage", "write_authority")
    NAME_FIELD_NUMBER: _ClassVar[int]
    LOCAL_PATH_FIELD_NUMBER: _ClassVar[int]
    REMOTE_URL_FIELD_NUMBER: _ClassVar[int]
    BRANCH_FIELD_NUMBER: _ClassVar[int]
    ENV_TEMPLATE_FIELD_NUMBER: _ClassVar[int]
    GITIGNORE_PROFILE_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    ENV_STAGE_FIELD_NUMBER: _ClassVar[int]
    WRITE_AUTHORITY_FIELD_NUMBER: _ClassVar[int]
    name: str
    local_path: str
    remote_url: str
    branch: str
    env_template: str
    gitignore_profile: str
    status: str
    role: str
    env_stage: str
    write_authority: str
    def __init__(self, name: _Optional[str] = ..., local_path: _Optional[str] = ..., remote_url: _Optional[str] = ..., branch: _Optional[str] = ..., env_template: _Optional[str] = ..., gitignore_profile: _Optional[str] = ..., status: _Optional[str] = ..., role: _Optional[str] = ..., env_stage: _Optional[str] = ..., write_authority: _Optional[str] = ...) -> None: ...

class ListReposRequest(_message.Message):
    __slots__ = ("status_filter",)
    STATUS_FILTER_FIELD_NUMBER: _ClassVar[int]
    status_filter: str
    def __init__(self, status_filter: _Optional[str] = ...) -> None: ...

class ListReposResponse(_message.Message):
    __slots__ = ("repos",)
    REPOS_FIELD_NUMBER: _ClassVar[int]
    repos: _containers.RepeatedCompositeFieldContainer[RepoEntry]
    def __init__(self, repos: _Optional[_Iterable[_Union[RepoEntry, _Mapping]]] = ...) -> None: ...

class GetRepoRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class AddRepoRequest(_message.Message):
    __slots__ = ("repo",)
    REPO_FIELD_NUMBER: _ClassVar[int]
    repo: RepoEntry
    def __init__(self, repo: _Optional[_Union[RepoEntry, _Mapping]] = ...) -> None: ...

class UpdateRepoRequest(_message.Message):
    __slots__ = ("name", "fields")
    class FieldsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    FIELDS_FIELD_NUMBER: _ClassVar[int]
    name: str
    fields: _containers.ScalarMap[str, str]
    def __init__(self, name: _Optional[str] = ..., fields: _Optional[_Mapping[str, str]] = ...) -> None: ...

class WriteRequest(_message.Message):
    __slots__ = ("repo_name", "relative_path", "content", "merge")
    REPO_NAME_FIELD_NUMBER: _ClassVar[int]
    RELATIVE_PATH_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    MERGE_FIELD_NUMBER: _ClassVar[int]
    repo_name: str
    relative_path: str
    content: str
    merge: bool
    def __init__(self, repo_name: _Optional[str] = ..., relative_path: _Optional[str] = ..., content: _Optional[str] = ..., merge: _Optional[bool] = ...) -> None: ...

class MergeRequest(_message.Message):
    __slots__ = ("repo_name", "lines")
    REPO_NAME_FIELD_NUMBER: _ClassVar[int]
    LINES_FIELD_NUMBER: _ClassVar[int]
    repo_name: str
    lines: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, repo_name: _Optional[str] = ..., lines: _Optional[_Iterable[str]] = ...) -> None: ...

class SetEnvKeyRequest(_message.Message):
    __slots__ = ("repo_name", "key", "value")
    REPO_NAME_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    repo_name: str
    key: str
    value: str
    def __init__(self, repo_name: _Optional[str] = ..., key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...

class WriteResponse(_message.Message):
    __slots__ = ("ok", "written_path", "error")
    OK_FIELD_NUMBER: _ClassVar[int]
    WRITTEN_PATH_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    ok: bool
    written_path: str
    error: str
    def __init__(self, ok: _Optional[bool] = ..., written_path: _Optional[str] = ..., error: _Optional[str] = ...) -> None: ...

class IssueEventRequest(_message.Message):
    __slots__ = ("task_id", "repo_name", "event_type", "field", "payload", "timestamp", "cursor", "paths")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    REPO_NAME_FIELD_NUMBER: _ClassVar[int]
    EVENT_TYPE_FIELD_NUMBER: _ClassVar[int]
    FIELD_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    PATHS_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    repo_name: str
    event_type: str
    field: str
    payload: str
    timestamp: str
    cursor: str
    paths: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, task_id: _Optional[str] = ..., repo_name: _Optional[str] = ..., event_type: _Optional[str] = ..., field: _Optional[str] = ..., payload: _Optional[str] = ..., timestamp: _Optional[str] = ..., cursor: _Optional[str] = ..., paths: _Optional[_Iterable[str]] = ...) -> None: ...

class StreamRequest(_message.Message):
    __slots__ = ("repo_filter", "follow", "cursor", "task_filter", "event_type_filter", "from_now")
    REPO_FILTER_FIELD_NUMBER: _ClassVar[int]
    FOLLOW_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    TASK_FILTER_FIELD_NUMBER: _ClassVar[int]
    EVENT_TYPE_FILTER_FIELD_NUMBER: _ClassVar[int]
    FROM_NOW_FIELD_NUMBER: _ClassVar[int]
    repo_filter: str
    follow: bool
    cursor: str
    task_filter: str
    event_type_filter: str
    from_now: bool
    def __init__(self, repo_filter: _Optional[str] = ..., follow: _Optional[bool] = ..., cursor: _Optional[str] = ..., task_filter: _Optional[str] = ..., event_type_filter: _Optional[str] = ..., from_now: _Optional[bool] = ...) -> None: ...

class SyncRepoRequest(_message.Message):
    __slots__ = ("repo_name", "force")
    REPO_NAME_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    repo_name: str
    force: bool
    def __init__(self, repo_name: _Optional[str] = ..., force: _Optional[bool] = ...) -> None: ...

class SyncRepoResponse(_message.Message):
    __slots__ = ("ok", "files_synced", "error")
    OK_FIELD_NUMBER: _ClassVar[int]
    FILES_SYNCED_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    ok: bool
    files_synced: int
    error: str
    def __init__(self, ok: _Optional[bool] = ..., files_synced: _Optional[int] = ..., error: _Optional[str] = ...) -> None: ...

class FsWriteRequest(_message.Message):
    __slots__ = ("target_path", "content")
    TARGET_PATH_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    target_path: str
    content: str
    def __init__(self, target_path: _Optional[str] = ..., content: _Optional[str] = ...) -> None: ...

class GetVersionRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetVersionResponse(_message.Message):
    __slots__ = ("version", "date", "model_3b", "model_8b")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    DATE_FIELD_NUMBER: _ClassVar[int]
    MODEL_3B_FIELD_NUMBER: _ClassVar[int]
    MODEL_8B_FIELD_NUMBER: _ClassVar[int]
    version: str
    date: str
    model_3b: str
    model_8b: str
    def __init__(self, version: _Optional[str] = ..., date: _Optional[str] = ..., model_3b: _Optional[str] = ..., model_8b: _Optional[str] = ...) -> None: ...

class GetChangelogRequest(_message.Message):
    __slots__ = ("entries",)
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    entries: int
    def __init__(self, entries: _Optional[int] = ...) -> None: ...

class GetChangelogResponse(_message.Message):
    __slots__ = ("latest_version", "latest_date", "summary", "full_text")
    LATEST_VERSION_FIELD_NUMBER: _ClassVar[int]
    LATEST_DATE_FIELD_NUMBER: _ClassVar[int]
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    FULL_TEXT_FIELD_NUMBER: _ClassVar[int]
    latest_version: str
    latest_date: str
    summary: str
    full_text: str
    def __init__(self, latest_version: _Optional[str] = ..., latest_date: _Optional[str] = ..., summary: _Optional[str] = ..., full_text: _Optional[str] = ...) -> None: ...
