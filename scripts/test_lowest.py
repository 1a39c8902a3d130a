"""Installs the lowest versions that ``pyproject.toml`` states into ``.cache/lowest``, and runs tests with them."""

from __future__ import annotations

import os
import subprocess
import sys

import bootstrap

ENVIRONMENT = bootstrap.ROOT / ".cache" / "lowest"
PYTHON = ENVIRONMENT / "bin" / "python"
# Test tools: installed at the versions of the lock, because we state no lowest version for them.
TOOLS = (
    "editables",
    "hatchling",
    "hypothesis",
    "openapi-spec-validator",
    "packaging",
    "pytest",
    "pytest-timeout",
    "pytest-xdist",
    "schemathesis",
)
# Together these tests use every dependency.
TESTS = (
    *("tests/acceptance", "tests/client/test_acceptance.py", "tests/config", "tests/dispatch/test_grpc_runners.py"),
    *("tests/runner/test_environment_conda.py", "tests/runner/test_environment_builders.py"),
    *("tests/runners/test_docs_runner.py", "tests/runners/test_security.py"),
    *("tests/store/test_opening.py", "tests/store/test_rows.py", "tests/store/test_sealing.py"),
    *(
        "tests/surfaces/cli/test_configure.py",
        "tests/surfaces/cli/test_program.py",
        "tests/surfaces/cli/test_showing.py",
    ),
    *("tests/surfaces/grpc", "tests/surfaces/http", "tests/surfaces/mcp", "tests/test_telemetry.py"),
)


def main(*pytest_arguments: str) -> int:
    """Make the environment, say which versions are in it, run the tests."""
    environ = bootstrap.uv_environment()
    uv = [str(bootstrap.UV)]
    bootstrap.run([*uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(ENVIRONMENT)], environ=environ)
    pip = [*uv, "pip", "install", "--quiet", "--python", str(PYTHON), "--index-strategy", "unsafe-best-match"]
    tools = [item.split()[0] for item in bootstrap.stanzas() if item.startswith(tuple(f"{name}==" for name in TOOLS))]
    bootstrap.run(pip, *tools, environ=environ)
    lowest = ["--resolution", "lowest-direct", "--no-build-isolation", "--editable", f"{bootstrap.ROOT}[all]"]
    bootstrap.run(pip, *lowest, environ=environ)
    bootstrap.run([*uv, "pip", "list", "--python", str(PYTHON), "--quiet"], environ=environ)
    path = f"{PYTHON.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    command = [str(PYTHON), "-m", "pytest", *(pytest_arguments or TESTS)]
    return subprocess.run(command, cwd=bootstrap.ROOT, env={**kept, "PATH": path}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
