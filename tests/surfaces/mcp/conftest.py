"""Fixtures: a PostgreSQL cluster for the servers that keep their rows there."""

from tests.store.conftest import postgres

__all__ = ["postgres"]
