"""Generates the modules from ``proto/`` into the package, or all of them into the folder given as argument.

The message Limits in ``proto/`` is generated too, from the table of limits.
"""

from __future__ import annotations

import re
import sys
import tempfile
from importlib.resources import files
from pathlib import Path

from grpc_tools import protoc

from debug_server.model import LIMITS

ROOT = Path(__file__).resolve().parent.parent
# proto -> (package folder, protoc outputs). Users import the stubs of kanban; debug_server.v1 needs no stubs.
GENERATED = {
    "debug_server/v1/debug_server.proto": ("debug_server/surfaces/grpc/v1", ("python", "pyi")),
    "kanban.proto": ("debug_server/kanban", ("python", "pyi", "grpc_python")),
}


LIMITS_PROTO = ROOT / "proto/debug_server/v1/debug_server.proto"


def main(folder: Path | None) -> None:
    """Generate every module into its package, or all of them into ``folder``."""
    if folder is None:
        LIMITS_PROTO.write_text(with_limits(LIMITS_PROTO.read_text()))
    for proto, (package, kinds) in GENERATED.items():
        generate(proto, package, kinds, folder or ROOT / package)


def with_limits(proto: str) -> str:
    """The text of a proto with a field for each limit of the table, numbered by its order."""
    kinds = [("int64" if limit.unit.is_whole else "double", name) for name, limit in LIMITS.items()]
    lines = [f"  optional {kind} {name} = {number};\n" for number, (kind, name) in enumerate(kinds, 1)]
    return re.sub(r"(?<=^message Limits {\n).*?(?=^})", "".join(lines), proto, flags=re.MULTILINE | re.DOTALL)


def generate(proto: str, package: str, kinds: tuple[str, ...], folder: Path) -> None:
    """Generate the modules of one proto; its path may differ from that of the package."""
    with tempfile.TemporaryDirectory() as made:
        options = [f"-I{ROOT / 'proto'}", f"-I{files('grpc_tools') / '_proto'}"]
        status = protoc.main(["protoc", *options, *(f"--{kind}_out={made}" for kind in kinds), proto])
        if status:
            sys.exit(f"protoc failed with status {status}")
        for path in (Path(made) / proto).parent.iterdir():
            (folder / path.name).write_text(in_package(path.read_text(), package, Path(proto).stem))


def in_package(text: str, package: str, stem: str) -> str:
    """Make a generated stub import its messages from our package; protoc writes a top-level import."""
    return text.replace(f"\nimport {stem}_pb2 as", f"\nfrom {package.replace('/', '.')} import {stem}_pb2 as")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else None)
