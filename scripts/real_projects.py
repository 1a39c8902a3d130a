"""Real projects from PyPI, each with a fault and the patch that repairs it: failing before, passing after.

Each check is one `debug-server run --repo … --patch … -- python -m pytest …` without a manifest: what a project needs is
found in its own files. Needs the package index, and a C and C++ compiler. Names on the command line choose projects.
"""

from __future__ import annotations

import html
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urljoin

from debug_server.disk import remove_tree
from debug_server.runner.environments.package_index import pip_settings

PROGRAM = Path(sys.executable).with_name("debug-server")
GIT = ["git", "-c", "user.name=check", "-c", "user.email=check@example.invalid", "-c", "init.defaultBranch=main"]
SECONDS = 900


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """A source distribution, how to break it, and the tests that show it."""

    name: str
    version: str
    about: str  # how it is built and declared
    file: str
    good: str
    bad: str
    tests: str


def _project(release: str, about: str, file: str, good: str, bad: str, tests: str) -> Project:
    name, _, version = release.partition("==")
    return Project(name=name, version=version, about=about, file=file, good=good, bad=bad, tests=tests)


PROJECTS = [
    _project(
        "click==8.5.1",
        "flit, dependency groups, uv.lock",
        "src/click/formatting.py",
        '", ".join(x[1] for x in rv)',
        '" | ".join(x[1] for x in rv)',
        "tests/test_formatting.py tests/test_options.py",
    ),
    _project(
        "requests==2.34.2",
        "setuptools, src layout",
        "src/requests/utils.py",
        "bits = 0xFFFFFFFF ^ (1 << 32 - mask) - 1",
        "bits = 0xFFFFFFFF ^ (1 << 31 - mask) - 1",
        "tests/test_utils.py",
    ),
    _project(
        "attrs==26.1.0",
        "hatchling, version from git",
        "src/attr/converters.py",
        'if val in (True, "true", "t", "yes", "y", "on", "1", 1):',
        'if val in (True, "true", "t", "yes", "y", "1", 1):',
        "tests/test_converters.py::TestToBool tests/test_filters.py",
    ),
    _project(
        "flask==3.1.3",
        "flit, requirements for tests",
        "src/flask/helpers.py",
        'not in {"0", "false", "no"})',
        'in {"0", "false", "no"})',
        "tests/test_helpers.py",
    ),
    _project(
        "markupsafe==3.0.4",
        "extension module in C",
        "src/markupsafe/_speedups.c",
        "*outp++ = 'l';",
        "*outp++ = 'L';",
        "tests/test_markupsafe.py",
    ),
    _project(
        "frozenlist==1.8.0",
        "Cython, build backend in the tree",
        "frozenlist/_frozenlist.pyx",
        'raise RuntimeError("Cannot modify frozen list.")',
        'raise ValueError("Cannot modify frozen list.")',
        "tests/test_frozenlist.py",
    ),
    _project(
        "propcache==0.5.4",
        "Cython, build backend in the tree, src layout",
        "src/propcache/_helpers_c.pyx",
        'raise AttributeError("cached property is read-only")',
        'raise TypeError("cached property is read-only")',
        "tests/test_cached_property.py tests/test_under_cached_property.py",
    ),
    _project(
        "msgpack==1.2.4",
        "Cython, setup.py",
        "msgpack/_packer.pyx",
        'raise OverflowError("Integer value out of range")',
        'raise KeyError("Integer value out of range")',
        "test/test_limits.py",
    ),
    _project(
        "ujson==6.1.0",
        "extension module in C++, setuptools_scm, tox",
        "src/ujson/encode.c",
        'PyErr_SetString(PyExc_TypeError, "expected tuple or None as separator")',
        'PyErr_SetString(PyExc_KeyError, "expected tuple or None as separator")',
        "tests/test_ujson.py",
    ),
    _project(
        "toolz==1.2.0",
        "setuptools, version from git",
        "toolz/itertoolz.py",
        "end = len(seq) % n",
        "end = len(seq) // n",
        "toolz/tests/test_itertoolz.py",
    ),
    _project(
        "pluggy==1.7.0",
        "setuptools_scm with a version file, extras",
        "src/pluggy/_tracing.py",
        'indent = "  " * self.indent',
        'indent = " " * self.indent',
        "testing/test_tracer.py",
    ),
    _project(
        "iniconfig==2.3.1",
        "setuptools_scm, uv.lock",
        "src/iniconfig/_parse.py",
        "return c in COMMENTCHARS",
        "return c not in COMMENTCHARS",
        "testing/test_iniconfig.py",
    ),
    _project(
        "tomlkit==0.15.2",
        "poetry-core",
        "tomlkit/_utils.py",
        "return date(year, month, day)",
        "return date(year, 1, day)",
        "tests/test_utils.py",
    ),
    _project(
        "poetry-core==2.5.0",
        "poetry, which builds itself",
        "src/poetry/core/utils/helpers.py",
        'return canonicalize_name(name).replace("-", "_")',
        "return canonicalize_name(name)",
        "tests/utils",
    ),
    _project(
        "packaging==26.3",
        "flit",
        "src/packaging/_musllinux.py",
        'lines[0][:4] != "musl"',
        'lines[0][:4] != "glib"',
        "tests/test_musllinux.py",
    ),
    _project(
        "more-itertools==11.2.1",
        "flit, tox",
        "more_itertools/recipes.py",
        "return list(islice(iterable, n))",
        "return list(islice(iterable, n + 1))",
        "tests/test_recipes.py",
    ),
    _project(
        "jinja2==3.1.6",
        "flit, tox",
        "src/jinja2/lexer.py",
        "return len(newline_re.findall(value))",
        "return len(newline_re.findall(value)) + 1",
        "tests/test_lexnparse.py tests/test_debug.py",
    ),
    _project(
        "itsdangerous==2.2.0",
        "flit, src layout",
        "src/itsdangerous/encoding.py",
        '.rstrip(b"=")',
        '.rstrip(b"A")',
        "tests/test_itsdangerous",
    ),
    _project(
        "werkzeug==3.1.9",
        "flit, uv.lock, dependency groups",
        "src/werkzeug/security.py",
        'return f"{actual_method}${salt}${h}"',
        'return f"{actual_method}${h}${salt}"',
        "tests/test_security.py",
    ),
    _project(
        "python-dateutil==4.0.0",
        "requirements for development, tox",
        "src/dateutil/relativedelta.py",
        "months = (dt1.year - dt2.year) * 12 +",
        "months = (dt1.year - dt2.year) * 11 +",
        "tests/test_relativedelta.py",
    ),
    _project(
        "six==1.17.0",
        "one module, setup.py that reads it",
        "six.py",
        "def add_move(move):",
        "def add_move(move, unused):",
        "test_six.py",
    ),
    _project(
        "tabulate==0.10.0",
        "setuptools_scm, tox",
        "tabulate/__init__.py",
        'fmt = "{0:<%ds}" % width',
        'fmt = "{0:>%ds}" % width',
        "test/test_output.py",
    ),
    _project(
        "humanize==4.17.0",
        "hatch-vcs with a version file",
        "src/humanize/filesize.py",
        "base = 1024 if (gnu or binary) else 1000",
        "base = 1000 if (gnu or binary) else 1024",
        "tests/test_filesize.py",
    ),
    _project(
        "inflection==0.5.1",
        "setup.py that reads a file",
        "inflection/__init__.py",
        "return word.replace('_', '-')",
        "return word.replace('_', '+')",
        "test_inflection.py",
    ),
    _project(
        "python-slugify==9.1.3",
        "setup.py with computed requirements, extras",
        "slugify/slugify.py",
        "text = text.lower()",
        "text = text.upper()",
        "tests",
    ),
    _project(
        "xmltodict==1.0.4",
        "one module, extras",
        "xmltodict.py",
        'cdata_key="#text",\n        force_cdata',
        'cdata_key="#words",\n        force_cdata',
        "tests/test_xmltodict.py",
    ),
    _project(
        "platformdirs==4.14.5",
        "hatch-vcs, tox.toml",
        "src/platformdirs/windows.py",
        "if opinion_value is not None and self.opinion:",
        "if opinion_value is not None and not self.opinion:",
        "tests/test_windows.py",
    ),
    _project(
        "distro==1.9.0",
        "setup.py beside pyproject.toml, dev-requirements",
        "src/distro/distro.py",
        'distro_id = distro_id.lower().replace(" ", "_")',
        'distro_id = distro_id.replace(" ", "_")',
        "tests/test_distro.py",
    ),
    _project(
        "boltons==26.2.0",
        "flit, tox",
        "boltons/strutils.py",
        "return f'No {units}'",
        "return f'no {units}'",
        "--doctest-modules boltons/strutils.py tests/test_strutils.py",
    ),
    _project(
        "parso==0.8.7",
        "setup.py, extras named testing",
        "parso/python/tokenize.py",
        "while start < indents[-1]:",
        "while start > indents[-1]:",
        "test/test_tokenize.py",
    ),
    _project(
        "jmespath==1.1.0",
        "setup.py and nothing else",
        "jmespath/functions.py",
        "return sum(arg) / len(arg)",
        "return sum(arg) / 2",
        "tests/test_functions.py tests/test_compliance.py",
    ),
    _project(
        "pyflakes==4.1.0",
        "setup.py, unittest style",
        "pyflakes/checker.py",
        "    def redefines(self, other):\n        if isinstance(other, SubmoduleImportation):",
        "    def redefines(self, other):\n        if not isinstance(other, SubmoduleImportation):",
        "pyflakes/test/test_imports.py",
    ),
    _project(
        "pycodestyle==2.15.0",
        "setup.py and setup.cfg",
        "pycodestyle.py",
        'return len(stripped), "W291 trailing whitespace"',
        'return len(stripped), "W299 trailing whitespace"',
        "tests/test_all.py tests/test_data.py",
    ),
    _project(
        "mistune==3.4.0",
        "setuptools, src layout",
        "src/mistune/util.py",
        's = s.replace("<", "&lt;")',
        's = s.replace("<", "&gt;")',
        "tests/test_syntax.py",
    ),
    _project(
        "markdown-it-py==4.3.0",
        "flit, extras named testing",
        "markdown_it/tree.py",
        "return not (self.token or self.nester_tokens)",
        "return not self.nester_tokens",
        "tests/test_tree.py",
    ),
    _project(
        "pathspec==1.1.1",
        "flit, tabs",
        "pathspec/util.py",
        "if path.is_dir():\n\t\tstr_path += os.sep",
        "if not path.is_dir():\n\t\tstr_path += os.sep",
        "tests",
    ),
    _project(
        "dacite==1.9.2",
        "setup.py, extras named dev",
        "dacite/types.py",
        "return is_union(type_) and type(None) in extract_generic(type_)",
        "return is_union(type_)",
        "tests/test_types.py",
    ),
    _project(
        "structlog==26.1.0",
        "hatch-vcs, dependency groups",
        "src/structlog/_frames.py",
        "    while name.startswith(ignores):",
        "    while not name.startswith(ignores):",
        "tests/test_frames.py",
    ),
    _project(
        "freezegun==1.5.5",
        "setup.py, requirements.txt for tests",
        "freezegun/api.py",
        "return 0.0 if not tick_flags[-1] else real_clock()",
        "return 1.0 if not tick_flags[-1] else real_clock()",
        "tests/test_datetimes.py tests/test_ticking.py",
    ),
    _project(
        "textdistance==4.6.3",
        "setup.py with many extras",
        "textdistance/algorithms/base.py",
        "return 1 - self.normalized_distance(*sequences)",
        "return 2 - self.normalized_distance(*sequences)",
        "tests/test_common.py",
    ),
    _project(
        "webcolors==25.10.0",
        "pdm, dependency groups",
        "src/webcolors/_conversion.py",
        "return IntegerRGB(int_value >> 16, int_value >> 8 & 0xFF, int_value & 0xFF)",
        "return IntegerRGB(int_value >> 8 & 0xFF, int_value >> 16, int_value & 0xFF)",
        "tests/test_conversion.py",
    ),
    _project(
        "tinydb==4.9.0",
        "poetry-core with groups",
        "tinydb/operations.py",
        "doc[field] += n",
        "doc[field] -= n - 1",
        "tests/test_operations.py",
    ),
    _project(
        "schema==0.7.8",
        "setup.py, tox",
        "schema/__init__.py",
        "raise SchemaWrongKeyError(",
        "raise SchemaError(",
        "test_schema.py",
    ),
]


def main() -> int:
    """Check every project, or those that are named; the exit status is the number of projects whose check failed."""
    wanted = [project for project in PROJECTS if not sys.argv[1:] or project.name in sys.argv[1:]]
    work = Path(tempfile.mkdtemp(prefix="real-projects-"))
    try:
        wrong = [project.name for project in wanted if not _check(project, work)]
    finally:
        remove_tree(work)
    print(f"{len(wanted) - len(wrong)} of {len(wanted)} projects failed with the fault and passed with its repair")
    if wrong:
        print(f"not so: {', '.join(wrong)}")
    return len(wrong)


def _check(project: Project, work: Path) -> bool:
    repository, repair = _prepare(project, work)
    before = _run(project, repository, work, [])
    after = _run(project, repository, work, ["--patch", str(repair)])
    right = before == 1 and after == 0
    print(
        f"{'ok   ' if right else 'WRONG'} {project.name} {project.version} ({project.about}): {before}, {after}",
        flush=True,
    )
    return right


def _prepare(project: Project, work: Path) -> tuple[Path, Path]:
    """A repository whose HEAD has the fault, and the patch that takes it out."""
    with tarfile.open(_download(project, work)) as tar:
        top = tar.getnames()[0].partition("/")[0]
        tar.extractall(work, filter="data")
    repository = work / top
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


def _download(project: Project, work: Path) -> Path:
    """The source distribution, from the index that pip is configured with; pip itself would build it."""
    index = pip_settings(os.environ).get("index-url", "https://pypi.org/simple").rstrip("/")
    with urllib.request.urlopen(f"{index}/{project.name}/", timeout=60) as page:
        links = re.findall(r'href="([^"]+\.tar\.gz[^"]*)"', page.read().decode())
    wanted = f"{_plain(project.name)}-{project.version}"
    for link in map(html.unescape, links):
        file = link.partition("#")[0].rpartition("/")[2]
        if (
            _plain(file.removesuffix(".tar.gz").rpartition("-")[0])
            + "-"
            + file.removesuffix(".tar.gz").rpartition("-")[2]
            == wanted
        ):
            with urllib.request.urlopen(urljoin(f"{index}/{project.name}/", link), timeout=120) as data:
                (work / file).write_bytes(data.read())
            return work / file
    raise SystemExit(f"{project.name}: the index has no source distribution of {project.version}")


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _git(repository: Path, *arguments: str) -> bytes:
    return subprocess.run([*GIT, *arguments], cwd=repository, check=True, stdout=subprocess.PIPE).stdout


def _commit(repository: Path, message: str) -> None:
    _git(repository, "add", "--all", "--force")
    _git(repository, "commit", "-q", "-m", message)


def _run(project: Project, repository: Path, work: Path, extra: list[str]) -> int:
    began = time.monotonic()
    command = ["python", "-m", "pytest", "-q", "-p", "no:cacheprovider", *project.tests.split()]
    done = subprocess.run(
        [PROGRAM, "run", "--repo", str(repository), "--timeout", str(SECONDS), *extra, "--", *command],
        cwd=work,
        capture_output=True,
        check=False,
    )
    tail = [*done.stdout.decode("utf-8", "replace").splitlines()[-1:], *done.stderr.decode().splitlines()[-1:]]
    print(f"  {time.monotonic() - began:.1f} s: {' / '.join(tail)}", flush=True)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
