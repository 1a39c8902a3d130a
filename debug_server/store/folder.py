"""Which folder the logs, workspaces and artifacts of a database lie in: its rows are worth little without them."""

from __future__ import annotations

from debug_server.store.part import StorePart

_CLAIM = "INSERT INTO folder (id, mark) VALUES (1, ?) ON CONFLICT (id) DO NOTHING"


class Folder(StorePart):
    """The mark of the one folder."""

    def claim_folder(self, mark: str) -> str:
        """The mark of the folder that belongs to this database: ``mark`` where it has none yet."""
        with self._database.write() as transaction:
            transaction.run(_CLAIM, (mark,))
            row = transaction.one("SELECT mark FROM folder")
        assert row is not None
        return str(row[0])
