"""The seal: what is checked on every reuse, what by verify, and what happens to a damaged environment."""

from __future__ import annotations

import json
import os
import zipfile
from pathlib import Path

import pytest

from debug_server.errors import InvalidInputError
from debug_server.runner.environment import EnvironmentHandle, EnvironmentManager, EnvironmentRequest
from tests.runner.environment_support import Recording, hook, make_wheel, requirements, run_python


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EnvironmentManager:
    """A manager of its own, with a uv cache of its own."""
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv-cache"))
    return EnvironmentManager(tmp_path / "envs")


@pytest.fixture
def request_(tmp_path: Path) -> EnvironmentRequest:
    """tinya and tinyb from local wheels."""
    make_wheel(tmp_path / "wheels", "tinya", "1.0", "ANSWER = 42\n")
    make_wheel(tmp_path / "wheels", "tinyb", "1.0")
    manifest = requirements(tmp_path / "requirements.txt", tmp_path / "wheels", "tinya", "tinyb")
    return EnvironmentRequest("e", [manifest])


def _site(handle: EnvironmentHandle) -> Path:
    return next(handle.path.glob("lib/python3*/site-packages"))


def _open_up(handle: EnvironmentHandle) -> None:
    """What root can do anyway: write into a sealed environment."""
    for path in (handle.path, *handle.path.rglob("*")):
        if not path.is_symlink():
            path.chmod(path.stat().st_mode | 0o200)


def _seal(manager: EnvironmentManager, handle: EnvironmentHandle) -> Path:
    return manager.root / ".seals" / f"{(handle.fingerprint or '')[:20]}.json"


def test_seal_says_what_it_seals(manager: EnvironmentManager, request_: EnvironmentRequest) -> None:
    """The seal names fingerprint, interpreter, packages and a digest over all files."""
    handle = manager.ensure(request_)
    seal = json.loads(_seal(manager, handle).read_text())
    assert seal["fingerprint"] == handle.fingerprint
    assert seal["packages"] == ["tinya==1.0", "tinyb==1.0"]
    assert json.loads(seal["interpreter"])["implementation"]
    assert len(seal["inventory"]) == 64
    assert manager.verify(handle.fingerprint or "") == {}


def test_tampered_file_is_found_and_rebuilt(manager: EnvironmentManager, request_: EnvironmentRequest) -> None:
    """Content changed in place, same size, is found; rebuilt is the original, though uv's cache had the link."""
    handle = manager.ensure(request_)
    _open_up(handle)
    module = _site(handle) / "tinya.py"
    with module.open("r+") as file:
        file.write("ANSWER = 13\n")
    assert run_python(handle, "import tinya; print(tinya.ANSWER)") == "13"
    assert manager.verify(handle.fingerprint or "") == {str(module.relative_to(handle.path)): "has another content"}
    rebuilt = manager.ensure(request_)
    assert rebuilt.path != handle.path
    assert rebuilt.build is not None
    assert rebuilt.build.reason.startswith("damaged: ")
    assert run_python(rebuilt, "import tinya; print(tinya.ANSWER)") == "42"
    assert manager.verify(rebuilt.fingerprint or "") == {}


def test_ensure_can_verify_first(manager: EnvironmentManager, request_: EnvironmentRequest) -> None:
    """ensure(verify=True) serves a whole environment as it is and rebuilds a damaged one at once."""
    handle = manager.ensure(request_)
    _open_up(handle)
    assert manager.ensure(request_, verify=True) == handle
    (_site(handle) / "tinyb.py").unlink()
    rebuilt = manager.ensure(request_, verify=True)
    assert rebuilt.path != handle.path
    assert (_site(rebuilt) / "tinyb.py").exists()


@pytest.mark.parametrize("damage", ["added", "removed", "mode", "record", "script", "link"])
def test_every_kind_of_damage_is_found(manager: EnvironmentManager, request_: EnvironmentRequest, damage: str) -> None:
    """Added, removed, re-moded and re-linked files are found, and so is a RECORD made to fit a changed file."""
    handle = manager.ensure(request_)
    _open_up(handle)
    site = _site(handle)
    if damage == "added":
        (site / "evil.pth").write_text("import os\n")
    elif damage == "removed":
        (site / "tinya.py").unlink()
    elif damage == "mode":
        (handle.bin_path / "activate").chmod(0o777)
    elif damage == "record":
        record = next(site.glob("tinya-*.dist-info/RECORD"))
        record.write_text(record.read_text().replace("tinya.py,sha256=", "tinya.py,sha256=x"))
    elif damage == "script":
        (handle.path / "pyvenv.cfg").write_bytes((handle.path / "pyvenv.cfg").read_bytes()[::-1])
    else:
        handle.python_path.unlink()
        handle.python_path.symlink_to("/bin/true")
    assert manager.verify(handle.fingerprint or "")
    assert manager.ensure(request_).path != handle.path


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"fingerprint": "x"}'])
def test_torn_seal_is_no_seal(manager: EnvironmentManager, request_: EnvironmentRequest, content: bytes) -> None:
    """A seal that cannot be read is not believed: the environment is built again."""
    handle = manager.ensure(request_)
    _seal(manager, handle).write_bytes(content)
    again = manager.ensure(request_)
    assert again.build is not None
    assert not again.build.hit
    assert run_python(again, "import tinya; print(tinya.ANSWER)") == "42"


def test_missing_interpreter_is_noticed_on_reuse(manager: EnvironmentManager, request_: EnvironmentRequest) -> None:
    """A link to an interpreter that is gone is not served."""
    handle = manager.ensure(request_)
    _open_up(handle)
    handle.python_path.unlink()
    handle.python_path.symlink_to(manager.root / "gone")
    again = manager.ensure(request_)
    assert again.build is not None
    assert again.build.reason == "its files or its interpreter are gone"
    assert again.python_path.exists()


def test_sizes_are_checked_once_after_a_reboot(manager: EnvironmentManager, request_: EnvironmentRequest) -> None:
    """Files of an earlier boot are looked at again, because a crash of the machine can empty them."""
    handle = manager.ensure(request_)
    _open_up(handle)
    seal = _seal(manager, handle)
    seal.write_text(json.dumps({**json.loads(seal.read_text()), "boot": "earlier"}))
    assert manager.ensure(request_) == handle
    assert json.loads(seal.read_text())["boot"] != "earlier"
    seal.write_text(json.dumps({**json.loads(seal.read_text()), "boot": "earlier"}))
    module = _site(handle) / "tinya.py"
    module.unlink()
    module.touch()
    assert manager.ensure(request_).path != handle.path


def test_bytecode_is_sealed_with_the_rest(manager: EnvironmentManager, request_: EnvironmentRequest) -> None:
    """After compile_bytecode the environment verifies, has bytecode, and is still served."""
    handle = manager.ensure(request_)
    assert not list(_site(handle).rglob("*.pyc"))
    manager.compile_bytecode(handle)
    assert list(_site(handle).glob("__pycache__/tinya.*.pyc"))
    assert manager.verify(handle.fingerprint or "") == {}
    assert manager.ensure(request_) == handle


def test_bytecode_of_a_run_is_no_damage(manager: EnvironmentManager, request_: EnvironmentRequest) -> None:
    """Bytecode that a run has written is removed by verify, whatever it holds, and the environment stays."""
    handle = manager.ensure(request_)
    _open_up(handle)
    run_python(handle, "import tinya")
    assert list(_site(handle).rglob("*.pyc"))
    assert manager.verify(handle.fingerprint or "") == {}
    assert not list(_site(handle).rglob("*.pyc"))
    assert manager.ensure(request_) == handle


def test_a_sealed_environment_cannot_be_written_to(
    manager: EnvironmentManager, request_: EnvironmentRequest, tmp_path: Path
) -> None:
    """No file and no folder of a sealed environment has write permission, after compiling too; it can be removed."""
    handle = manager.ensure(request_)
    for _ in range(2):
        paths = [handle.path, *handle.path.rglob("*")]
        assert [path for path in paths if not path.is_symlink() and path.stat().st_mode & 0o222] == []
        if os.geteuid() != 0:
            with pytest.raises(PermissionError):
                (_site(handle) / "tinya.py").open("a")
            with pytest.raises(PermissionError):
                (_site(handle) / "evil.py").touch()
        manager.compile_bytecode(handle)
    manager.collect_garbage(max_idle=0, grace=0)
    assert not handle.path.exists()


def test_write_permission_is_no_damage(manager: EnvironmentManager, request_: EnvironmentRequest) -> None:
    """Permission that another environment with the same files gave or took away says nothing about this one."""
    handle = manager.ensure(request_)
    (_site(handle) / "tinya.py").chmod(0o644)
    assert manager.verify(handle.fingerprint or "") == {}


def test_a_poisoned_cache_is_never_sealed(
    tmp_path: Path, manager: EnvironmentManager, request_: EnvironmentRequest
) -> None:
    """What one environment's user wrote in place is not in one built later from the cache, which is right again."""
    handle = manager.ensure(request_)
    _open_up(handle)
    module = _site(handle) / "tinya.py"
    with module.open("a") as file:
        file.write("EVIL = 1\n")
    for name in ("later", "latest"):
        log = Recording()
        manifest = requirements(tmp_path / f"{name}.txt", tmp_path / "wheels", "tinya", f"# {name}")
        handle = manager.ensure(EnvironmentRequest(name, [manifest]), log=log)
        assert run_python(handle, "import tinya; print(hasattr(tinya, 'EVIL'))") == "False"
        assert manager.verify(handle.fingerprint or "") == {}
        assert ("tinya.py is not what its package lists" in log.text) == (name == "later")


def test_a_changed_file_is_not_sealed_with_the_bytecode(
    manager: EnvironmentManager, request_: EnvironmentRequest
) -> None:
    """compile_bytecode does not make a file right that was changed before."""
    handle = manager.ensure(request_)
    _open_up(handle)
    module = _site(handle) / "tinya.py"
    module.write_text("ANSWER = 13\n")
    manager.compile_bytecode(handle)
    assert manager.verify(handle.fingerprint or "")[str(module.relative_to(handle.path))] == "has another content"


def _falsify(wheel: Path) -> None:
    """Make the RECORD of ``wheel`` wrong about its module."""
    with zipfile.ZipFile(wheel) as archive:
        files = {name: archive.read(name).decode() for name in archive.namelist()}
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text.replace(".py,sha256=", ".py,sha256=x"))


def test_wheel_with_a_wrong_record(tmp_path: Path, manager: EnvironmentManager) -> None:
    """A package whose RECORD was wrong from the start is served as it came, and the log says so."""
    wheel = make_wheel(tmp_path / "wheels", "liar", "1.0", "X = 1\n")
    _falsify(wheel)
    request = EnvironmentRequest("l", [requirements(tmp_path / "requirements.txt", wheel.parent, "liar")])
    log = Recording()
    handle = manager.ensure(request, log=log)
    assert "the RECORD of liar is wrong" in log.text
    assert manager.verify(handle.fingerprint or "") == {}
    assert run_python(handle, "import liar; print(liar.X)") == "1"


_VENDORED = {
    "big/_vendor/small/__init__.py": "X = 1\n",
    "big/_vendor/small-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: small\nVersion: 1.0\n",
    "big/_vendor/small-1.0.dist-info/RECORD": "small/__init__.py,sha256=of-another-release,6\ngone.py,sha256=x,1\n",
}


def test_a_vendored_package_is_part_of_its_parent(tmp_path: Path, manager: EnvironmentManager) -> None:
    """What a RECORD below ``_vendor`` says counts for nothing: the parent's RECORD has these files."""
    make_wheel(tmp_path / "wheels", "big", "2.0", more=_VENDORED)
    request = EnvironmentRequest("v", [requirements(tmp_path / "requirements.txt", tmp_path / "wheels", "big")])
    log = Recording()
    handle = manager.ensure(request, log=log)
    assert "building again" not in log.text
    assert handle.build is not None
    assert handle.build.packages == ("big==2.0",)


def test_packages_share_a_file(tmp_path: Path, manager: EnvironmentManager) -> None:
    """A file that several packages bring is right if it is as one of them lists it."""
    names = [f"tiny{letter}" for letter in "klmnop"]
    for name in names:
        make_wheel(tmp_path / "wheels", name, "1.0", more={"tests/__init__.py": f"# of {name}\n"})
    request = EnvironmentRequest("s", [requirements(tmp_path / "requirements.txt", tmp_path / "wheels", *names)])
    log = Recording()
    manager.ensure(request, log=log)
    assert "building again" not in log.text


def test_a_changed_file_beside_a_wrong_record(tmp_path: Path, manager: EnvironmentManager) -> None:
    """Each file is judged by itself: the changed one is installed anew, the wrong RECORD is accepted."""
    make_wheel(tmp_path / "wheels", "honest", "1.0", "ANSWER = 42\n")
    _falsify(make_wheel(tmp_path / "wheels", "liar", "1.0", "X = 1\n"))
    first = manager.ensure(
        EnvironmentRequest("h", [requirements(tmp_path / "first.txt", tmp_path / "wheels", "honest")])
    )
    _open_up(first)
    (_site(first) / "honest.py").write_text("ANSWER = 13\n")
    both = EnvironmentRequest("b", [requirements(tmp_path / "both.txt", tmp_path / "wheels", "honest", "liar")])
    log = Recording()
    handle = manager.ensure(both, log=log)
    assert run_python(handle, "import honest, liar; print(honest.ANSWER, liar.X)") == "42 1"
    assert "the RECORD of liar is wrong" in log.text


def test_verify_of_something_unknown(manager: EnvironmentManager, tmp_path: Path) -> None:
    """A fingerprint that was never built is an error that repeats it."""
    with pytest.raises(InvalidInputError, match="abc"):
        manager.verify("abc")
    assert manager.ensure(hook("true", root=tmp_path)).path.is_dir()
