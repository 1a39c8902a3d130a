"""The environment variables of a command: a few inherited ones, its virtual environment, its own, and the CPU count."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping

from debug_server.model import Limits

# Nothing that could contain a secret of the server.
_INHERITED = ("PATH", "HOME", "LANG", "LANGUAGE", "TZ", "TMPDIR", "USER", "LOGNAME", "SHELL", "TERM")


def default_base(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that a command inherits if its caller passes no base environment."""
    base = {name: environ[name] for name in _INHERITED if name in environ}
    base |= {name: value for name, value in environ.items() if name.startswith("LC_")}
    base.setdefault("PATH", os.defpath)
    return base


def command_variables(
    base: Mapping[str, str],
    *,
    environment: Mapping[str, str],
    overrides: Mapping[str, str],
    limits: Limits,
) -> dict[str, str]:
    """Base, then the virtual environment's variables, then the command's own."""
    env = dict(base)
    env.pop("PYTHONHOME", None)
    env.setdefault("PYTHONUNBUFFERED", "1")
    if limits.cpus is not None:
        count = str(max(1, min(math.ceil(limits.cpus), len(os.sched_getaffinity(0)))))
        env.update(PYTHON_CPU_COUNT=count, OMP_NUM_THREADS=count)
    env.update(environment)
    env.update(overrides)
    return env
