"""Resolves ``pyproject.toml`` into the hashed lock for every platform; arguments go to uv (``--upgrade``)."""

from __future__ import annotations

import os
import sys

from bootstrap import LOCK, ROOT, UV, run, uv_environment


def main() -> None:
    """Write the lock; versions in it are kept unless an argument says otherwise."""
    command = [str(UV), "pip", "compile", "--quiet", "--universal", "--python-version", "3.11", "--generate-hashes"]
    command += ["--no-emit-index-url", "--no-header", "--group", "dev"]
    command += [word for extra in ("conda", "runners", "postgres", "otel") for word in ("--extra", extra)]
    command += ["pyproject.toml", "--output-file", str(LOCK.relative_to(ROOT))]
    environ = uv_environment()
    for name in ("UV_INDEX", "UV_FIND_LINKS"):
        # An additional index of pip's may hold few of a release's files; without the hashes of the others, the lock
        # would fail on every other platform. One that is configured for uv itself stays.
        if name not in os.environ:
            environ.pop(name, None)
    run(command, *sys.argv[1:], environ=environ)


if __name__ == "__main__":
    main()
