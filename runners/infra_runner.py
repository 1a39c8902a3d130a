"""Infra: manages a repository's ignore rules, its lock, and the revert of a commit."""

from __future__ import annotations

import sys

from runners.infra.ignore_rules import ignore
from runners.infra.repository_lock import lock
from runners.infra.revert import revert
from runners.kit.program import run

if __name__ == "__main__":
    sys.exit(run("infra", {"git.ignore": ignore, "git.lock": lock, "git.revert": revert}, on_push=ignore))
