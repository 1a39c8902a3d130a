"""The product as it is installed: from a wheel, outside the checkout; the client beside httpx and pydantic alone."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
import zipfile
from dataclasses import dataclass
from email import message_from_bytes
from importlib.metadata import distribution
from pathlib import Path

import pytest
import uv

import debug_server
from debug_server.model.extras import EXTRAS, install_command, is_installed
from tests.other_users import owned_repository
from tests.running import ROOT
from tests.servers import serving
from tests.test_docs import blocks

SECONDS = 240
SDK = (  # httpx and pydantic, and what they need
    *("httpx", "httpcore", "h11", "anyio", "certifi", "idna", "typing_extensions"),
    *("pydantic", "pydantic_core", "annotated_types", "typing_inspection"),
)
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from this checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True, timeout=SECONDS)
    (found,) = folder.glob("*.whl")
    return found


def test_the_metadata_is_complete(wheel: Path) -> None:
    """Version, licence, links and extras are there, and every link of the package page is absolute."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [item for item in archive.namelist() if item.endswith(".dist-info/METADATA")]
        found = message_from_bytes(archive.read(name))
        assert any(item.endswith("licenses/LICENSE") for item in archive.namelist())
    assert found["Version"] == debug_server.__version__
    assert found["License-Expression"] == "MIT" and found["Author"] == "debug-server developers"
    assert {"all", "conda", "otel", "postgres", "runners"} == set(found.get_all("Provides-Extra", []))
    links = re.findall(r"\]\(([^)\s]+)\)", str(found.get_payload()))
    assert len(links) > 20 and [link for link in links if not link.startswith("https://")] == []


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """The base install in an environment of its own, used in a folder outside the checkout."""

    environment: Path
    here: Path

    @property
    def adds(self) -> str:
        """The beginning of the command that adds an extra; uv's environments have no pip."""
        return f"uv pip install --python {self.environment}/bin/python"

    def start(self, *argv: str, **variables: str) -> subprocess.Popen[str]:
        """A program that finds this install and nothing of the checkout."""
        kept = {name: os.environ[name] for name in ("HOME", "LANG") if name in os.environ}
        path = f"{self.environment}/bin{os.pathsep}{os.environ['PATH']}"
        data = str(self.here / ".artifacts")
        environ = {**kept, "PATH": path, "DEBUG_SERVER_PATHS_ARTIFACTS": data, **variables}
        pipe = subprocess.PIPE
        return subprocess.Popen(argv, cwd=self.here, env=environ, stdout=pipe, stderr=pipe, text=True)

    def run(self, *argv: str, **variables: str) -> tuple[int, str, str]:
        """The same, to its end: status, output, errors."""
        process = self.start(*argv, **variables)
        out, errors = process.communicate(timeout=SECONDS)
        return process.returncode, out, errors


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The wheel without any extra."""
    folder = tmp_path_factory.mktemp("installed")
    environment, here = folder / "environment", folder / "here"
    here.mkdir()
    install = [uv.find_uv_bin(), "pip", "install", "--quiet", "--python", str(environment / "bin/python")]
    for argv in (
        [uv.find_uv_bin(), "venv", "--quiet", "--python", sys.executable, str(environment)],
        [*install, "--constraint", str(ROOT / "requirements/dev.txt"), str(wheel)],
    ):
        done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, timeout=SECONDS, check=False)
        assert done.returncode == 0, done.stderr
    return Installed(environment=environment, here=here)


def test_the_first_section_of_the_readme_works_where_the_wheel_is_installed(installed: Installed) -> None:
    """In an empty environment, outside the checkout, without any extra."""
    first = next(block.text for block in blocks(ROOT / "README.md") if block.run)
    status, out, errors = installed.run("sh", "-euc", first)
    assert status == 0, errors
    assert "hello\n" in out and "status 124\n" in out
    assert not list(installed.environment.glob("lib/python*/site-packages/runners"))


def test_a_missing_extra_is_one_line_with_the_command_that_adds_it(installed: Installed) -> None:
    """Wherever it is met: by the command line, by a server that starts, and by a command over HTTP."""
    repository = owned_repository(installed.here / "project", os.geteuid(), {"environment.yml": "dependencies: []\n"})
    conda = ("--manifest", "environment.yml", "--", "true")
    (shipped,) = installed.environment.glob("lib/python*/site-packages/debug_server/shipped")
    security = ("python", "-c", "import runners.security.scanner")
    cases: list[tuple[str, tuple[str, ...], dict[str, str]]] = [
        ("conda", ("debug-server", "run", "--repo", "project", *conda), {}),
        ("postgres", ("debug-server", "run", "--", "true"), {"DEBUG_SERVER_DB_URL": "postgresql://nowhere/x"}),
        ("postgres", ("debug-server", "serve", "--port", "0"), {"DEBUG_SERVER_DB_URL": "postgresql://nowhere/x"}),
        ("otel", ("debug-server", "run", "--", "true"), {"DEBUG_SERVER_OTEL": "on"}),
        ("otel", ("debug-server", "serve", "--port", "0"), {"DEBUG_SERVER_OTEL": "on"}),
        ("runners", security, {"PYTHONPATH": str(shipped)}),
    ]
    for extra, argv, variables in cases:
        status, _, errors = installed.run(*argv, **variables)
        line = errors.splitlines()[-1] if extra != "conda" else errors
        adds = "pip install" if argv == security else installed.adds  # a runner program knows of no tool
        assert status and f"{adds} 'debug-server[{extra}]'" in line and "Traceback" not in errors, errors
    status, out, _ = installed.run("debug-server", "doctor")
    assert [extra for extra in EXTRAS if f"{installed.adds} 'debug-server[{extra}]'" not in out] == []

    server = installed.start("debug-server", "serve", "--port", "0", "--no-grpc")
    try:
        assert server.stdout is not None
        said = server.stdout.readline() + server.stdout.readline()
        found = re.search(r"shown only once: (\S+)\nserving on (\S+)", said)
        assert found is not None, said
        remote = {"DEBUG_SERVER_TOKEN": found[1], "DEBUG_SERVER_URL": found[2]}
        assert installed.run("debug-server", "repo", "add", str(repository), **remote)[0] == 0
        status, _, errors = installed.run("debug-server", "command", "run", "--repository", "project", *conda, **remote)
        assert status == 125 and f"{installed.adds} 'debug-server[conda]'" in errors, errors
    finally:
        server.terminate()
        server.communicate(timeout=SECONDS)


def test_a_uv_tool_runs_the_first_section_of_the_readme(wheel: Path, tmp_path: Path) -> None:
    """By the README's own way to install, and an extra is added by the same tool: pip would add it elsewhere."""
    folders = {"UV_TOOL_DIR": str(tmp_path / "tools"), "UV_TOOL_BIN_DIR": str(tmp_path / "environment/bin")}
    install = [uv.find_uv_bin(), "tool", "install", "--quiet", "--python", sys.executable]
    install += ["--constraints", str(ROOT / "requirements/dev.txt"), str(wheel)]
    done = subprocess.run(install, env=os.environ | folders, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    tool = Installed(environment=tmp_path / "environment", here=tmp_path)
    first = next(block.text for block in blocks(ROOT / "README.md") if block.run)
    status, out, errors = tool.run("sh", "-euc", first)
    assert status == 0, errors
    assert "hello\n" in out and "uv tool install 'debug-server[conda]'" in out


def test_an_extra_is_added_by_the_tool_that_installed_the_product(tmp_path: Path) -> None:
    """By pipx where its file is, with the extras that are there: it removes those that are not named. Else by pip."""
    assert install_command("otel", str(tmp_path)) == f"{sys.executable} -m pip install 'debug-server[otel]'"
    (tmp_path / "pipx_metadata.json").touch()
    there = {extra for extra, modules in EXTRAS.items() if all(map(is_installed, modules))}
    named = ",".join(sorted({*there, "otel"}))
    assert there and install_command("otel", str(tmp_path)).startswith(f"pipx install --force 'debug-server[{named}]'")


def test_each_extra_is_known() -> None:
    """The table of what an extra installs has the extras of pyproject.toml."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert sorted(EXTRAS) == sorted(set(declared) - {"all"})


def test_the_client_needs_httpx_and_pydantic_alone(tmp_path: Path) -> None:
    """With nothing beside it but these two and what they need, the client talks to a server."""
    packages = tmp_path / "packages"
    packages.mkdir()
    (packages / "debug_server").symlink_to(ROOT / "debug_server")
    for name in SDK:
        for file in distribution(name).files or []:
            top = file.parts[0]
            if not top.endswith((".dist-info", "..", "__pycache__")) and not (packages / top).exists():
                (packages / top).symlink_to(Path(str(distribution(name).locate_file(top))))
    with serving(tmp_path / "server") as server:
        program = (
            f"import sys; sys.path.append({str(packages)!r})\n"
            "from debug_server.client import AsyncDebugServerClient, DebugServerClient\n"
            f"with DebugServerClient(base_url={server.base_url!r}, token={server.token!r}) as client:\n"
            "    print(client.who_am_i().name)\n"
        )
        argv = [sys.executable, "-I", "-S", "-c", program]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert (done.returncode, done.stdout) == (0, "admin\n"), done.stderr
