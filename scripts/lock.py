"""Writes the lock file, with hashes for every platform, from ``pyproject.toml``; arguments go to uv (``--upgrade``)."""

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
        # An extra index of pip may have only some of the files of a release. The lock would then lack the hashes for
        # other platforms. An index that is configured for uv itself is kept.
        if name not in os.environ:
            environ.pop(name, None)
    run(command, *sys.argv[1:], environ=environ)


if __name__ == "__main__":
    main()
