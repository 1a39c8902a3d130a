"""Which folder the logs, workspaces and artifacts of a database lie in: its rows are worth little without them."""

from __future__ import annotations

from pathlib import Path

from debug_server.store.table import Table

_CLAIM = "INSERT INTO folder (id, mark) VALUES (1, ?) ON CONFLICT (id) DO NOTHING"


_FIRST_LOG = "SELECT log_path FROM commands WHERE log_path IS NOT NULL ORDER BY id LIMIT 1"
_MAKE_ABSOLUTE = (
    "UPDATE commands SET log_path = ? || log_path WHERE substr(log_path, 1, 1) <> '/'",
    "UPDATE artifacts SET path = ? || path WHERE substr(path, 1, 1) <> '/'",
)


class Folder(Table):
    """The mark of the one folder, and the paths that lead into it."""

    def claim(self, mark: str) -> str:
        """The mark of the folder that belongs to this database: ``mark`` where it has none yet."""
        with self._database.write() as transaction:
            transaction.run(_CLAIM, (mark,))
            row = transaction.one("SELECT mark FROM folder")
        assert row is not None
        return str(row[0])

    def make_paths_absolute(self, data_folder: Path) -> None:
        """Paths of rows that an earlier version wrote relative to its working directory, which held the data folder.

        Only the oldest row is looked at: this is called with every start.
        """
        row = self._one(_FIRST_LOG, ())
        if row is None or str(row[0]).startswith("/"):
            return
        base = next((folder for folder in data_folder.parents if (folder / row[0]).exists()), data_folder.parent)
        with self._database.write() as transaction:
            for sql in _MAKE_ABSOLUTE:
                transaction.run(sql, (f"{str(base).rstrip('/')}/",))
