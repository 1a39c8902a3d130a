"""The two bash runners: verify runs shellcheck and the repository's checks, model runs ollama where it is."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

import pytest

from tests.runners.run_program import RUNNERS, commit, files_below, script

TOOLS = ("bash", "git", "grep", "xargs", "find", "flock", "make", "cat", "touch", "mktemp", "ln", "rm")


def tools(folder: Path, *left_out: str, **programs: str) -> str:
    """A PATH with the usual tools and the given shell programs only."""
    folder.mkdir()
    for name in TOOLS:
        if name not in left_out and (found := shutil.which(name)):
            (folder / name).symlink_to(found)
    for name, text in programs.items():
        (folder / name).write_text(f"#!/bin/bash\n{text}\n")
        (folder / name).chmod(0o755)
    return str(folder)


# --- verify


def test_verify_is_content_with_good_scripts(repository: Path) -> None:
    """Scripts are found by their ending or their first line, whatever their name."""
    if shutil.which("shellcheck") is None:
        pytest.skip("shellcheck is not installed")
    good = "#!/bin/bash\necho hello\n"
    commit(repository, {"a.sh": good, "tools/run": good, "-x.sh": good, "with space": "#!/usr/bin/env bash\ntrue\n"})
    done = script("verify.sh", repository)
    assert done.status == 0, done.reason
    assert done.lines[0] == "verify: shellcheck found no problems in 4 scripts"


def test_verify_fails_on_what_shellcheck_finds(repository: Path) -> None:
    """Its findings are in the output, the status is 1, and the repository's own checks ran all the same."""
    if shutil.which("shellcheck") is None:
        pytest.skip("shellcheck is not installed")
    commit(repository, {"bad.sh": "#!/bin/bash\ncd $1\n", "Makefile": "check:\n\t@echo checks ran\n"})
    done = script("verify.sh", repository)
    assert done.status == 1
    assert "SC2086" in "\n".join(done.lines)
    assert "shellcheck found problems in 1 scripts" in done.reason
    assert done.lines[-2:] == ["checks ran", "verify: make --no-print-directory check: ok"]


def test_verify_says_when_shellcheck_is_missing(repository: Path, tmp_path: Path) -> None:
    """Scripts are parsed at least; one that does not parse fails."""
    commit(repository, {"a.sh": "#!/bin/bash\necho hello\n"})
    path = tools(tmp_path / "bin")
    done = script("verify.sh", repository, path=path)
    assert (done.status, done.lines[0]) == (0, "verify: shellcheck is not installed; 1 scripts are only parsed")
    commit(repository, {"b.sh": "#!/bin/bash\nif then\n"})
    assert script("verify.sh", repository, path=path).status == 1


def test_verify_runs_the_repositorys_own_check(repository: Path) -> None:
    """scripts/check.sh comes before make, and its failure is the runner's."""
    commit(repository, {"scripts/check.sh": "#!/bin/bash\necho own check\nexit 4\n", "Makefile": "check:\n\tfalse\n"})
    done = script("verify.sh", repository)
    assert done.status == 1
    assert "own check" in done.lines
    assert "bash scripts/check.sh ended with status 4" in done.reason


def test_verify_needs_no_git_and_follows_no_link(tmp_path: Path) -> None:
    """A plain folder without scripts is fine; a link to a broken script elsewhere is not looked at."""
    folder = tmp_path / "plain"
    folder.mkdir()
    (tmp_path / "broken.sh").write_text("#!/bin/bash\nif then\n")
    (folder / "link.sh").symlink_to(tmp_path / "broken.sh")
    done = script("verify.sh", folder)
    assert (done.status, done.lines[0]) == (0, "verify: no shell scripts")


# --- model


def test_model_says_when_its_tool_is_missing(repository: Path, tmp_path: Path) -> None:
    """Nothing is built, and nobody is told otherwise."""
    path = tools(tmp_path / "bin")
    assert script("rebuild-models.sh", repository, path=path).lines == ["model: no Modelfile here; nothing to build"]
    commit(repository, {"Modelfile": "FROM x\n", "Modelfile.Fast": "FROM y\n"})
    done = script("rebuild-models.sh", repository, path=path)
    assert (done.status, done.lines) == (0, ["model: ollama is not installed; 2 models were not built"])


def test_model_builds_each_modelfile(repository: Path, tmp_path: Path) -> None:
    """The tool is called once for each, with a name that is no option and no path; links are left out."""
    path = tools(tmp_path / "bin", ollama='printf "%s\\n" "ollama $*"')
    commit(repository, {"Modelfile": "FROM x\n", "Modelfile.Fast": "FROM y\n"})
    (repository / "Modelfile.link").symlink_to("/etc/passwd")
    done = script("rebuild-models.sh", repository, path=path, DISPATCH_REPO="ollama-local")
    assert done.status == 0, done.reason
    assert [line for line in done.lines if line.startswith("ollama")] == [
        "ollama create ollama-local -f Modelfile",
        "ollama create fast -f Modelfile.Fast",
    ]


def test_a_model_that_fails_does_not_stop_the_others(repository: Path, tmp_path: Path) -> None:
    """The status is 1, the reason names the file, the next one is built; a name with a quote is refused."""
    path = tools(tmp_path / "bin", ollama='[ "$2" != bad ] || exit 7')
    commit(repository, {"Modelfile.bad": "x", "Modelfile.good": "y", "Modelfile.$(touch x)": "z"})
    before = files_below(repository)
    done = script("rebuild-models.sh", repository, path=path)
    assert done.status == 1
    assert done.lines == ["model: good built from Modelfile.good"]
    assert "ollama ended with status 7 for Modelfile.bad" in done.reason
    assert "gives no model name" in done.reason
    assert files_below(repository) == before


def test_the_scripts_are_executable() -> None:
    """They can be started by hand."""
    for path in (RUNNERS / "scripts").glob("*.sh"):
        assert os.stat(path).st_mode & stat.S_IXUSR, path
