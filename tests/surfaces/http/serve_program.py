"""``serve`` as a program: a folder, a port and options as JSON."""

from __future__ import annotations

import json
import resource
import sys
from pathlib import Path
from typing import Any

from debug_server.app.server import ServeOptions, serve
from debug_server.config import ServerConfig
from debug_server.errors import DebugServerError
from debug_server.telemetry import configure_logging
from tests.surfaces.http.serving import open_local


def main(root: Path, port: int, options: dict[str, Any]) -> int:
    """Serve until a signal; ``open_files``, ``log`` and ``server`` are no options of serving, but what it finds."""
    if open_files := options.pop("open_files", None):
        resource.setrlimit(resource.RLIMIT_NOFILE, tuple(open_files))
    if log := options.pop("log", None):
        configure_logging("INFO", stream=Path(log).open("a"))  # noqa: SIM115 - for as long as the process lives
    try:
        with open_local(root, server=ServerConfig(**options.pop("server", {}))) as local:
            options = {"grpc_port": None, **options}
            options |= {name: Path(value) for name, value in options.items() if name.startswith("tls_")}
            return serve(local, ServeOptions(port=port, **options))
    except DebugServerError as error:
        sys.stderr.write(f"{error.code}: {error}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3] or "{}")))
