"""Shows the main use on this repository: runs tests for a commit, a patch and a manifest.

Everything happens in a temporary folder, which is removed at the end.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from bootstrap import LOCK, PYTHON, ROOT, uv_environment

from debug_server.model import ArtifactKind
from debug_server.store import MetadataStore, open_store

TEST = """\
from debug_server.model import parse_size


def test_sizes():
    print("this line comes from inside the workspace")
    assert parse_size("64M") == 64 << 20
"""
# Its own pytest.ini: that of the repository needs plugins that are not in this small environment.
FILES = {"demo/test_demo.py": TEST, "demo/pytest.ini": "[pytest]\n"}

PYTEST = ("python", "-m", "pytest", "demo", "-v", "-s", "-p", "no:cacheprovider", "--junitxml=junit.xml")
HANGING = ("sh", "-c", "echo working; sleep 60 & sleep 60")
GREEDY = ("sh", "-c", "head -c 1G /dev/zero | tail; echo the shell itself ends with 0")
TIMED_OUT, OUT_OF_MEMORY, REFUSED = 124, 137, 125


class StepError(Exception):
    """A step ended with an unexpected status."""


def main() -> int:
    """Run the demonstration; returns 0 if every step ended with an expected status."""
    if not (ROOT / ".git").exists():
        print(f"demo: {ROOT} is not a git clone: the demonstration needs a commit of this repository", file=sys.stderr)
        return 1
    print(f"debug-server on {ROOT.name}, in a temporary folder that is removed at the end", flush=True)
    with tempfile.TemporaryDirectory(prefix="debug-server-demo-") as name:
        return Demo(folder=Path(name), environ=child_environment()).run()


@dataclass(frozen=True, slots=True, kw_only=True)
class Demo:
    """One demonstration below ``folder``."""

    folder: Path
    environ: Mapping[str, str]

    def run(self) -> int:
        """Do four runs and print a report; stops at the first run that ends with an unexpected status."""
        write_patch(self.folder / "change.patch")
        (self.folder / ".artifacts").mkdir()  # what is stored goes here, whatever the user has configured
        job = [*("--repo", str(ROOT), "--commit", "HEAD", "--patch", "change.patch", "--timeout", "300")]
        job += ["--manifest", "demo/requirements.txt", "--artifact", "junit*.xml", "--", *PYTEST]
        limit = ["--memory", "64M", "--require", "memory", "--", *GREEDY]
        try:
            _, cold = self.step("1. A commit, a patch and a manifest become a test run", job, 0)
            _, warm = self.step("2. The same once more: mirror, tree and environment are there", job, 0)
            self.step("3. A command that takes too long", ["--timeout", "1", "--", *HANGING], TIMED_OUT)
            memory, _ = self.step("4. A command that takes too much memory", limit, OUT_OF_MEMORY, REFUSED)
        except StepError as error:
            print(f"\nThe demonstration stops: {error}")
            return 1
        if memory == REFUSED:
            print("(no memory control group can be used here: refused before it was started, as --require asks)")
        heading("What the store has recorded")
        with open_store(str(self.folder / ".artifacts/data/metadata.db")) as store:
            report(store, self.folder)
        print(f"\nThe first run took {cold:.1f} s, the second {warm:.1f} s.\nEverything ended as it should.")
        return 0

    def step(self, title: str, arguments: Sequence[str], *good: int) -> tuple[int, float]:
        """One ``debug-server run`` with its output passed through; returns its status, one of ``good``, and seconds."""
        heading(title)
        print(f"$ debug-server run {shlex.join(arguments)}", flush=True)
        began = time.monotonic()
        program = [str(PYTHON), "-m", "debug_server", "run", *arguments]
        # One stream, so that a captured demonstration reads in the order of events.
        done = subprocess.run(program, cwd=self.folder, env=self.environ, stderr=subprocess.STDOUT, check=False)
        print(f"-> exit status {done.returncode}", flush=True)
        if done.returncode not in good:
            wanted = " or ".join(map(str, good))
            raise StepError(f"step {title!r} ended with status {done.returncode} instead of {wanted}")
        return done.returncode, time.monotonic() - began


def write_patch(path: Path) -> None:
    """A patch that adds a test, and a requirements file with the pytest of the lock."""
    pinned = re.search(r"^pytest==[\w.]+", LOCK.read_text(), re.MULTILINE)
    assert pinned is not None, f"{LOCK} does not pin pytest"
    files = {**FILES, "demo/requirements.txt": f"{pinned[0]}\n"}
    path.write_text("".join(new_file(name, text) for name, text in files.items()))


def new_file(name: str, text: str) -> str:
    """A file as git writes it into a patch."""
    lines = text.splitlines()
    head = f"diff --git a/{name} b/{name}\nnew file mode 100644\n--- /dev/null\n+++ b/{name}\n"
    return f"{head}@@ -0,0 +1,{len(lines)} @@\n" + "".join(f"+{line}\n" for line in lines)


def child_environment() -> dict[str, str]:
    """This process's environment without settings of debug-server, and with the package indexes of pip."""
    found = {name: value for name, value in uv_environment().items() if not name.startswith("DEBUG_SERVER_")}
    for name in ("DATABASE_URL", "METADATA_DB_URL"):
        found.pop(name, None)
    found["DEBUG_SERVER_PATHS_ARTIFACTS"] = ".artifacts"  # of the demonstration's folder
    return found | {"PATH": f"{PYTHON.parent}{os.pathsep}{found.get('PATH', os.defpath)}"}


def heading(text: str) -> None:
    """A line between two parts."""
    print(f"\n== {text}", flush=True)


def report(store: MetadataStore, folder: Path) -> None:
    """Print how every command ended, and the JUnit files that they produced."""
    for session in store.sessions.page():
        for command in store.commands.in_session(session.id):
            reason = command.exit_reason.value if command.exit_reason else "?"
            print(f"command {command.id}  {command.status.value:<9}  {reason:<13}  log {command.log_path}")
        for artifact in store.artifacts.in_session(session.id):
            if artifact.kind is ArtifactKind.JUNIT:
                print(f"           {artifact.name} at {artifact.path}: {junit(folder / artifact.path)}")


def junit(path: Path) -> str:
    """What a JUnit file says, in a few words."""
    suite = next(ElementTree.parse(path).iter("testsuite"))
    return ", ".join(f"{name} {suite.get(name)}" for name in ("tests", "failures", "errors"))


if __name__ == "__main__":
    sys.exit(main())
