"""The security runner finds credentials, names where they are, and never shows one."""

from __future__ import annotations

import random
import string
from pathlib import Path
from typing import Any

import pytest

from tests.runners.run_program import Done, call, commit


def audit(repository: Path, **event: Any) -> Done:
    """The security runner."""
    return call("security_runner", repository, skill="cred.audit", **event)


def made_up(beginning: str, length: int = 36) -> str:
    """A credential that was never anybody's; made here, so that no file of this project holds one."""
    chosen = random.Random(beginning)
    return beginning + "".join(chosen.choice(string.ascii_letters + string.digits) for _ in range(length))


def test_a_clean_repository_ends_with_status_0(repository: Path) -> None:
    """A mention of how a token begins, and a long harmless word, are no findings."""
    commit(
        repository, {"a.md": "tokens start with ghp_ or sk-or-\n", "b.py": "NAME = 'task-force-internationalisation'\n"}
    )
    done = audit(repository)
    assert (done.status, done.lines) == (0, ["3 files scanned, 0 findings"])


@pytest.mark.parametrize(
    ("beginning", "length", "kind"),
    [
        ("sk-or-", 48, "listed pattern"),
        ("ghp_", 36, "GitHub Token"),
        ("AIza", 35, "listed pattern"),
        ("AKIA", 0, "AWS Access Key"),
    ],
)
def test_a_credential_is_named_by_file_and_line_and_masked(
    repository: Path, beginning: str, length: int, kind: str
) -> None:
    """Status 1, the place and the kind; the value is in neither stream."""
    secret = made_up(beginning, length) if length else beginning + made_up("", 16).upper()
    commit(repository, {"deep/er/settings.py": f"# one\n# two\nTOKEN = '{secret}'\n"})
    done = audit(repository)
    assert done.status == 1
    assert done.lines[0] == f"deep/er/settings.py:3: {kind}: {secret[:4]}… ({len(secret)} characters)"
    assert done.reason == "security: 1 possible credentials: remove them and revoke those that were pushed"
    assert secret not in "\n".join([*done.lines, done.reason])
    assert secret[4:12] not in "\n".join([*done.lines, done.reason])


def test_the_operators_patterns_replace_the_usual_ones(repository: Path) -> None:
    """scan_patterns of runners.yml are plain beginnings: a dot in one is a dot."""
    commit(repository, {"a.txt": f"{made_up('ac.me-')}\n{made_up('acXme-')}\n{made_up('AIza', 35)}\n"})
    done = audit(repository, scan_patterns=["ac.me-"])
    assert [line.split(" ")[0] for line in done.lines if ".txt" in line] == ["a.txt:1:"]


def test_a_line_that_was_looked_at_is_allowed(repository: Path) -> None:
    """The scanner's usual remark ends a false alarm."""
    remark = "# pragma: allowlist secret"
    commit(repository, {"a.py": f"A = '{made_up('ghp_')}'  {remark}\nB = '{made_up('sk-or-')}'  {remark}\n"})
    assert audit(repository).status == 0


def test_ignored_files_and_links_are_not_read(repository: Path, tmp_path: Path) -> None:
    """.env is ignored on purpose, and a link leads to somebody else's file."""
    (tmp_path / "outside").write_text(made_up("ghp_"))
    (repository / "link").symlink_to(tmp_path / "outside")
    (repository / "folder").symlink_to(tmp_path)
    commit(repository, {".gitignore": ".env\n"})
    (repository / ".env").write_text(made_up("ghp_"))
    assert audit(repository).status == 0
    reached = audit(repository, trigger="push", paths=["link", "folder/outside"])
    assert (reached.status, reached.lines) == (0, ["1 files scanned, 0 findings", "not scanned: folder/outside"])


def test_a_push_scans_what_it_changed(repository: Path) -> None:
    """Paths out of the repository are refused; deleted ones are passed over."""
    commit(repository, {"old.txt": made_up("ghp_"), "new.txt": "fine\n"})
    assert audit(repository, trigger="push", paths=["new.txt", "deleted.txt"]).status == 0
    assert audit(repository, trigger="push", paths=["old.txt"]).status == 1
    assert "not a path inside" in audit(repository, trigger="push", paths=["../other/x"]).reason
    escaped = audit(repository, trigger="push", paths=["new.txt", r"caf\xe9.txt"])
    assert escaped.status == 1, "a name that was told with escapes cannot be opened, so all files are scanned"


def test_strange_files_are_survived(repository: Path) -> None:
    """Binary files, one long line, a name with a line break: scanned, and each finding stays on one line."""
    (repository / "binary").write_bytes(bytes(range(256)) * 100 + made_up("ghp_").encode())
    (repository / "long").write_bytes(b"x" * (2 << 20) + b" " + made_up("sk-or-").encode())
    (repository / "huge").write_bytes(b"\0" * (9 << 20))
    (repository / "two\nlines").write_text(made_up("AIza", 35))
    done = audit(repository)
    assert done.status == 1
    found = [line.split(":")[0] for line in done.lines if "characters" in line]
    assert found == ["binary", "long", "two lines"]
    assert "not scanned: huge" in done.lines
