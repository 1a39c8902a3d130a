"""Real projects from PyPI, each with a fault and the patch that repairs it: failing before, passing after.

Each check is one `debug-server run --repo … --patch … -- python -m pytest …` without a manifest: what a project needs
is found in its own files. Needs the package index, and a C and C++ compiler. Names on the command line choose projects.
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

    release: str
    about: str  # how it is built and declared
    file: str
    good: str
    bad: str
    tests: str

    @property
    def name(self) -> str:
        """The name in the index."""
        return self.release.partition("==")[0]

    @property
    def version(self) -> str:
        """The version in the index."""
        return self.release.partition("==")[2]


PROJECTS = [
    Project(
        release="click==8.5.1",
        about="flit, dependency groups, uv.lock",
        file="src/click/formatting.py",
        good='", ".join(x[1] for x in rv)',
        bad='" | ".join(x[1] for x in rv)',
        tests="tests/test_formatting.py tests/test_options.py",
    ),
    Project(
        release="requests==2.34.2",
        about="setuptools, src layout",
        file="src/requests/utils.py",
        good="bits = 0xFFFFFFFF ^ (1 << 32 - mask) - 1",
        bad="bits = 0xFFFFFFFF ^ (1 << 31 - mask) - 1",
        tests="tests/test_utils.py",
    ),
    Project(
        release="attrs==26.1.0",
        about="hatchling, version from git",
        file="src/attr/converters.py",
        good='if val in (True, "true", "t", "yes", "y", "on", "1", 1):',
        bad='if val in (True, "true", "t", "yes", "y", "1", 1):',
        tests="tests/test_converters.py::TestToBool tests/test_filters.py",
    ),
    Project(
        release="flask==3.1.3",
        about="flit, requirements for tests",
        file="src/flask/helpers.py",
        good='not in {"0", "false", "no"})',
        bad='in {"0", "false", "no"})',
        tests="tests/test_helpers.py",
    ),
    Project(
        release="markupsafe==3.0.4",
        about="extension module in C",
        file="src/markupsafe/_speedups.c",
        good="*outp++ = 'l';",
        bad="*outp++ = 'L';",
        tests="tests/test_markupsafe.py",
    ),
    Project(
        release="frozenlist==1.8.0",
        about="Cython, build backend in the tree",
        file="frozenlist/_frozenlist.pyx",
        good='raise RuntimeError("Cannot modify frozen list.")',
        bad='raise ValueError("Cannot modify frozen list.")',
        tests="tests/test_frozenlist.py",
    ),
    Project(
        release="propcache==0.5.4",
        about="Cython, build backend in the tree, src layout",
        file="src/propcache/_helpers_c.pyx",
        good='raise AttributeError("cached property is read-only")',
        bad='raise TypeError("cached property is read-only")',
        tests="tests/test_cached_property.py tests/test_under_cached_property.py",
    ),
    Project(
        release="msgpack==1.2.4",
        about="extension module in C that Cython made, setup.py",
        file="msgpack/pack_template.h",
        good="static const unsigned char d = 0xc3;",
        bad="static const unsigned char d = 0xc2;",
        tests="test/test_case.py",
    ),
    Project(
        release="ujson==6.1.0",
        about="extension module in C++, setuptools_scm, tox",
        file="src/ujson/encode.c",
        good='PyErr_SetString(PyExc_TypeError, "expected tuple or None as separator")',
        bad='PyErr_SetString(PyExc_KeyError, "expected tuple or None as separator")',
        tests="tests/test_ujson.py",
    ),
    Project(
        release="toolz==1.2.0",
        about="setuptools, version from git",
        file="toolz/itertoolz.py",
        good="end = len(seq) % n",
        bad="end = len(seq) // n",
        tests="toolz/tests/test_itertoolz.py",
    ),
    Project(
        release="pluggy==1.7.0",
        about="setuptools_scm with a version file, extras",
        file="src/pluggy/_tracing.py",
        good='indent = "  " * self.indent',
        bad='indent = " " * self.indent',
        tests="testing/test_tracer.py",
    ),
    Project(
        release="iniconfig==2.3.1",
        about="setuptools_scm, uv.lock",
        file="src/iniconfig/_parse.py",
        good="return c in COMMENTCHARS",
        bad="return c not in COMMENTCHARS",
        tests="testing/test_iniconfig.py",
    ),
    Project(
        release="tomlkit==0.15.2",
        about="poetry-core",
        file="tomlkit/_utils.py",
        good="return date(year, month, day)",
        bad="return date(year, 1, day)",
        tests="tests/test_utils.py",
    ),
    Project(
        release="poetry-core==2.5.0",
        about="poetry, which builds itself",
        file="src/poetry/core/utils/helpers.py",
        good='return "text/x-rst"',
        bad='return "text/rst"',
        tests="tests/utils",
    ),
    Project(
        release="packaging==26.3",
        about="flit",
        file="src/packaging/_musllinux.py",
        good='lines[0][:4] != "musl"',
        bad='lines[0][:4] != "glib"',
        tests="tests/test_musllinux.py",
    ),
    Project(
        release="more-itertools==11.2.1",
        about="flit, tox",
        file="more_itertools/recipes.py",
        good="return list(islice(iterable, n))",
        bad="return list(islice(iterable, n + 1))",
        tests="tests/test_recipes.py",
    ),
    Project(
        release="jinja2==3.1.6",
        about="flit, tox",
        file="src/jinja2/lexer.py",
        good="stripped = text.rstrip()",
        bad="stripped = text.lstrip()",
        tests="tests/test_lexnparse.py",
    ),
    Project(
        release="itsdangerous==2.2.0",
        about="flit, src layout",
        file="src/itsdangerous/encoding.py",
        good='.rstrip(b"=")',
        bad='.rstrip(b"A")',
        tests="tests/test_itsdangerous",
    ),
    Project(
        release="werkzeug==3.1.9",
        about="flit, uv.lock, dependency groups",
        file="src/werkzeug/security.py",
        good='return f"{actual_method}${salt}${h}"',
        bad='return f"{actual_method}${h}${salt}"',
        tests="tests/test_security.py",
    ),
    Project(
        release="python-dateutil==4.0.0",
        about="requirements for development, tox",
        file="src/dateutil/relativedelta.py",
        good="months = (dt1.year - dt2.year) * 12 +",
        bad="months = (dt1.year - dt2.year) * 11 +",
        tests="tests/test_relativedelta.py",
    ),
    Project(
        release="six==1.17.0",
        about="one module, setup.py that reads it",
        file="six.py",
        good="def add_move(move):",
        bad="def add_move(move, unused):",
        tests="test_six.py",
    ),
    Project(
        release="tabulate==0.10.0",
        about="setuptools_scm, tox",
        file="tabulate/__init__.py",
        good='fmt = "{0:<%ds}" % width',
        bad='fmt = "{0:>%ds}" % width',
        tests="test/test_output.py",
    ),
    Project(
        release="humanize==4.17.0",
        about="hatch-vcs with a version file",
        file="src/humanize/filesize.py",
        good="base = 1024 if (gnu or binary) else 1000",
        bad="base = 1000 if (gnu or binary) else 1024",
        tests="tests/test_filesize.py",
    ),
    Project(
        release="inflection==0.5.1",
        about="setup.py that reads a file",
        file="inflection/__init__.py",
        good="return word.replace('_', '-')",
        bad="return word.replace('_', '+')",
        tests="test_inflection.py",
    ),
    Project(
        release="python-slugify==9.1.3",
        about="setup.py with computed requirements, extras",
        file="slugify/slugify.py",
        good="text = text.lower()",
        bad="text = text.upper()",
        tests="tests",
    ),
    Project(
        release="xmltodict==1.0.4",
        about="one module, extras",
        file="xmltodict.py",
        good='cdata_key="#text",\n        force_cdata',
        bad='cdata_key="#words",\n        force_cdata',
        tests="tests/test_xmltodict.py",
    ),
    Project(
        release="platformdirs==4.14.5",
        about="hatch-vcs, tox.toml",
        file="src/platformdirs/windows.py",
        good="if opinion_value is not None and self.opinion:",
        bad="if opinion_value is not None and not self.opinion:",
        tests="tests/test_windows.py",
    ),
    Project(
        release="distro==1.9.0",
        about="setup.py beside pyproject.toml, dev-requirements",
        file="src/distro/distro.py",
        good='distro_id = distro_id.lower().replace(" ", "_")',
        bad='distro_id = distro_id.replace(" ", "_")',
        tests="tests/test_distro.py",
    ),
    Project(
        release="boltons==26.2.0",
        about="flit, tox",
        file="boltons/strutils.py",
        good="return f'No {units}'",
        bad="return f'no {units}'",
        tests="--doctest-modules boltons/strutils.py tests/test_strutils.py",
    ),
    Project(
        release="parso==0.8.7",
        about="setup.py, extras named testing",
        file="parso/python/tokenize.py",
        good="while start < indents[-1]:",
        bad="while start > indents[-1]:",
        tests="test/test_tokenize.py",
    ),
    Project(
        release="semver==3.1.1",
        about="uv.lock, dependency groups, .pytest.ini",
        file="src/semver/version.py",
        good="return _cmp(len(a_parts), len(b_parts))",
        bad="return _cmp(len(b_parts), len(a_parts))",
        tests="tests/test_compare.py",
    ),
    Project(
        release="pyflakes==4.1.0",
        about="setup.py, unittest style",
        file="pyflakes/checker.py",
        good="    def redefines(self, other):\n        if isinstance(other, SubmoduleImportation):",
        bad="    def redefines(self, other):\n        if not isinstance(other, SubmoduleImportation):",
        tests="pyflakes/test/test_imports.py",
    ),
    Project(
        release="pycodestyle==2.15.0",
        about="setup.py and setup.cfg",
        file="pycodestyle.py",
        good="paths.append(path.rstrip('/'))",
        bad="paths.append(path.rstrip('*'))",
        tests="tests/test_util.py",
    ),
    Project(
        release="mistune==3.4.0",
        about="setuptools, src layout",
        file="src/mistune/util.py",
        good='s = s.replace("<", "&lt;")',
        bad='s = s.replace("<", "&gt;")',
        tests="tests/test_syntax.py",
    ),
    Project(
        release="markdown-it-py==4.3.0",
        about="flit, extras named testing",
        file="markdown_it/tree.py",
        good="return not (self.token or self.nester_tokens)",
        bad="return not self.nester_tokens",
        tests="tests/test_tree.py",
    ),
    Project(
        release="marshmallow==4.4.0",
        about="flit, dependency groups, src layout",
        file="src/marshmallow/schema.py",
        good="if unknown == INCLUDE:",
        bad="if unknown != INCLUDE:",
        tests="tests/test_deserialization.py",
    ),
    Project(
        release="voluptuous==0.16.0",
        about="setup.py, packages for tests in tox.ini",
        file="voluptuous/validators.py",
        good="if self.min is not None and len(v) < self.min:",
        bad="if self.min is not None and len(v) > self.min:",
        tests="voluptuous/tests/tests.py",
    ),
    Project(
        release="structlog==26.1.0",
        about="hatch-vcs, dependency groups",
        file="src/structlog/_frames.py",
        good="    while name.startswith(ignores):",
        bad="    while not name.startswith(ignores):",
        tests="tests/test_frames.py",
    ),
    Project(
        release="freezegun==1.5.5",
        about="setup.py, requirements.txt for tests",
        file="freezegun/api.py",
        good="return shifted_time.timetuple()",
        bad="return get_current_time().replace(year=1).timetuple()",
        tests="tests/test_class_import.py tests/test_datetimes.py",
    ),
    Project(
        release="textdistance==4.6.3",
        about="setup.py with many extras",
        file="textdistance/algorithms/base.py",
        good="return 1 - self.normalized_distance(*sequences)",
        bad="return 2 - self.normalized_distance(*sequences)",
        tests="tests/test_common.py",
    ),
    Project(
        release="webcolors==25.10.0",
        about="pdm, dependency groups",
        file="src/webcolors/_conversion.py",
        good="return IntegerRGB(int_value >> 16, int_value >> 8 & 0xFF, int_value & 0xFF)",
        bad="return IntegerRGB(int_value >> 8 & 0xFF, int_value >> 16, int_value & 0xFF)",
        tests="tests/test_conversion.py",
    ),
    Project(
        release="tinydb==4.9.0",
        about="poetry-core with groups",
        file="tinydb/operations.py",
        good="doc[field] += n",
        bad="doc[field] -= n - 1",
        tests="tests/test_operations.py",
    ),
    Project(
        release="schema==0.7.8",
        about="setup.py, tox",
        file="schema/__init__.py",
        good="raise SchemaWrongKeyError(",
        bad="raise SchemaError(",
        tests="test_schema.py",
    ),
]


def main() -> int:
    """Check every project, or those that are named; the exit status is the number of projects whose check failed."""
    wanted = [project for project in PROJECTS if not sys.argv[1:] or project.name in sys.argv[1:]]
    work = Path(tempfile.mkdtemp(prefix="real-projects-"))
    (work / ".artifacts").mkdir()  # the data folder of the runs
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
    index = pip_settings(os.environ).get("index-url", "").rstrip("/")
    if not index:
        raise SystemExit("name the package index for the source distributions: set PIP_INDEX_URL")
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
