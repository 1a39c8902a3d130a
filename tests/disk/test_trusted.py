"""Files and folders are used only where nobody else can have put them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from debug_server.disk import check_trusted, is_shared, owners_of, read_trusted, why_distrusted, why_replaceable
from debug_server.errors import ConfigurationError
from tests.running import ROOT

OTHER = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file of ours, two folders deep."""
    path = tmp_path / "a" / "b" / "settings.toml"
    path.parent.mkdir(parents=True, mode=0o755)
    path.write_text("mine")
    for part in (path, path.parent, path.parent.parent):
        part.chmod(0o644 if part == path else 0o755)
    return path


def test_a_file_of_ours_is_read(file: Path) -> None:
    """Also through a link of ours, a relative one, and a descriptor that somebody opened for us."""
    link = file.parents[1] / "link"
    link.symlink_to("b/../b/settings.toml")
    assert read_trusted(file) == read_trusted(link) == b"mine"
    with file.open() as opened:
        assert read_trusted(Path(f"/dev/fd/{opened.fileno()}")) == b"mine"
    with pytest.raises(FileNotFoundError):
        read_trusted(file.with_name("missing"))


@as_root
@pytest.mark.parametrize("part", ["a/b/settings.toml", "a/b", "a"])
def test_what_belongs_to_another_user_is_refused(tmp_path: Path, file: Path, part: str) -> None:
    """The file and each folder above it; the message names the entry, whose it is and what to do."""
    os.chown(tmp_path / part, OTHER, OTHER)
    with pytest.raises(ConfigurationError, match=rf"{file} is not used: .*belongs to another user \(uid {OTHER}.*own"):
        read_trusted(file)


@pytest.mark.parametrize("part", ["a/b/settings.toml", "a/b", "a"])
def test_what_others_may_write_is_refused(tmp_path: Path, file: Path, part: str) -> None:
    """The file and each folder above it; a sticky folder only as the last one."""
    place = tmp_path / part
    place.chmod(0o777)
    with pytest.raises(ConfigurationError, match=rf"other users may write to .*: chmod go-w {place}$"):
        read_trusted(file)
    if place != file:
        place.chmod(0o1777)
        assert read_trusted(file) == b"mine"
        with pytest.raises(ConfigurationError, match="other users may write to it"):
            check_trusted(place)


@as_root
def test_an_entry_of_another_user_in_a_sticky_folder_is_refused(file: Path) -> None:
    """A folder and a link, also one that leads to a file of ours."""
    shared = file.parents[1]
    shared.chmod(0o1777)
    (shared / "link").symlink_to(file)
    assert read_trusted(shared / "link") == b"mine"
    os.lchown(shared / "link", OTHER, OTHER)
    assert f"uid {OTHER}" in str(why_distrusted(shared / "link"))
    os.chown(file.parent, OTHER, OTHER)
    assert f"uid {OTHER}" in str(why_distrusted(file))


@as_root
def test_the_private_group_of_a_user_may_write(file: Path) -> None:
    """Group write is refused unless nobody else is in the group: an umask of 002 is usual."""
    file.chmod(0o664)
    os.chown(file, 0, 0)
    assert read_trusted(file) == b"mine"  # root's own group
    os.chown(file, 0, OTHER)  # nogroup, in which others are
    assert "other users may write" in str(why_distrusted(file))


@as_root
def test_the_owner_of_a_named_path_is_trusted(file: Path) -> None:
    """Who names a file of another user trusts them, and nobody else."""
    for part in (file, file.parent, file.parent.parent):
        os.chown(part, OTHER, OTHER)
    assert read_trusted(file, owners_of(file)) == b"mine"
    os.chown(file.parent, OTHER - 1, OTHER)
    assert f"uid {OTHER - 1}" in str(why_distrusted(file, owners_of(file)))


def test_loops_of_links_end(tmp_path: Path) -> None:
    """As the kernel ends them."""
    (tmp_path / "one").symlink_to("two")
    (tmp_path / "two").symlink_to("one")
    with pytest.raises(OSError, match="symbolic links"):
        read_trusted(tmp_path / "one")


def test_folders_of_the_machine_are_trusted_in_a_user_namespace(file: Path) -> None:
    """There ``/`` may belong to nobody that has a number; a file that does is refused all the same."""
    text = (
        "import sys; from pathlib import Path; from debug_server.disk import why_distrusted\n"
        "print(*(why_distrusted(Path(path)) for path in sys.argv[1:]), sep='\\n')"
    )
    argv = ["unshare", "--user", "--map-current-user", sys.executable, "-P", "-c", text, str(file), "/etc/passwd"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    if os.geteuid() == 0:
        os.chown(file.parents[1], OTHER - 1, OTHER - 1)  # as root of the machine is for a user
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
    if done.stderr.startswith("unshare"):
        pytest.skip(f"no user namespace here: {done.stderr.strip()}")
    theirs = None if os.geteuid() == 0 else "it belongs to another user"
    own, etc = done.stdout.splitlines()
    assert own == "None" and etc.startswith(str(theirs)), done.stderr


def test_only_what_is_above_decides_whether_a_path_can_be_replaced(file: Path) -> None:
    """Everybody may write to the folder itself, and may not rename it: what is above it is ours, or sticky."""
    folder, above = file.parent, file.parents[1]
    folder.chmod(0o777)
    assert why_replaceable(folder) is None
    above.chmod(0o1777)
    assert why_replaceable(folder) is None
    above.chmod(0o777)
    assert f"other users may write to {above}" in (why_replaceable(folder) or "")


def test_what_does_not_exist_yet(file: Path) -> None:
    """What exists of the folders above it is judged; a sticky one is accepted."""
    above = file.parents[1]
    for missing in (above / "new", above / "new" / "below"):
        for mode in (0o755, 0o1777):
            above.chmod(mode)
            assert "No such file" in (why_replaceable(missing) or "")
            assert why_replaceable(missing, may_be_missing=True) is None
        above.chmod(0o777)
        assert f"other users may write to {above}" in (why_replaceable(missing, may_be_missing=True) or "")


def test_a_folder_of_ours_alone_is_not_shared(file: Path) -> None:
    """Others can put files into one that they may write to, also where it is sticky."""
    folder = file.parent
    assert not is_shared(folder)
    for mode in (0o777, 0o1777):
        folder.chmod(mode)
        assert is_shared(folder)
    assert is_shared(folder / "missing")
