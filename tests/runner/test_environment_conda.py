"""Conda environments, from a channel that the test builds."""

from __future__ import annotations

import socket
import sys
import threading
from pathlib import Path

import pytest

from debug_server.errors import EnvironmentBuildError
from debug_server.runner.cancellation import Cancellation, StartCancelledError
from debug_server.runner.environment import EnvironmentManager, EnvironmentRequest
from debug_server.runner.environments.conda_manifest import parse_environment
from tests.runner.environment_support import make_conda_package, make_wheel, run_python

rattler = pytest.importorskip("rattler", reason="py-rattler is not installed")

PYTHON = f'#!/bin/sh\nexec {sys.executable} "$@"\n'


@pytest.fixture(autouse=True)
def _own_caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RATTLER_CACHE_DIR", str(tmp_path / "rattler-cache"))
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv-cache"))


@pytest.fixture
def manager(tmp_path: Path) -> EnvironmentManager:
    """A manager of its own."""
    return EnvironmentManager(tmp_path / "envs")


@pytest.fixture
def addresses(tmp_path: Path) -> list[str]:
    """A channel with a stand-in python 3.11 and a package of one module and one file; the addresses of both."""
    channel = tmp_path / "project" / "channel"
    here = str(rattler.Subdir.current())
    module = {"site-packages/tinymod.py": ("X = 1\n", 0o644), "share/tiny.txt": ("hello\n", 0o644)}
    return [
        make_conda_package(channel, here, "python", {"bin/python": (PYTHON, 0o755)}, version="3.11.0"),
        make_conda_package(channel, "noarch", "tiny", module, depends=["python"], noarch="python"),
    ]


def _environment(tmp_path: Path, *lines: str) -> Path:
    path = tmp_path / "project" / "environment.yml"
    path.write_text("channels: [./channel, nodefaults]\ndependencies:\n" + "".join(f"  - {line}\n" for line in lines))
    return path


@pytest.mark.parametrize("field", ["channels", "pip", "other", "deep"])
def test_aliases_are_not_written_out(field: str) -> None:
    """Ten lists of ten aliases each stand for 10^10 words: what is no text is refused unread."""
    bomb = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 11))
    text = {
        "channels": f"{bomb}channels: *a10\ndependencies: [tiny]\n",
        "pip": f"{bomb}dependencies: [pip: *a10]\n",
        "other": f"{bomb}dependencies: [other: *a10]\n",
        "deep": f"dependencies: {'[' * 5000}\n",
    }[field]
    with pytest.raises(EnvironmentBuildError, match="conda manifest"):
        parse_environment(text)


@pytest.mark.usefixtures("addresses")
def test_environment_file(tmp_path: Path, manager: EnvironmentManager) -> None:
    """environment.yml is solved and linked; the handle's interpreter is the one of the channel."""
    request = EnvironmentRequest("c", [_environment(tmp_path, "tiny=1.0")])
    handle = manager.ensure(request)
    assert handle.build is not None
    assert (handle.build.builder, handle.build.packages) == ("rattler", ("python==3.11.0", "tiny==1.0"))
    assert (handle.path / "share/tiny.txt").read_text() == "hello\n"
    assert (handle.path / "lib/python3.11/site-packages/tinymod.py").exists()
    assert handle.python_path == handle.path / "bin" / "python"
    assert run_python(handle, "print(1)") == "1"
    assert manager.ensure(request) == handle
    assert manager.verify(handle.fingerprint or "") == {}


def test_a_cancelled_build_waits_for_no_channel(tmp_path: Path, manager: EnvironmentManager) -> None:
    """A channel that never answers: a cancel ends the build at once, and nothing of it is left."""
    cancellation, cancelled = Cancellation(), threading.Event()
    (tmp_path / "project").mkdir()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        manifest = tmp_path / "project" / "environment.yml"
        address = f"http://127.0.0.1:{silent.getsockname()[1]}/channel"
        manifest.write_text(f"channels: [{address}]\ndependencies: [tiny]\n")

        def cancel() -> None:
            connection, _ = silent.accept()  # the library has asked
            with connection:
                cancellation.request("not needed any more")
                cancelled.wait(60)

        canceller = threading.Thread(target=cancel)
        canceller.start()
        try:
            with pytest.raises(StartCancelledError, match="not needed any more"):
                manager.ensure(EnvironmentRequest("c", [manifest]), cancellation=cancellation)
            assert canceller.is_alive(), "the channel was still asked"
        finally:
            cancelled.set()
            canceller.join()
    assert list((tmp_path / "envs").rglob("conda-meta")) == []


@pytest.mark.usefixtures("addresses")
def test_tampered_conda_package(tmp_path: Path, manager: EnvironmentManager) -> None:
    """A file changed in place is found and comes back as it was, though rattler's cache had the same file."""
    request = EnvironmentRequest("c", [_environment(tmp_path, "tiny")])
    handle = manager.ensure(request)
    (handle.path / "share/tiny.txt").chmod(0o644)
    with (handle.path / "share/tiny.txt").open("r+") as file:
        file.write("HELLO\n")
    assert manager.verify(handle.fingerprint or "") == {"share/tiny.txt": "has another content"}
    assert (manager.ensure(request).path / "share/tiny.txt").read_text() == "hello\n"


def test_explicit_list(tmp_path: Path, manager: EnvironmentManager, addresses: list[str]) -> None:
    """An @EXPLICIT list is installed as it stands; a wrong hash and a missing one are refused."""
    manifest = tmp_path / "project" / "conda.lock"
    manifest.write_text("\n".join(["# platform: any", "@EXPLICIT", *addresses, ""]))
    handle = manager.ensure(EnvironmentRequest("x", [manifest]))
    assert (handle.path / "lib/python3.11/site-packages/tinymod.py").exists()
    manifest.write_text(f"@EXPLICIT\n{addresses[1].partition('#')[0]}\n")
    with pytest.raises(EnvironmentBuildError, match="has no #hash"):
        manager.ensure(EnvironmentRequest("x", [manifest]))
    manifest.write_text(f"@EXPLICIT\n{addresses[1].replace('tiny-1.0', 'gone-1.0')}\n")
    with pytest.raises(EnvironmentBuildError, match=r"gone-1\.0"):
        manager.ensure(EnvironmentRequest("x", [manifest]))


@pytest.mark.usefixtures("addresses")
def test_pip_section(tmp_path: Path, manager: EnvironmentManager) -> None:
    """Lines under ``pip:`` reach uv, whose failure is ours; their includes are part of the fingerprint."""
    make_wheel(tmp_path / "wheels", "tinya", "1.0")
    extra = tmp_path / "project" / "extra.txt"
    extra.write_text("tinya==9.9\n")
    manifest = _environment(tmp_path, "tiny", f'pip: ["--no-index -f {tmp_path}/wheels", "-r extra.txt"]')
    request = EnvironmentRequest("p", [manifest])
    before = manager.plan_fingerprint(request)
    with pytest.raises(EnvironmentBuildError, match="uv pip install"):
        manager.ensure(request)
    extra.write_text("tinya\n")
    assert manager.plan_fingerprint(request) != before


@pytest.mark.usefixtures("addresses")
@pytest.mark.parametrize(
    ("lines", "metadata", "message"),
    [
        (["nope >3"], {}, r"py-rattler could not.*nope"),
        (["tiny"], {"python": "3.12"}, r"py-rattler could not.*python"),
        (["tiny"], {"python": "newest"}, "not a version"),
        (["npm: [x]"], {}, "only `pip:` can nest"),
    ],
)
def test_unsolvable(
    tmp_path: Path, manager: EnvironmentManager, lines: list[str], metadata: dict[str, str], message: str
) -> None:
    """What cannot be solved is an EnvironmentBuildError in the solver's words, and leaves nothing behind."""
    with pytest.raises(EnvironmentBuildError, match=f"(?s){message}"):
        manager.ensure(EnvironmentRequest("u", [_environment(tmp_path, *lines)], metadata))
    assert list((manager.root / ".by-fingerprint").iterdir()) == []


def test_channel_that_is_missing(tmp_path: Path, manager: EnvironmentManager) -> None:
    """A channel that is not there is named."""
    (tmp_path / "project").mkdir()
    with pytest.raises(EnvironmentBuildError, match="channel"):
        manager.ensure(EnvironmentRequest("u", [_environment(tmp_path, "tiny")]))


def test_installed_program(tmp_path: Path, manager: EnvironmentManager, monkeypatch: pytest.MonkeyPatch) -> None:
    """A micromamba on the search path is called to create the prefix from the manifest."""
    (tmp_path / "project").mkdir()
    manifest = _environment(tmp_path, "tiny")
    program = tmp_path / "bin" / "micromamba"
    program.parent.mkdir()
    program.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && echo 9.9 && exit\n'
        'while [ $# -gt 0 ]; do case "$1" in --prefix) prefix="$2";; --file) file="$2";; esac; shift; done\n'
        'mkdir -p "$prefix/conda-meta" && cp "$file" "$prefix/conda-meta/history"\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    handle = manager.ensure(EnvironmentRequest("m", [manifest], {"builder": "micromamba"}))
    assert (handle.path / "conda-meta/history").read_text() == manifest.read_text()
