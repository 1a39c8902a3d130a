"""EnvironmentManager.ensure: what is shared, what is built anew, what is refused."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from pathlib import Path

import pytest

from debug_server.errors import EnvironmentBuildError
from debug_server.runner.environment import EnvironmentHandle, EnvironmentManager, EnvironmentRequest
from debug_server.runner.environments.probes import ProbeCache
from debug_server.runner.environments.requirements import references
from debug_server.runner.keeper.linux import stat_fields
from tests.runner.environment_support import Recording, environments, hook, make_wheel, requirements, run_python
from tests.running import eventually


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv-cache"))


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    """A folder with tinya 1.0 and 2.0, and tinyb which needs tinya."""
    make_wheel(tmp_path / "wheels", "tinya", "1.0")
    make_wheel(tmp_path / "wheels", "tinya", "2.0")
    make_wheel(tmp_path / "wheels", "tinyb", "1.0", requires=["tinya"])
    return tmp_path / "wheels"


@pytest.fixture
def manager(tmp_path: Path) -> EnvironmentManager:
    """A manager of its own."""
    return EnvironmentManager(tmp_path / "envs")


def test_seed_example(tmp_path: Path, wheels: Path, manager: EnvironmentManager) -> None:
    """The call of the runner's documentation works: handle, link by name, state file, and a second call that hits."""
    worktree = tmp_path / "worktree"
    requirements(worktree / "requirements.txt", wheels, "tinyb")
    request = EnvironmentRequest(
        name="session-123",
        manifests=[worktree / "requirements.txt"],
        metadata={"python": f"{sys.version_info[0]}.{sys.version_info[1]}"},
    )
    handle = manager.ensure(request, force=False)
    assert handle.python_path.is_file()
    assert handle.bin_path == handle.path / "bin"
    assert handle.python_path.parent == handle.bin_path
    assert run_python(handle, "import tinya, tinyb, sys; print(tinya.VERSION, sys.prefix)") == f"2.0 {handle.path}"
    assert (manager.root / "session-123").resolve() == handle.path.resolve()
    state = json.loads((manager.root / ".state" / "session-123.json").read_text())
    assert state["fingerprint"] == handle.fingerprint
    again = manager.ensure(request)
    assert again == handle
    assert handle.build is not None
    assert again.build is not None
    assert (handle.build.hit, again.build.hit) == (False, True)
    assert handle.build.packages == ("tinya==2.0", "tinyb==1.0")


def test_same_manifests_share_one_environment(tmp_path: Path, wheels: Path, manager: EnvironmentManager) -> None:
    """Two workspaces and two managers with equal manifests get the same folder; their times do not count."""
    one = requirements(tmp_path / "one/requirements.txt", wheels, "tinya")
    two = requirements(tmp_path / "two/requirements.txt", wheels, "tinya")
    os.utime(two, (1, 1))
    first = manager.ensure(EnvironmentRequest("a", [one]))
    second = EnvironmentManager(manager.root).ensure(EnvironmentRequest("b", [two]))
    assert first == second
    assert (manager.root / "a").resolve() == (manager.root / "b").resolve()


def test_changed_content_is_another_environment(tmp_path: Path, wheels: Path, manager: EnvironmentManager) -> None:
    """A changed manifest, included file, constraint or metadata misses, says why, and leaves the old one alone."""
    manifest = requirements(tmp_path / "p/requirements.txt", wheels, "-r sub/base.txt", "-c limits.txt")
    requirements(tmp_path / "p/sub/base.txt", wheels, "--requirement=more.txt")
    requirements(tmp_path / "p/sub/more.txt", wheels, "tinya")
    limits = tmp_path / "p/limits.txt"
    limits.write_text("tinya<2\n")
    request = EnvironmentRequest("p", [manifest], project_root=tmp_path / "p")
    seen = [manager.ensure(request)]
    assert run_python(seen[0], "import tinya; print(tinya.VERSION)") == "1.0"
    limits.write_text("tinya\n")
    seen.append(manager.ensure(request))
    assert run_python(seen[1], "import tinya; print(tinya.VERSION)") == "2.0"
    requirements(tmp_path / "p/sub/more.txt", wheels, "tinya==1.0")
    seen.append(manager.ensure(request))
    assert seen[2].build is not None
    assert seen[2].build.reason == "changed: manifests"
    seen.append(manager.ensure(EnvironmentRequest("p", [manifest], {"note": "x"}, project_root=tmp_path / "p")))
    assert seen[3].build is not None
    assert seen[3].build.reason == "changed: options"
    assert len({handle.path for handle in seen}) == 4
    assert run_python(seen[0], "import tinya; print(tinya.VERSION)") == "1.0"


def test_force_builds_beside_the_old_one(tmp_path: Path, wheels: Path, manager: EnvironmentManager) -> None:
    """force gives a new folder and moves the name; who holds the old environment keeps it."""
    request = EnvironmentRequest("f", [requirements(tmp_path / "requirements.txt", wheels, "tinya")])
    old = manager.ensure(request)
    with old.hold():
        new = manager.ensure(request, force=True)
        assert new.path != old.path
        assert new.fingerprint == old.fingerprint
        assert new.build is not None
        assert (new.build.hit, new.build.reason) == (False, "forced")
        assert manager.collect_garbage(grace=0).removed == ()
        assert run_python(old, "import tinya; print(1)") == "1"
    assert (manager.root / "f").resolve() == new.path.resolve()
    assert manager.ensure(request) == new
    assert manager.collect_garbage(grace=0).removed == (old.path.name,)


def test_log_hears_the_builder(tmp_path: Path, wheels: Path, manager: EnvironmentManager) -> None:
    """The tool's own lines reach the log, on the stream ``system``."""
    log = Recording()
    manager.ensure(EnvironmentRequest("l", [requirements(tmp_path / "requirements.txt", wheels, "tinya")]), log=log)
    assert "+ tinya==2.0" in log.text
    assert log.streams == {"system"}


def test_without_manifests(manager: EnvironmentManager) -> None:
    """No manifest is a bare environment."""
    handle = manager.ensure(EnvironmentRequest("bare"))
    assert run_python(handle, "import sys; print(sys.prefix)") == str(handle.path)
    assert handle.build is not None
    assert handle.build.packages == ()


def test_hashes_are_required_once_one_is_given(tmp_path: Path, wheels: Path, manager: EnvironmentManager) -> None:
    """A right hash installs; a wrong one, or a requirement without one beside it, fails."""
    digest = hashlib.sha256((wheels / "tinya-1.0-py3-none-any.whl").read_bytes()).hexdigest()
    good = requirements(tmp_path / "good/requirements.txt", wheels, f"tinya==1.0 --hash=sha256:{digest}")
    assert manager.ensure(EnvironmentRequest("good", [good])).python_path.exists()
    bad = requirements(tmp_path / "bad/requirements.txt", wheels, f"tinya==1.0 --hash=sha256:{'0' * 64}")
    with pytest.raises(EnvironmentBuildError, match=r"(?i)hash"):
        manager.ensure(EnvironmentRequest("bad", [bad]))
    half = requirements(tmp_path / "half/requirements.txt", wheels, f"tinyb==1.0 --hash=sha256:{digest}", "tinya==1.0")
    with pytest.raises(EnvironmentBuildError, match=r"(?i)hash"):
        manager.ensure(EnvironmentRequest("half", [half]))


def test_missing_manifest_is_named(tmp_path: Path, manager: EnvironmentManager) -> None:
    """A manifest that does not exist fails before anything is built."""
    with pytest.raises(EnvironmentBuildError, match=r"requirements\.txt.*does not exist"):
        manager.ensure(EnvironmentRequest("m", [tmp_path / "requirements.txt"]))
    assert environments(manager) == []


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("-r ../secret.txt", "outside the project root"),
        ("-c /etc/hostname", "outside the project root"),
        ("-r link.txt", "outside the project root"),
        ("-e ..", "outside the project root"),
        ("-r https://example.invalid/r.txt", "only files of the project"),
        ("-r gone.txt", "does not exist"),
    ],
)
def test_includes_stay_in_the_project(tmp_path: Path, manager: EnvironmentManager, line: str, message: str) -> None:
    """An include that leaves the project, by path, symlink or address, is refused."""
    (tmp_path / "secret.txt").write_text("tinya\n")
    project = tmp_path / "project"
    project.mkdir()
    (project / "link.txt").symlink_to(tmp_path / "secret.txt")
    (project / "requirements.txt").write_text(f"{line}\n")
    with pytest.raises(EnvironmentBuildError, match=message):
        manager.ensure(EnvironmentRequest("x", [project / "requirements.txt"]))


def test_a_probe_leaves_nothing_running(tmp_path: Path) -> None:
    """A program that a caller names as its Python may be anything: what it started is ended with it."""
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\nsleep 600 > /dev/null 2>&1 &\necho $! > {tmp_path}/pid\necho answer\n")
    program.chmod(0o755)
    assert ProbeCache(tmp_path / "probes.json").ask(str(program), ()) == "answer"
    pid = int((tmp_path / "pid").read_text())
    eventually(lambda: (fields := stat_fields(pid)) is None or fields[0] == "Z", what="the end of what it started")


def test_requirements_that_want_to_keep_us_busy() -> None:
    """A line of brackets that nobody closes is read once, not once from each of them."""
    assert references(f"./x{'[' * 400_000}\n./y[dev]\n")[1].target == "./y"


def test_includes_may_form_a_circle(tmp_path: Path, wheels: Path, manager: EnvironmentManager) -> None:
    """Files that include each other are read once each."""
    one = requirements(tmp_path / "p/one.txt", wheels, "-r two.txt", "tinya")
    requirements(tmp_path / "p/two.txt", wheels, "-r one.txt", "tinyb")
    assert manager.plan_fingerprint(EnvironmentRequest("x", [one]))


def test_unresolvable_fails_with_the_tools_words(tmp_path: Path, wheels: Path, manager: EnvironmentManager) -> None:
    """What cannot be resolved is an EnvironmentBuildError that quotes uv, and leaves nothing behind."""
    manifest = requirements(tmp_path / "requirements.txt", wheels, "tinya==9.9")
    with pytest.raises(EnvironmentBuildError, match=r"(?s)uv pip install.*tinya.*9\.9"):
        manager.ensure(EnvironmentRequest("u", [manifest]))
    assert environments(manager) == []
    requirements(manifest, wheels, "tinya")
    assert manager.ensure(EnvironmentRequest("u", [manifest])).python_path.exists()


def test_index_that_is_down(tmp_path: Path, manager: EnvironmentManager, monkeypatch: pytest.MonkeyPatch) -> None:
    """An index that refuses connections is an EnvironmentBuildError, without its password."""
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("UV_DEFAULT_INDEX", raising=False)  # it would be used instead
    (tmp_path / "requirements.txt").write_text("--index-url http://user:s3cret@127.0.0.1:9/simple\ntinya\n")
    log = Recording()
    with pytest.raises(EnvironmentBuildError, match=r"127\.0\.0\.1") as caught:
        manager.ensure(EnvironmentRequest("d", [tmp_path / "requirements.txt"]), log=log)
    assert "s3cret" not in str(caught.value) + log.text
    assert environments(manager) == []


def test_folder_in_the_way_of_a_name(tmp_path: Path, manager: EnvironmentManager) -> None:
    """A real folder under the environment's name is not overwritten."""
    (manager.root / "mine").mkdir()
    (manager.root / "mine" / "precious").write_text("x")
    with pytest.raises(EnvironmentBuildError, match="mine' cannot be replaced by a link to the environment"):
        manager.ensure(EnvironmentRequest("mine"))
    assert (manager.root / "mine" / "precious").read_text() == "x"


@pytest.mark.parametrize("name", ["../escape", "a/b", ".state", "with space", "n" * 400])
def test_any_name_stays_in_the_root(tmp_path: Path, manager: EnvironmentManager, name: str) -> None:
    """A name that is no file name is made one; nothing appears outside the root."""
    before = set(tmp_path.iterdir())
    manager.ensure(hook("true", name=name, root=tmp_path))
    assert set(tmp_path.iterdir()) == before | {manager.root}
    assert len([path for path in manager.root.iterdir() if path.is_symlink()]) == 1


def test_manifest_that_changes_during_the_build(tmp_path: Path, manager: EnvironmentManager) -> None:
    """An environment that may not be what its fingerprint says is not published."""
    manifest = tmp_path / "requirements.txt"
    manifest.write_text("one\n")
    request = EnvironmentRequest("c", [manifest], {"hook": f"echo two > {manifest}"})
    with pytest.raises(EnvironmentBuildError, match="changed while"):
        manager.ensure(request)
    assert environments(manager) == []


def test_disk_that_refuses(tmp_path: Path, manager: EnvironmentManager) -> None:
    """A builder that cannot write fails with its message; the cache stays intact and works afterwards."""
    broken = hook('echo "No space left on device" >&2; exit 1', root=tmp_path)
    with pytest.raises(EnvironmentBuildError, match="No space left on device"):
        manager.ensure(broken)
    assert environments(manager) == []
    assert manager.ensure(hook("true", root=tmp_path)).path.is_dir()


def test_handle_by_hand() -> None:
    """A handle can be made from its three fields, as users of the contract do, and be held."""
    handle = EnvironmentHandle(Path("/x"), Path("/x/bin/python"), None)
    assert handle.bin_path == Path("/x/bin")
    with handle.hold() as held:
        assert held is handle
