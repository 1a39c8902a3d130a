"""The tables, as numbered steps up and down; names in braces are types that differ between drivers.

repositories --< worktrees
      |             |
      +--< sessions >+      tokens --< sessions
              |
              +--< commands --< artifacts
              +--< debuggers
              +--< session_claims
events, keyed_requests, schedules, outbox, cursors, folder and schema_version refer to no other table: an event outlives
its subject.

A command has the repository and the token of its session, which never change, so that an index finds the commands of a
repository or of a token.

A command *waits* while it has no owner and no end, and is *active* while it has an owner and no end; a partial index
serves each, so that claiming does not slow down with the rows that have ended. Every other question, too, has an index
that ends it after a page of rows, however many there are: ``tests/store/test_size.py`` counts the steps of each. The
foreign keys have one as well, because removing a row looks for those that refer to it.

Ids of {id} tables are one above the newest row, which is cheaper than a counter page in every commit: the newest row
must not be deleted. In {removable_id} tables every row may be deleted; ids are not reused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from debug_server.store import plan_migration
from debug_server.store.connection import Transaction

Step = str | Callable[[Transaction], None]  # a statement, or a function where SQL is not enough


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    """One step of the schema."""

    version: int
    up: tuple[Step, ...]
    down: tuple[Step, ...]


_REPOSITORIES = """
CREATE TABLE repositories (
    id {id},
    name TEXT NOT NULL UNIQUE,
    remote_url TEXT NOT NULL,
    default_branch TEXT NOT NULL,
    description TEXT,
    settings TEXT NOT NULL,
    created_at {double} NOT NULL,
    updated_at {double} NOT NULL
)"""

_WORKTREES = """
CREATE TABLE worktrees (
    id {removable_id},
    repository_id BIGINT NOT NULL REFERENCES repositories (id),
    path TEXT NOT NULL UNIQUE,
    status TEXT NOT NULL,
    commit_sha TEXT,
    environment_hash TEXT,
    owner TEXT,
    lease_token TEXT,
    generation BIGINT NOT NULL DEFAULT 0,
    lease_expires_at {double},
    backend TEXT NOT NULL,
    metadata TEXT NOT NULL DEFAULT '{{}}',
    created_at {double} NOT NULL,
    updated_at {double} NOT NULL
)"""

_TOKENS = """
CREATE TABLE tokens (
    id {id},
    name TEXT NOT NULL,
    secret_hash TEXT NOT NULL UNIQUE,
    scopes TEXT NOT NULL,
    expires_at {double},
    revoked_at {double},
    last_used_at {double},
    quotas TEXT NOT NULL,
    created_at {double} NOT NULL
)"""

_SESSIONS = """
CREATE TABLE sessions (
    id {id},
    repository_id BIGINT REFERENCES repositories (id),
    worktree_id BIGINT REFERENCES worktrees (id) ON DELETE SET NULL,
    status TEXT NOT NULL,
    commit_sha TEXT,
    patch_hash TEXT,
    requested_by TEXT,
    owner_token_id BIGINT REFERENCES tokens (id),
    expires_at {double},
    metadata TEXT NOT NULL,
    created_at {double} NOT NULL,
    updated_at {double} NOT NULL
)"""

_COMMANDS = """
CREATE TABLE commands (
    id {id},
    session_id BIGINT NOT NULL REFERENCES sessions (id),
    sequence BIGINT NOT NULL,
    argv TEXT NOT NULL,
    cwd TEXT,
    env_names TEXT NOT NULL,
    sealed_env {blob},
    log_name TEXT NOT NULL,
    limits TEXT NOT NULL,
    status TEXT NOT NULL,
    attempt BIGINT NOT NULL,
    owner TEXT,
    priority BIGINT NOT NULL,
    queue_key TEXT NOT NULL,
    key_limit BIGINT NOT NULL,
    tty INTEGER NOT NULL,
    cancel_requests BIGINT NOT NULL DEFAULT 0,
    idempotency_key TEXT,
    metadata TEXT NOT NULL,
    handle TEXT,
    log_path TEXT,
    exit_code BIGINT,
    exit_reason TEXT,
    exit_record TEXT,
    created_at {double} NOT NULL,
    updated_at {double} NOT NULL,
    started_at {double},
    finished_at {double},
    UNIQUE (session_id, sequence),
    CHECK ((finished_at IS NULL) = (status IN ('pending', 'running')))
)"""

_ARTIFACTS = """
CREATE TABLE artifacts (
    id {id},
    session_id BIGINT NOT NULL REFERENCES sessions (id),
    command_id BIGINT REFERENCES commands (id),
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    path TEXT NOT NULL,
    size BIGINT,
    sha256 TEXT,
    content_type TEXT,
    metadata TEXT NOT NULL,
    created_at {double} NOT NULL
)"""

_EVENTS = """
CREATE TABLE events (
    seq {key},
    kind TEXT NOT NULL,
    session_id BIGINT,
    command_id BIGINT,
    subject TEXT,
    data TEXT NOT NULL,
    created_at {double} NOT NULL
)"""

_DEBUGGERS = """
CREATE TABLE debuggers (
    id {id},
    session_id BIGINT NOT NULL REFERENCES sessions (id),
    kind TEXT NOT NULL,
    host TEXT NOT NULL,
    port BIGINT NOT NULL,
    status TEXT NOT NULL,
    data TEXT NOT NULL,
    created_at {double} NOT NULL,
    updated_at {double} NOT NULL
)"""

_INDEXES = (
    "CREATE INDEX worktrees_repository ON worktrees (repository_id, id)",
    """CREATE INDEX commands_waiting ON commands (priority DESC, id, queue_key, key_limit)
       WHERE owner IS NULL AND finished_at IS NULL""",
    "CREATE INDEX commands_active ON commands (queue_key) WHERE owner IS NOT NULL AND finished_at IS NULL",
    """CREATE UNIQUE INDEX commands_idempotency ON commands (session_id, idempotency_key)
       WHERE idempotency_key IS NOT NULL""",
    "CREATE INDEX artifacts_session ON artifacts (session_id, id)",
    "CREATE INDEX events_session ON events (session_id, seq) WHERE session_id IS NOT NULL",
    "CREATE INDEX debuggers_session ON debuggers (session_id, id)",
)

_KEYED_REQUESTS = """
CREATE TABLE keyed_requests (
    caller TEXT NOT NULL,
    request_key TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    owner TEXT NOT NULL,
    reply {blob},
    created_at {double} NOT NULL,
    PRIMARY KEY (caller, request_key)
)"""

_SCHEDULES = """
CREATE TABLE schedules (
    name TEXT PRIMARY KEY,
    rule TEXT NOT NULL,
    next_at {double} NOT NULL,
    owed_at {double},
    updated_at {double} NOT NULL
)"""

_SESSION_CLAIMS = """
CREATE TABLE session_claims (
    session_id BIGINT NOT NULL REFERENCES sessions (id),
    resource TEXT NOT NULL,
    waits INTEGER NOT NULL,
    PRIMARY KEY (session_id, resource)
)"""

_CURSORS = """
CREATE TABLE cursors (
    name TEXT PRIMARY KEY,
    seq BIGINT NOT NULL
)"""

_OUTBOX = """
CREATE TABLE outbox (
    id {removable_id},
    topic TEXT NOT NULL,
    lane BIGINT NOT NULL,
    data TEXT NOT NULL,
    attempts BIGINT NOT NULL DEFAULT 0,
    due_at {double} NOT NULL,
    created_at {double} NOT NULL
)"""

MIGRATIONS = (
    Migration(
        version=1,
        up=(
            _REPOSITORIES,
            _WORKTREES,
            _TOKENS,
            _SESSIONS,
            _COMMANDS,
            _ARTIFACTS,
            _EVENTS,
            _DEBUGGERS,
            *_INDEXES,
        ),
        down=tuple(
            f"DROP TABLE {name}"
            for name in (
                "debuggers",
                "events",
                "artifacts",
                "commands",
                "sessions",
                "tokens",
                "worktrees",
                "repositories",
            )
        ),
    ),
    Migration(
        version=2,
        up=(
            _KEYED_REQUESTS,
            "CREATE INDEX keyed_requests_age ON keyed_requests (created_at)",
            "CREATE INDEX sessions_owner ON sessions (owner_token_id, id) WHERE owner_token_id IS NOT NULL",
        ),
        down=("DROP INDEX sessions_owner", "DROP TABLE keyed_requests"),
    ),
    Migration(
        version=3,
        up=(
            _SCHEDULES,
            "ALTER TABLE commands ADD COLUMN order_key TEXT",
            "ALTER TABLE commands ADD COLUMN subject TEXT",
            "ALTER TABLE commands ADD COLUMN sealed_stdin {blob}",
            "CREATE INDEX commands_order ON commands (order_key, id) WHERE order_key IS NOT NULL",
            "CREATE INDEX events_subject ON events (subject, seq) WHERE subject IS NOT NULL",
        ),
        down=(
            "DROP INDEX events_subject",
            "DROP INDEX commands_order",
            "ALTER TABLE commands DROP COLUMN sealed_stdin",
            "ALTER TABLE commands DROP COLUMN subject",
            "ALTER TABLE commands DROP COLUMN order_key",
            "DROP TABLE schedules",
        ),
    ),
    Migration(
        version=4,
        up=(
            "ALTER TABLE sessions ADD COLUMN sealed_secrets {blob}",
            "CREATE INDEX commands_subject ON commands (subject, id) WHERE subject IS NOT NULL",
            "CREATE INDEX commands_subjects ON commands (id) WHERE subject IS NOT NULL",
            _SESSION_CLAIMS,
            _CURSORS,
            _OUTBOX,
            "CREATE INDEX outbox_lane ON outbox (topic, lane, id)",
        ),
        down=(
            "DROP TABLE outbox",
            "DROP TABLE cursors",
            "DROP TABLE session_claims",
            "DROP INDEX commands_subjects",
            "DROP INDEX commands_subject",
            "ALTER TABLE sessions DROP COLUMN sealed_secrets",
        ),
    ),
    Migration(
        version=5,
        up=(
            "UPDATE schedules SET next_at = owed_at WHERE owed_at IS NOT NULL",
            "ALTER TABLE schedules DROP COLUMN owed_at",
        ),
        down=("ALTER TABLE schedules ADD COLUMN owed_at {double}",),
    ),
    Migration(
        version=6,
        up=("CREATE TABLE folder (id INTEGER PRIMARY KEY, mark TEXT NOT NULL)",),
        down=("DROP TABLE folder",),
    ),
    Migration(
        version=7,
        up=("ALTER TABLE worktrees ADD COLUMN process TEXT",),
        down=("ALTER TABLE worktrees DROP COLUMN process",),
    ),
    Migration(version=8, up=plan_migration.UP, down=plan_migration.DOWN),
    Migration(
        version=9,
        up=(
            "ALTER TABLE repositories ADD COLUMN removed_at {double}",
            "ALTER TABLE commands ADD COLUMN repository_id BIGINT",
            "ALTER TABLE commands ADD COLUMN owner_token_id BIGINT",
            """UPDATE commands SET
               repository_id = (SELECT repository_id FROM sessions WHERE sessions.id = commands.session_id),
               owner_token_id = (SELECT owner_token_id FROM sessions WHERE sessions.id = commands.session_id)
               WHERE session_id IN
               (SELECT id FROM sessions WHERE repository_id IS NOT NULL OR owner_token_id IS NOT NULL)""",
            "CREATE INDEX commands_ended ON commands (status, id) WHERE finished_at IS NOT NULL",
            """CREATE INDEX commands_ended_of_repository ON commands (repository_id, status, id)
               WHERE finished_at IS NOT NULL AND repository_id IS NOT NULL""",
            """CREATE INDEX commands_ended_of_owner ON commands (owner_token_id, status, id)
               WHERE finished_at IS NOT NULL AND owner_token_id IS NOT NULL""",
        ),
        down=(
            "DROP INDEX commands_ended_of_owner",
            "DROP INDEX commands_ended_of_repository",
            "DROP INDEX commands_ended",
            "ALTER TABLE commands DROP COLUMN owner_token_id",
            "ALTER TABLE commands DROP COLUMN repository_id",
            "ALTER TABLE repositories DROP COLUMN removed_at",
        ),
    ),
    Migration(
        version=10,
        up=(
            "DROP INDEX sessions_owner",
            "CREATE INDEX sessions_status ON sessions (status, id)",
            """CREATE INDEX sessions_status_of_repository ON sessions (repository_id, status, id)
               WHERE repository_id IS NOT NULL""",
            """CREATE INDEX sessions_status_of_owner ON sessions (owner_token_id, status, id)
               WHERE owner_token_id IS NOT NULL""",
            "CREATE INDEX sessions_worktree ON sessions (worktree_id) WHERE worktree_id IS NOT NULL",
            "CREATE INDEX artifacts_command ON artifacts (command_id) WHERE command_id IS NOT NULL",
            "CREATE INDEX commands_status_of_session ON commands (session_id, status, id)",
            "DROP INDEX commands_order",
            """CREATE INDEX commands_order ON commands (order_key, id)
               WHERE order_key IS NOT NULL AND finished_at IS NULL""",
            "DROP INDEX commands_subjects",
            "CREATE INDEX commands_tasks ON commands (id) WHERE substr(subject, 1, 5) = 'task:'",
            """CREATE INDEX commands_tasks_of_owner ON commands (owner_token_id, id)
               WHERE substr(subject, 1, 5) = 'task:'""",
        ),
        down=(
            "DROP INDEX commands_tasks_of_owner",
            "DROP INDEX commands_tasks",
            "CREATE INDEX commands_subjects ON commands (id) WHERE subject IS NOT NULL",
            "DROP INDEX commands_order",
            "CREATE INDEX commands_order ON commands (order_key, id) WHERE order_key IS NOT NULL",
            "DROP INDEX commands_status_of_session",
            "DROP INDEX artifacts_command",
            "DROP INDEX sessions_worktree",
            "DROP INDEX sessions_status_of_owner",
            "DROP INDEX sessions_status_of_repository",
            "DROP INDEX sessions_status",
            "CREATE INDEX sessions_owner ON sessions (owner_token_id, id) WHERE owner_token_id IS NOT NULL",
        ),
    ),
)
