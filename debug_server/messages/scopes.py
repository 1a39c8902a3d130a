"""The scopes of tokens."""

from __future__ import annotations

ADMIN = "admin"  # implies every other scope
SESSIONS_READ, SESSIONS_WRITE = "sessions:read", "sessions:write"
COMMANDS_WRITE, ARTIFACTS_READ = "commands:write", "artifacts:read"
SCOPES = (ADMIN, SESSIONS_READ, SESSIONS_WRITE, COMMANDS_WRITE, ARTIFACTS_READ)
