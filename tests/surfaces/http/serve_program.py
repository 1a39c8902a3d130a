"""``serve`` as a program: a folder, a port and options as JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from debug_server.errors import DebugServerError
from debug_server.server import ServeOptions, serve
from tests.surfaces.http.serving import open_local


def main(root: Path, port: int, options: dict[str, Any]) -> int:
    """Serve until a signal."""
    try:
        with open_local(root) as local:
            options = {"grpc_port": None, **options}
            options |= {name: Path(value) for name, value in options.items() if name.startswith("tls_")}
            return serve(local, ServeOptions(port=port, **options))
    except DebugServerError as error:
        sys.stderr.write(f"{error.code}: {error}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3] or "{}")))
