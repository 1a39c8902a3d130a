"""Searches commands over all sessions: a few indexed reads, however many commands have ended.

Each status has an index in the order of ids, also for the commands of one token, repository or session. So a search
reads at most a page for each status and merges the pages. Unfinished commands have two small partial indexes as well.
"""

from __future__ import annotations

from debug_server.model import CommandSearch, CommandStatus, FoundCommand
from debug_server.store.command_rows import COLUMNS, command_from
from debug_server.store.connection import Row
from debug_server.store.encoding import decode
from debug_server.store.session_claims import HELD
from debug_server.store.table import filters, keyset

_QUALIFIED = ", ".join(f"commands.{name.strip()}" for name in COLUMNS.split(","))
_WIDTH = len(COLUMNS.split(","))
_FOUND = (
    f"SELECT {_QUALIFIED}, repositories.name, sessions.plan, sessions.requested_by FROM commands"
    " JOIN sessions ON sessions.id = commands.session_id"
    " LEFT JOIN repositories ON repositories.id = commands.repository_id"
)
_UNFINISHED = "finished_at IS NULL"
# The conditions are those of the partial indexes. A claimed command is pending until it has started.
_OF_STATUS = {
    CommandStatus.PENDING: (
        f"owner IS NULL AND {_UNFINISHED}",
        f"status = 'pending' AND owner IS NOT NULL AND {_UNFINISHED}",
    ),
    CommandStatus.RUNNING: (f"status = 'running' AND owner IS NOT NULL AND {_UNFINISHED}",),
} | {
    status: (f"finished_at IS NOT NULL AND status = '{status.value}'",)
    for status in (CommandStatus.SUCCEEDED, CommandStatus.FAILED, CommandStatus.CANCELLED)
}
_AWAITED_COMMANDS = (
    "SELECT other.id AS id FROM commands AS waiting JOIN commands AS other ON other.queue_key = waiting.queue_key"
    " AND other.owner IS NOT NULL AND other.finished_at IS NULL WHERE waiting.id = ? AND waiting.key_limit <="
    " (SELECT COUNT(*) FROM commands AS held WHERE held.queue_key = waiting.queue_key"
    " AND held.owner IS NOT NULL AND held.finished_at IS NULL)"
    " UNION SELECT earlier.id FROM commands AS waiting JOIN commands AS earlier"
    " ON earlier.order_key = waiting.order_key AND earlier.id < waiting.id AND earlier.finished_at IS NULL"
    " WHERE waiting.id = ?"
    f" UNION SELECT holder.id FROM {HELD} JOIN commands AS waiting ON waiting.session_id = wanted.session_id"
    " JOIN commands AS holder ON holder.session_id = held.session_id AND holder.status IN ('pending', 'running')"
    " WHERE waiting.id = ?"
)
AWAITED = f"SELECT id FROM ({_AWAITED_COMMANDS}) AS awaited ORDER BY id"  # three times the id of the waiting command


def search_sql(search: CommandSearch) -> tuple[str, tuple[object, ...]]:
    """The query of a search, and its parameters."""
    _, order = keyset("commands.id", search.after, newest=search.newest)
    if search.session_id is not None:  # the index of the session has every status
        conditions = [f"status = '{status.value}'" for status in search.statuses or CommandStatus]
    elif search.statuses or search.repository_id is not None or search.owner_token_id is not None:
        conditions = [condition for status in search.statuses or CommandStatus for condition in _OF_STATUS[status]]
    else:
        conditions = ["1 = 1"]
    pages = [_page(search, condition) for condition in conditions]
    ids = " UNION ALL ".join(f"SELECT id FROM ({sql}) AS page{number}" for number, (sql, _) in enumerate(pages))
    params = [value for _, values in pages for value in values]
    return f"{_FOUND} WHERE commands.id IN ({ids}) {order} LIMIT ?", (*params, search.limit)


def _page(search: CommandSearch, condition: str) -> tuple[str, tuple[object, ...]]:
    """The ids of at most a page of commands that meet a condition."""
    # Unfinished commands are few, but SQLite would look for them among all rows to have them in the order of ids.
    column = "id + 0" if condition.endswith(_UNFINISHED) else "id"
    beyond, order = keyset(column, search.after, newest=search.newest)
    terms, params = filters(
        ("session_id = ?", search.session_id),
        ("repository_id = ?", search.repository_id),
        ("owner_token_id = ?", search.owner_token_id),
        beyond,
    )
    return f"SELECT id FROM commands WHERE {condition} AND {terms} {order} LIMIT ?", (*params, search.limit)


def found_from(row: Row) -> FoundCommand:
    """The command in a row that ``search_sql`` selected."""
    repository, plan, requested_by = row[_WIDTH:]
    return FoundCommand(
        command=command_from(row[:_WIDTH]),
        repository=repository,
        directory=decode(plan).get("directory"),
        requested_by=requested_by,
    )
