"""What holds for the whole repository: who uses what, the lock, and what must not be in any file."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from debug_server.telemetry import METRICS
from tests.home import plain_git

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "debug_server"
PROGRAMS = ROOT / "runners"
LOCK = ROOT / "requirements/dev.txt"


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """One parsed module of the package."""

    name: str  # dotted, without the leading debug_server.
    path: Path
    tree: ast.Module

    @property
    def package(self) -> str:
        """Its first part: runner, store, telemetry."""
        return self.name.partition(".")[0]

    def at(self, node: ast.expr | ast.stmt) -> str:
        """Where a node is."""
        return f"{self.path.relative_to(ROOT)}:{node.lineno}"


@cache
def modules() -> tuple[Module, ...]:
    """Every module of the package."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        name = ".".join(part for part in parts if part != "__init__")
        found.append(Module(name=name, path=path, tree=ast.parse(path.read_bytes())))
    return tuple(found)


@cache
def programs() -> tuple[Module, ...]:
    """Every module of the runner programs."""
    return tuple(
        Module(
            name=".".join(path.relative_to(ROOT).with_suffix("").parts), path=path, tree=ast.parse(path.read_bytes())
        )
        for path in sorted(PROGRAMS.rglob("*.py"))
    )


@cache
def imports(module: Module) -> tuple[tuple[str, str], ...]:
    """(dotted name, where) of each import; ``from a import b`` gives ``a.b``."""
    return tuple(_imports(module))


def _imports(module: Module) -> Iterator[tuple[str, str]]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, module.at(node)) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                package = ["debug_server", *module.path.relative_to(PACKAGE).parent.parts]
                base = ".".join([*package[: len(package) - node.level + 1], *([base] if base else [])])
            yield from ((f"{base}.{alias.name}", module.at(node)) for alias in node.names)


def dotted(node: ast.expr) -> str:
    """``os.fork`` from the expression of that name; empty for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (base := dotted(node.value)):
        return f"{base}.{node.attr}"
    return ""


def within(name: str, *parents: str) -> bool:
    """Whether a dotted name is one of ``parents`` or inside one."""
    return any(name == parent or name.startswith(parent + ".") for parent in parents)


# --- who uses what

ONLY_IN = {
    "starlette": {"surfaces", "gateway"},
    "mcp": {"surfaces", "gateway"},
    "typer": {"surfaces", "gateway"},
    "grpc": {"surfaces", "gateway", "dispatch", "kanban"},
    "grpc_health": {"surfaces", "gateway", "dispatch"},
    "grpc_reflection": {"surfaces", "gateway", "dispatch"},
    "sqlite3": {"store"},
    "psycopg": {"store"},
    "subprocess": {"runner", "worktrees"},
    "multiprocessing": {"runner", "worktrees"},
    "pty": {"runner", "worktrees"},
    "prometheus_client": {"telemetry"},
    "opentelemetry": {"telemetry"},
    "logging.config": {"telemetry"},
    "debug_server.telemetry": {"app"},
}


@pytest.mark.parametrize("library", ONLY_IN)
def test_a_library_appears_only_where_it_may(library: str) -> None:
    """Web frameworks stay in surfaces, SQL in the store, processes in runner and worktrees, metrics in telemetry."""
    strangers = [
        where
        for module in modules()
        if module.package not in ONLY_IN[library]
        for name, where in imports(module)
        if within(name, library)
    ]
    assert strangers == []


STARTS_PROCESS = re.compile(
    r"(os\.(fork|forkpty|posix_spawnp?|system|popen|exec[lv]p?e?|spawn[lv]p?e?)|asyncio\.create_subprocess_\w+)"
)


def names_used(module: Module) -> Iterator[tuple[str, str]]:
    """(dotted name, where) of each import and each attribute."""
    yield from imports(module)
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Attribute):
            yield dotted(node), module.at(node)


def test_only_runner_and_worktrees_create_processes() -> None:
    """No other package uses os.fork, posix_spawn, exec, system or asyncio's subprocesses."""
    strangers = [
        f"{where} {name}"
        for module in modules()
        if module.package not in ("runner", "worktrees")
        for name, where in names_used(module)
        if STARTS_PROCESS.fullmatch(name)
    ]
    assert strangers == []


def names_git(node: ast.AST) -> bool:
    """Whether a node is an argument list of git, or looks git up."""
    if isinstance(node, ast.List | ast.Tuple):
        first = node.elts[0] if node.elts else None
    elif isinstance(node, ast.Call) and dotted(node.func).endswith("which"):
        first = node.args[0] if node.args else None
    else:
        return False
    return isinstance(first, ast.Constant) and isinstance(first.value, str) and Path(first.value).name == "git"


def test_git_is_run_only_in_worktrees() -> None:
    """No module outside worktrees has an argument list that starts with git."""
    strangers = [
        module.at(node)
        for module in modules()
        if module.package != "worktrees"
        for node in ast.walk(module.tree)
        if names_git(node) and isinstance(node, ast.expr)
    ]
    assert strangers == []


def is_standard(name: str) -> bool:
    """Whether an import is of the standard library."""
    return name.partition(".")[0] in sys.stdlib_module_names


def foreign_imports(chosen: Callable[[Module], bool], *allowed: str) -> list[str]:
    """Imports of the chosen modules that are neither standard library nor allowed."""
    return [
        f"{where} {name}"
        for module in modules()
        if chosen(module)
        for name, where in imports(module)
        if not is_standard(name) and not within(name, *allowed)
    ]


def test_the_foundation_needs_the_standard_library_only() -> None:
    """model, ports and errors import nothing but each other and the standard library."""
    own = ("debug_server.model", "debug_server.ports", "debug_server.errors")
    assert foreign_imports(lambda module: module.package in ("model", "ports", "errors"), *own) == []


def test_messages_and_client_need_little() -> None:
    """The messages import the foundation and pydantic; the client those, the messages, sockets, disk and httpx."""
    own = ("debug_server.model", "debug_server.errors", "debug_server.nearest", "debug_server.messages")
    foundation = (*own, "pydantic", "pydantic_core")
    assert foreign_imports(lambda module: module.package == "messages", *foundation) == []
    more = ("debug_server.client", "debug_server.sockets", "debug_server.disk", "debug_server.config", "httpx")
    found = foreign_imports(lambda module: module.package == "client", *foundation, *more)
    assert [item for item in found if not item.endswith(" debug_server.__version__")] == []


def test_the_keeper_needs_almost_nothing() -> None:
    """The keeper and what confines its child import the standard library, themselves, the log format and the model."""
    own = tuple(f"debug_server.{name}" for name in ("runner.keeper", "runner.sandbox", "runner.log_format", "model"))
    assert foreign_imports(lambda module: within(module.name, "runner.keeper", "runner.sandbox"), *own) == []


def test_the_filtering_proxy_needs_almost_nothing() -> None:
    """The proxy of a command imports the standard library, itself and the errors."""
    own = ("debug_server.runner.egress", "debug_server.errors")
    assert foreign_imports(lambda module: within(module.name, "runner.egress"), *own) == []


def test_the_runner_takes_only_patches_and_dependency_state_from_worktrees() -> None:
    """The runner is given a lease value: of worktrees it imports patches and dependency_state, never a pool."""
    allowed = ("debug_server.worktrees.patches", "debug_server.worktrees.dependency_state")
    strangers = [
        f"{where} {name}"
        for module in modules()
        if module.package == "runner"
        for name, where in imports(module)
        if within(name, "debug_server.worktrees") and not within(name, *allowed)
    ]
    assert strangers == []


def test_the_runner_programs_know_nothing_of_the_server() -> None:
    """They are programs of their own: of the package they import the generated messages, nothing relatively."""
    wrong = [
        f"{where} {name}"
        for module in programs()
        for name, where in imports(module)
        if within(name, "debug_server") and not within(name, "debug_server.kanban")
    ]
    wrong += [
        module.at(node)
        for module in programs()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ImportFrom) and node.level
    ]
    assert wrong == []
    strangers = [where for module in modules() for name, where in imports(module) if within(name, "runners")]
    assert strangers == [], "the server starts the programs, it does not import them"


def import_graph() -> dict[str, dict[str, str]]:
    """Each module of the package and the programs: the modules that it imports, and where it first does."""
    known = {f"debug_server.{module.name}".removesuffix("."): module for module in modules()}
    known |= {module.name.removesuffix(".__init__"): module for module in programs()}
    graph: dict[str, dict[str, str]] = {name: {} for name in known}
    for name, module in known.items():
        for imported, where in imports(module):
            target = imported if imported in known else imported.rpartition(".")[0]  # the module of an imported name
            if target in known:
                graph[name].setdefault(target, where)
    return graph


def first_cycle(graph: dict[str, dict[str, str]]) -> list[str]:
    """The modules of one import cycle, each before the one that it imports; empty if there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(reversed(error.args[1]))  # it lists each module before those that import it
    return []


def test_there_is_no_import_cycle() -> None:
    """No module imports itself through others; imports inside functions and under TYPE_CHECKING count, too."""
    graph = import_graph()
    steps = [f"{graph[name][target]}: {name} imports {target}" for name, target in pairwise(first_cycle(graph))]
    assert not steps, "\n".join(["an import cycle:", *steps])


def calls(module: Module) -> Iterator[tuple[str, ast.Call]]:
    """(method or function name, call) of each call."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Call):
            yield (node.func.attr if isinstance(node.func, ast.Attribute) else dotted(node.func)), node


def test_only_telemetry_configures_logging() -> None:
    """No other module adds handlers, sets levels or calls basicConfig."""
    strangers = [
        module.at(node)
        for module in modules()
        if module.package != "telemetry"
        for name, node in calls(module)
        if name in ("basicConfig", "dictConfig", "addHandler", "setLevel")
    ]
    assert strangers == []


def test_every_metric_in_use_is_declared() -> None:
    """Names given to count, gauge and observe are declared in telemetry.METRICS with that kind."""
    kinds = {"count": "counter", "gauge": "gauge", "observe": "histogram"}
    wrong = [
        f"{module.at(node)} {first.value!r}"
        for module in modules()
        for name, node in calls(module)
        if name in kinds and node.args
        if isinstance(first := node.args[0], ast.Constant) and str(first.value).startswith("debug_server_")
        if str(first.value) not in METRICS or METRICS[str(first.value)].kind != kinds[name]
    ]
    assert wrong == []


def test_modules_say_what_they_own() -> None:
    """Each module opens with a docstring."""
    wrong = [
        str(module.path.relative_to(ROOT))
        for module in (*modules(), *programs())
        if not module.name.endswith(("_pb2", "_pb2_grpc"))  # generated
        and module.path.read_bytes().strip()
        and not ast.get_docstring(module.tree)
    ]
    assert wrong == []


# --- the lock


def locked() -> dict[str, tuple[Requirement, list[str]]]:
    """The lock: canonical name -> (requirement, hashes)."""
    found: dict[str, tuple[Requirement, list[str]]] = {}
    text = re.sub(r"^\s*#.*\n", "", LOCK.read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    for line in text.splitlines():
        spec, *options = line.split("--hash=")
        requirement = Requirement(spec.strip())
        found[canonicalize_name(requirement.name)] = (requirement, [item.strip() for item in options])
    return found


def declared() -> list[Requirement]:
    """Every requirement that pyproject.toml states."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    groups = [project["project"]["dependencies"], *project["project"]["optional-dependencies"].values()]
    groups += project["dependency-groups"].values()
    found = [Requirement(item) for group in groups for item in group]
    return [item for item in found if item.name != project["project"]["name"]]  # the extra `all` names the others


def test_everything_in_the_lock_is_pinned_and_hashed() -> None:
    """Each locked requirement has one exact version and at least one SHA-256."""
    for requirement, hashes in locked().values():
        assert re.fullmatch(r"==[^,*]+", str(requirement.specifier)), requirement
        assert hashes, requirement
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", item) for item in hashes), requirement


def test_the_lock_names_no_place() -> None:
    """No URL, index or folder is in the lock: packages come from wherever the user's tools are told to look."""
    text = LOCK.read_text()
    assert re.findall(r"://|--index|--extra-index|--find-links|--trusted| @ |file:|^-", text, re.MULTILINE) == []


def test_the_lock_satisfies_pyproject() -> None:
    """Every dependency, optional one and development tool is locked at a version that pyproject.toml allows."""
    lock = locked()
    for wanted in declared():
        pinned = lock[canonicalize_name(wanted.name)][0]
        (version,) = [item.version for item in pinned.specifier]
        assert wanted.specifier.contains(version, prereleases=True), f"{wanted} but the lock has {version}"


def test_every_dependency_is_explained() -> None:
    """docs/dependencies.md has a row for each direct dependency and for nothing else."""
    rows = re.findall(r"^\| `([^`]+)`", (ROOT / "docs/dependencies.md").read_text(), re.MULTILINE)
    assert sorted(map(canonicalize_name, rows)) == sorted(canonicalize_name(item.name) for item in declared())


# --- what must not be in any file

# Written in pieces, so that this file does not contain what it looks for.
FORBIDDEN = {
    "registry host": r"py" r"pi\.org|python" r"hosted\.org|npm" r"js\.(?:org|com)|crates" r"\.io",
    "home folder": r"(?<![\w.])/(?:home|Users)/" r"[a-z]|(?<![\w.])/root" r"/",
    "private key": r"-----BEGIN [A-Z ]*PRIVATE" r" KEY",
    "access token": r"\b(?:gh[pousr]_|github_pat_|glpat-|xox[abp]-|sk-(?:proj-|ant-)?|AKIA|pypi-)"
    r"[A-Za-z0-9_-]{20,}",
    "signed token": r"\beyJ[A-Za-z0-9_-]{15,}\." r"eyJ",
}


def repository_files() -> list[Path]:
    """Every file that is tracked, or new and not ignored."""
    command = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    done = subprocess.run(command, env=plain_git(), check=False, capture_output=True, text=True)
    if done.returncode:
        pytest.skip("the project is not in a git repository")
    return [path for name in done.stdout.split("\0") if name and (path := ROOT / name).is_file()]


def test_no_file_names_a_host_a_home_or_a_secret() -> None:
    """No file holds a package registry's address, somebody's home folder, this checkout's place or a credential."""
    patterns = dict(FORBIDDEN)
    if len(ROOT.parts) > 2:  # a checkout at /app would find that word everywhere
        patterns["place of this checkout"] = re.escape(str(ROOT)) + r"\b"
    found = []
    for path in repository_files():
        text = path.read_bytes().decode("utf-8", "replace")
        for what, pattern in patterns.items():
            found += [f"{path.relative_to(ROOT)}: {what}: {match[0]}" for match in re.finditer(pattern, text)]
    assert found == []


def test_shell_scripts_are_clean() -> None:
    """Shell scripts parse, and shellcheck finds nothing where it is installed."""
    scripts = [path for path in repository_files() if path.read_bytes()[:64].startswith((b"#!/bin/sh", b"#!/bin/bash"))]
    assert ROOT / ".ci/run" in scripts
    for path in scripts:
        subprocess.run([path.read_text().split("\n", 1)[0][2:], "-n", str(path)], check=True)
    if shutil.which("shellcheck"):
        subprocess.run(["shellcheck", *map(str, scripts)], check=True)
