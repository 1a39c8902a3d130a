"""Finds misspelt DEBUG_SERVER_ variables, which would be ignored silently."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator, Mapping

_PREFIX = "DEBUG_SERVER_"
# Variables that RunnerConfig does not declare; the second line lists those that commands and workers receive.
_OTHERS = (
    *("TOKEN", "URL", "UID", "VERIFY_TLS", "HOME", "DB_URL", "OTEL", "DISPATCH_CONFIG", "HOOK_SECRET", "SEAL_KEY_FILE"),
    *("ENV_PATH", "ENV_PYTHON", "ENV_MANIFESTS", "WORKER_INSTANCE", "READY_PIPE"),
)
_MIN_SIMILARITY = 0.75  # minimum similarity of a misspelling; other programs may use the same prefix


def misspelt(environ: Mapping[str, str], declared: Collection[str | None]) -> Iterator[tuple[str, str]]:
    """Each unknown variable with our prefix, and the known variable that it resembles."""
    known = {name.removeprefix(_PREFIX) for name in declared if name} | {*_OTHERS}
    for name in environ:
        rest = name.removeprefix(_PREFIX)
        if name.startswith(_PREFIX) and rest not in known:
            for close in difflib.get_close_matches(rest, sorted(known), n=1, cutoff=_MIN_SIMILARITY):
                yield name, f"{_PREFIX}{close}"
