"""Fixtures: databases of both kinds."""

from __future__ import annotations

from tests.store.conftest import database_url, postgres

__all__ = ["database_url", "postgres"]
