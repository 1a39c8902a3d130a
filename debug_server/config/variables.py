"""Finds variables that look like ours and are none: a misspelt one would be ignored in silence."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator, Mapping

_PREFIX = "DEBUG_SERVER_"
# Those that no table of settings declares for the runner; the last five are given to commands and workers.
_OTHERS = (
    *("TOKEN", "URL", "UID", "VERIFY_TLS", "HOME", "DB_URL", "OTEL", "DISPATCH_CONFIG", "HOOK_SECRET", "SEAL_KEY_FILE"),
    *("ENV_PATH", "ENV_PYTHON", "ENV_MANIFESTS", "WORKER_INSTANCE", "READY_PIPE"),
)
_LIKENESS = 0.75  # of a misspelling; others may have variables that only begin like ours


def misspelt(environ: Mapping[str, str], declared: Collection[str | None]) -> Iterator[tuple[str, str]]:
    """Each variable that is none of ours, and the one of ours that it nearly is."""
    known = {name.removeprefix(_PREFIX) for name in declared if name} | {*_OTHERS}
    for name in environ:
        rest = name.removeprefix(_PREFIX)
        if name.startswith(_PREFIX) and rest not in known:
            for close in difflib.get_close_matches(rest, sorted(known), n=1, cutoff=_LIKENESS):
                yield name, f"{_PREFIX}{close}"
