"""Writes the generated messages of ``proto/`` into the package; an argument names another folder to write to."""

from __future__ import annotations

import sys
import tempfile
from importlib.resources import files
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent.parent
PROTO = "debug_server/v1/debug_server.proto"
GENERATED = ROOT / "debug_server" / "surfaces" / "grpc" / "v1"


def main(folder: Path) -> None:
    """Generate the modules and copy them into ``folder``, which need not mirror the proto's own path."""
    with tempfile.TemporaryDirectory() as made:
        options = [f"-I{ROOT / 'proto'}", f"-I{files('grpc_tools') / '_proto'}"]
        status = protoc.main(["protoc", *options, f"--python_out={made}", f"--pyi_out={made}", PROTO])
        if status:
            sys.exit(f"protoc failed with status {status}")
        for path in (Path(made) / PROTO).parent.iterdir():
            (folder / path.name).write_bytes(path.read_bytes())


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else GENERATED)
