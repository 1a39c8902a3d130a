"""The folder table: the data folder with the logs, workspaces and artifacts of this database."""

from __future__ import annotations

from pathlib import Path

from debug_server.store.table import Table

_CLAIM = "INSERT INTO folder (id, mark) VALUES (1, ?) ON CONFLICT (id) DO NOTHING"
_FIRST_LOG = "SELECT log_path FROM commands WHERE log_path IS NOT NULL ORDER BY id LIMIT 1"
_MAKE_ABSOLUTE = (
    "UPDATE commands SET log_path = ? || log_path WHERE substr(log_path, 1, 1) <> '/'",
    "UPDATE artifacts SET path = ? || path WHERE substr(path, 1, 1) <> '/'",
)


class DataFolder(Table):
    """The mark of the data folder, and the paths of rows that point into it."""

    def claim(self, mark: str) -> str:
        """The mark of the data folder of this database; ``mark`` is stored if there is none yet."""
        with self._database.write() as transaction:
            transaction.run(_CLAIM, (mark,))
            row = transaction.one("SELECT mark FROM folder")
        assert row is not None
        return str(row[0])

    def make_paths_absolute(self, data_folder: Path) -> None:
        """Convert paths that an earlier version wrote relative to its working directory.

        Only the oldest row is checked, because every start calls this.
        """
        row = self._one(_FIRST_LOG, ())
        if row is None or str(row[0]).startswith("/"):
            return
        base = next((folder for folder in data_folder.parents if (folder / row[0]).exists()), data_folder.parent)
        with self._database.write() as transaction:
            for sql in _MAKE_ABSOLUTE:
                transaction.run(sql, (f"{str(base).rstrip('/')}/",))
