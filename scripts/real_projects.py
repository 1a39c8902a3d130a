"""Real projects from PyPI, each with a fault and a patch that repairs it: failing before, passing after.

Each check is one `debug-server run --repo … --patch … --manifest … -- python -m pytest …`. Needs the package index.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from debug_server.disk import remove_tree

PROGRAM = Path(sys.executable).with_name("debug-server")
GIT = ["git", "-c", "user.name=check", "-c", "user.email=check@example.invalid", "-c", "init.defaultBranch=main"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """A source distribution, how to break it, and what its tests need."""

    name: str
    version: str
    file: str
    good: str
    bad: str
    requirements: tuple[str, ...]
    tests: tuple[str, ...]


PROJECTS = [
    Project(
        name="click",
        version="8.5.1",
        file="src/click/formatting.py",
        good='", ".join(x[1] for x in rv)',
        bad='" | ".join(x[1] for x in rv)',
        requirements=("pytest",),
        tests=("tests/test_formatting.py", "tests/test_options.py"),
    ),
    Project(
        name="requests",
        version="2.34.2",
        file="src/requests/utils.py",
        good="bits = 0xFFFFFFFF ^ (1 << 32 - mask) - 1",
        bad="bits = 0xFFFFFFFF ^ (1 << 31 - mask) - 1",
        requirements=("pytest", "pytest-httpbin==2.1.0", "httpbin~=0.10.0", "pytest-mock", "trustme", "pysocks"),
        tests=("tests/test_utils.py",),
    ),
    Project(
        name="attrs",
        version="26.1.0",
        file="src/attr/converters.py",
        good='if val in (True, "true", "t", "yes", "y", "on", "1", 1):',
        bad='if val in (True, "true", "t", "yes", "y", "1", 1):',
        requirements=("pytest", "hypothesis", "cloudpickle", "pympler"),
        tests=("tests/test_converters.py::TestToBool", "tests/test_validators.py", "tests/test_filters.py"),
    ),
    Project(
        name="flask",
        version="3.1.3",
        file="src/flask/helpers.py",
        good='not in {"0", "false", "no"})',
        bad='in {"0", "false", "no"})',
        requirements=(
            "pytest<9",
            "asgiref",
            "greenlet",
            "python-dotenv",
        ),  # its fixtures know the internals of pytest 8
        tests=("tests/test_helpers.py", "tests/test_basic.py"),
    ),
]


def main() -> int:
    """Check every project; the exit status is the number of projects whose check failed."""
    work = Path(tempfile.mkdtemp(prefix="real-projects-"))
    try:
        pip = _pip(work)
        wrong = [project.name for project in PROJECTS if not _check(project, work, pip)]
    finally:
        remove_tree(work)
    print(f"{len(PROJECTS) - len(wrong)} of {len(PROJECTS)} projects failed with the fault and passed with its repair")
    return len(wrong)


def _pip(work: Path) -> Path:
    """Downloads source distributions, which uv does not."""
    subprocess.run([sys.executable, "-m", "venv", str(work / "pip")], check=True)
    return work / "pip" / "bin" / "pip"


def _check(project: Project, work: Path, pip: Path) -> bool:
    repository, repair = _prepare(project, work, pip)
    before = _run(project, repository, work, [])
    after = _run(project, repository, work, ["--patch", str(repair)])
    print(f"{project.name} {project.version}: status {before} with the fault, {after} with its repair", flush=True)
    return before == 1 and after == 0


def _prepare(project: Project, work: Path, pip: Path) -> tuple[Path, Path]:
    """A repository whose HEAD has the fault, and the patch that takes it out."""
    wanted = f"{project.name}=={project.version}"
    options = ["download", "-q", "--no-deps", "--no-binary", ":all:", "--dest", str(work)]
    subprocess.run([pip, *options, wanted], check=True, stderr=subprocess.DEVNULL)
    archive = work / f"{project.name}-{project.version}.tar.gz"
    with tarfile.open(archive) as tar:
        tar.extractall(work, filter="data")
    repository = work / f"{project.name}-{project.version}"
    dependencies = _runtime_dependencies(repository)
    (repository / "ci-requirements.txt").write_text("\n".join([*project.requirements, *dependencies]) + "\n")
    _git(repository, "init", "-q")
    _commit(repository, "as released")
    source = repository / project.file
    text = source.read_text()
    if text.count(project.good) != 1:
        raise SystemExit(f"{project.name}: {project.good!r} is not found once in {project.file}")
    source.write_text(text.replace(project.good, project.bad))
    _commit(repository, "with a fault")
    repair = work / f"{project.name}.patch"
    repair.write_bytes(_git(repository, "diff", "--binary", "HEAD", "HEAD~1"))
    return repository, repair


def _runtime_dependencies(repository: Path) -> list[str]:
    import tomllib

    project = tomllib.loads((repository / "pyproject.toml").read_text())["project"]
    return list(project.get("dependencies", []))


def _git(repository: Path, *arguments: str) -> bytes:
    return subprocess.run([*GIT, *arguments], cwd=repository, check=True, stdout=subprocess.PIPE).stdout


def _commit(repository: Path, message: str) -> None:
    _git(repository, "add", "--all", "--force")
    _git(repository, "commit", "-q", "-m", message)


def _run(project: Project, repository: Path, work: Path, extra: list[str]) -> int:
    began = time.monotonic()
    options = ["--repo", str(repository), "--commit", "HEAD", "--manifest", "ci-requirements.txt", "--timeout", "300"]
    command = ["python", "-m", "pytest", "-q", "-p", "no:cacheprovider", *project.tests]
    done = subprocess.run(
        [PROGRAM, "run", *options, *extra, "--", *command], cwd=work, capture_output=True, check=False
    )
    tail = [*done.stdout.decode("utf-8", "replace").splitlines()[-1:], *done.stderr.decode().splitlines()[-1:]]
    print(f"  {time.monotonic() - began:.1f} s: {' / '.join(tail)}", flush=True)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
