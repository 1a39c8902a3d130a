"""The product as it is installed: from a wheel, outside the checkout, and the client beside httpx alone."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from email import message_from_bytes
from importlib.metadata import distribution
from pathlib import Path

import pytest
import uv

import debug_server
from tests.client.serving import serving
from tests.running import ROOT
from tests.test_docs import blocks

SECONDS = 240
SDK = ("httpx", "httpcore", "h11", "anyio", "certifi", "idna", "typing_extensions")
pytestmark = pytest.mark.timeout(300)


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


def test_the_first_section_of_the_readme_works_where_the_wheel_is_installed(wheel: Path, tmp_path: Path) -> None:
    """In an empty environment, outside the checkout, without any extra."""
    environment = tmp_path / "environment"
    install = [uv.find_uv_bin(), "pip", "install", "--quiet", "--python", str(environment / "bin/python")]
    for argv in (
        [uv.find_uv_bin(), "venv", "--quiet", "--python", sys.executable, str(environment)],
        [*install, "--constraint", str(ROOT / "requirements/dev.txt"), str(wheel)],
    ):
        done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=SECONDS, check=False)
        assert done.returncode == 0, done.stderr
    kept = {name: os.environ[name] for name in ("HOME", "LANG") if name in os.environ}
    environ = {**kept, "PATH": f"{environment}/bin{os.pathsep}{os.environ['PATH']}"}
    first = next(block.text for block in blocks(ROOT / "README.md") if block.run)
    here = tmp_path / "here"
    here.mkdir()
    done = subprocess.run(
        ["sh", "-euc", first], cwd=here, env=environ, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "hello\n" in done.stdout and "status 124\n" in done.stdout
    assert not list(environment.glob("lib/python*/site-packages/runners"))


def test_the_client_needs_httpx_alone(tmp_path: Path) -> None:
    """With nothing beside it but httpx and what httpx needs, the client talks to a server."""
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
