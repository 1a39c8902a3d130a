"""The metadata store: every row and every SQL statement of the product, on SQLite or PostgreSQL.

Imported by ``engine``, ``service`` and ``app``; the layers below use it through ``debug_server.ports``.
"""

from debug_server.store.address import default_url
from debug_server.store.metadata import MetadataStore, open_store

__all__ = ["MetadataStore", "default_url", "open_store"]
