"""The docs runner finds dead links, skipped headings, open fences and stale versions, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.runners.run_program import ROOT, Done, call, commit


def check(repository: Path, **event: Any) -> Done:
    """The docs runner."""
    return call("docs_runner", repository, skill="doc.sync", **event)


GOOD = """# Title

[a page](docs/a.md#some-heading-1), [a folder](docs/), [here](#title), [elsewhere](https://example.org/x),
[by reference][ref], `[code](nowhere.md)`, ![picture](docs/p.svg "words"), [spaces](docs/a%20b.md)

```md
[in a fence](nowhere.md)
# not a heading
##### nor this
```

> ```
> quoted
> ```

[ref]: docs/a.md
"""


def test_good_pages_have_no_problems(repository: Path) -> None:
    """Links in code are no links; repeated headings have numbered anchors; references and escapes are understood."""
    page = "# A\n\n## Some heading\n\n## Some *heading*\n"
    commit(repository, {"README.md": GOOD, "docs/a.md": page, "docs/a b.md": "x\n", "docs/p.svg": ""})
    done = check(repository)
    assert (done.status, done.lines) == (0, ["3 pages checked, version not stated, 0 problems"])


def test_each_problem_is_named_by_file_and_line(repository: Path) -> None:
    """One line for each, in order, and a status other than 0."""
    text = """# Title

### Too deep

[gone](gone.md) and
[out](../../etc/passwd)
[no such heading](#nowhere)
[nor there](other.md#nowhere)

```sh
never closed
"""
    commit(repository, {"docs/x.md": text, "docs/other.md": "# Other\n"})
    done = check(repository)
    assert done.status == 1
    assert done.lines == [
        "docs/x.md:3: heading of level 3 under one of level 1",
        "docs/x.md:5: link 'gone.md' leads to a missing file",
        "docs/x.md:6: link '../../etc/passwd' leads out of the repository",
        "docs/x.md:7: link '#nowhere' names a missing heading",
        "docs/x.md:8: link 'other.md#nowhere' names a missing heading",
        "docs/x.md:10: the fence ``` is never closed",
        "3 pages checked, version not stated, 6 problems",
    ]
    assert done.reason == "docs: 6 problems in the documentation"


def test_a_version_that_is_not_the_projects_is_a_problem(repository: Path) -> None:
    """Pages that name the current version, a badge and the changelog are compared; Python's version is not ours."""
    commit(
        repository,
        {
            "VERSION": "3.3.0\n",
            "pyproject.toml": '[project]\nname = "x"\nversion = "3.3.0"\n',
            "README.md": "# X\n\n**Version:** v3.2.0\n\nNeeds Python version 3.11. The current version is 3.3.0.\n",
            "CHANGELOG.md": "# Changes\n\n## [3.2.0] - 2026-01-01\n",
            "kanban/done/TASK-1.md": "# TASK-1\n\nVersion: 1.0.0\n",
        },
    )
    done = check(repository)
    assert done.lines == [
        "CHANGELOG.md:3: the newest entry is 3.2.0, the project is at 3.3.0",
        "README.md:3: says version 3.2.0, the project is at 3.3.0",
        "3 pages checked, version 3.3.0, 2 problems",
    ]


def test_files_that_state_different_versions_are_a_problem(repository: Path) -> None:
    """Which of them is right is not guessed; a broken package.json states none."""
    commit(repository, {"VERSION": "1.0.0\n", "pyproject.toml": '[project]\nversion = "2.0.0"\n', "package.json": "{"})
    assert check(repository).lines[0] == "version: VERSION says 1.0.0, pyproject.toml says 2.0.0"


def test_hostile_pages_are_survived(repository: Path) -> None:
    """Deep nesting, control characters, bytes that are no text, a link out of the repository: lines, no traceback."""
    (repository / "deep.md").write_text(">" * 5000 + "[" * 5000 + "\n")
    (repository / "raw.md").write_bytes(b"\xff\xfe\0# x\n\n[a\x1b](\x1b[31m.md) [b](<http://[::1>)\n")
    (repository / "link.md").symlink_to("/etc/passwd")
    done = check(repository)
    assert "Traceback" not in done.reason
    assert not any("\x1b" in line for line in done.lines)
    assert done.lines[-1].startswith("3 pages checked")


def test_our_own_pages_pass() -> None:
    """The product's documentation is held to what it demands of others."""
    done = check(ROOT)
    assert (done.status, done.lines[:-1]) == (0, [])
