"""Where settings come from, which source wins, and what is refused."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from debug_server.config import RunnerConfig, load, section, setting
from debug_server.config.kinds import TEXT
from debug_server.errors import ConfigurationError


def write(folder: Path, text: str, name: str = "runner.toml") -> Path:
    """A settings file."""
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_defaults_need_no_source_at_all() -> None:
    """Without files, variables and flags every setting has its declared default and says so."""
    loaded = load(RunnerConfig)
    assert loaded.value.runner.kill_grace == 1.0
    assert loaded.value.paths.logs == Path(".artifacts/logs")
    assert set(loaded.sources.values()) == {"default"}


def test_each_source_overrides_the_one_before(tmp_path: Path) -> None:
    """A later file beats an earlier one, a variable beats files, a flag beats a variable; the winner is remembered."""
    first = write(tmp_path, "[runner]\nkill_grace = 2\nspare_keepers = 3\nmax_pending = 4\nmax_concurrency = 5\n")
    second = write(tmp_path, "[runner]\nspare_keepers = 30\nmax_pending = 40\nmax_concurrency = 50\n", "second.toml")
    environ = {"DEBUG_SERVER_RUNNER_MAX_PENDING": "400", "DEBUG_SERVER_RUNNER_MAX_CONCURRENCY": "500"}
    loaded = load(RunnerConfig, files=[first, second], environ=environ, flags={"runner.max_concurrency": 5000})
    got = loaded.value.runner
    assert (got.kill_grace, got.spare_keepers, got.max_pending, got.max_concurrency) == (2.0, 30, 400, 5000)
    assert loaded.source("runner.kill_grace") == str(first)
    assert loaded.source("runner.spare_keepers") == str(second)
    assert loaded.source("runner.max_pending") == "variable DEBUG_SERVER_RUNNER_MAX_PENDING"
    assert loaded.source("runner.max_concurrency") == "flag"
    assert loaded.source("runner.containment") == "default"


def test_yaml_says_the_same_as_toml(tmp_path: Path) -> None:
    """The same settings in YAML give the same value, and an empty YAML file gives the defaults."""
    toml = write(tmp_path, '[limits]\nmemory = "64M"\npids = 7\n')
    yaml = write(tmp_path, "limits:\n  memory: 64M\n  pids: 7\n", "runner.yml")
    assert load(RunnerConfig, files=[toml]).value == load(RunnerConfig, files=[yaml]).value
    assert load(RunnerConfig, files=[write(tmp_path, "", "empty.yaml")]).value == load(RunnerConfig).value


def test_empty_variables_and_absent_flags_count_as_not_given() -> None:
    """An empty variable and a flag that is None leave the default in place."""
    environ = {"DEBUG_SERVER_RUNNER_KILL_GRACE": ""}
    loaded = load(RunnerConfig, environ=environ, flags={"limits.timeout": None})
    assert set(loaded.sources.values()) == {"default"}


def test_flags_may_be_text_or_values() -> None:
    """A flag is accepted as the text that a person typed or as a value that the command line parsed."""
    flags = {"limits.timeout": "1.5", "limits.pids": 3, "paths.artifacts": Path("elsewhere").as_posix()}
    got = load(RunnerConfig, flags=flags).value
    assert (got.limits.timeout, got.limits.pids, got.paths.logs) == (1.5, 3, Path("elsewhere/logs").absolute())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[paths]\nlog = 'x'\n", ["'paths.log'", "did you mean 'paths.logs'?"]),
        ("[path]\nlogs = 'x'\n", ["'path'", "did you mean 'paths'?"]),
        ("zzzz = 1\n", ["'zzzz'", "use one of paths.artifacts,"]),
        ("[runner.kill_grace]\nx = 1\n", ["runner.kill_grace = {'x': 1}", "must be a number"]),
        ("paths = 3\n", ["paths = 3", "must be a table"]),
        ("[runner]\nkill_grace = '1'\n", ["runner.kill_grace = '1'", "must be a number, 0 or more"]),
        ("[runner]\nkill_grace = nan\n", ["runner.kill_grace = nan", "must be a number"]),
        ("[runner]\nkill_grace = -1\n", ["runner.kill_grace = -1"]),
        ("[runner]\nspare_keepers = true\n", ["runner.spare_keepers = True", "must be a whole number"]),
        ("[runner]\nspare_keepers = 1.5\n", ["runner.spare_keepers = 1.5"]),
        ("[runner]\ncontainment = 'docker'\n", ["'docker'", "one of auto, cgroup, pid-namespace, session"]),
        ("[runner]\ncontainment = ['auto']\n", ["['auto']", "one of auto"]),
        ("[runner]\ndefault_shell = ''\n", ["runner.default_shell = ''"]),
        ("[paths]\nlogs = 5\n", ["paths.logs = 5", "must be a path"]),
        ("[paths]\nlogs = '~nobody-of-this-name/x'\n", ["must be a path"]),
        ("[limits]\nmemory = '1M'\n", ["limits.memory = '1M'", "4M or more"]),
        ("[limits]\nmemory = 'much'\n", ["limits.memory = 'much'", '"64M"']),
        ("[limits]\nmemory = -5\n", ["limits.memory = -5"]),
        ("[limits]\ntimeout = 0\n", ["limits.timeout = 0", "above zero"]),
        ("[limits]\npids = 0\n", ["limits.pids = 0"]),
        ("[paths\n", ["not valid TOML", "line 1"]),
    ],
)
def test_a_wrong_file_is_refused_by_name(tmp_path: Path, text: str, words: list[str]) -> None:
    """Unknown keys, wrong types and bad syntax raise ConfigurationError that names the file, key, value and fix."""
    path = write(tmp_path, text)
    with pytest.raises(ConfigurationError) as caught:
        load(RunnerConfig, files=[path])
    for word in [str(path), *words]:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"), [("- a\n", "not a list"), ("a: [\n", "not valid YAML"), ("1: 2\n", "unknown key '1'")]
)
def test_wrong_yaml_is_refused_by_name(tmp_path: Path, text: str, words: str) -> None:
    """YAML that is no mapping, does not parse or has unknown keys is refused with the file's name."""
    path = write(tmp_path, text, "runner.yaml")
    with pytest.raises(ConfigurationError, match=words) as caught:
        load(RunnerConfig, files=[path])
    assert str(path) in str(caught.value)


def test_unreadable_files_are_refused(tmp_path: Path) -> None:
    """A missing file, a folder and bytes that are not text each give one clear error."""
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe")
    for path in (tmp_path / "missing.toml", tmp_path, binary):
        with pytest.raises(ConfigurationError, match=r"cannot be read|not UTF-8") as caught:
            load(RunnerConfig, files=[path])
        assert str(path) in str(caught.value)


def test_a_wrong_variable_is_named() -> None:
    """A variable of a wrong type is refused with its name, its value and what it must be."""
    with pytest.raises(ConfigurationError, match=r"DEBUG_SERVER_LIMITS_PIDS.*'many' must be a whole number"):
        load(RunnerConfig, environ={"DEBUG_SERVER_LIMITS_PIDS": "many"})


@pytest.mark.parametrize("flags", [{"limits.pid": 1}, {"limits.pids": "many"}, {"limits.pids": 1.5}])
def test_wrong_flags_are_refused(flags: dict[str, Any]) -> None:
    """An unknown flag key and a flag value of a wrong type are refused."""
    with pytest.raises(ConfigurationError, match=r"limits\.pids"):
        load(RunnerConfig, flags=flags)


def test_the_source_of_an_unknown_key_is_an_error() -> None:
    """Asking for the source of a key that does not exist names the nearest one that does."""
    with pytest.raises(ConfigurationError, match=r"did you mean 'paths.logs'"):
        load(RunnerConfig).source("paths.log")


@dataclass(frozen=True, slots=True, kw_only=True)
class Inner:
    """A section in a section."""

    name: str = setting("A name.", TEXT, default="x", variable="OTHER_NAME")


@dataclass(frozen=True, slots=True, kw_only=True)
class Middle:
    """A section."""

    inner: Inner = section(Inner)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outer:
    """A settings class with a setting of its own and a nested section."""

    title: str = setting("A title.", TEXT, default="y")
    middle: Middle = section(Middle)


def test_sections_nest_and_variables_can_have_known_names(tmp_path: Path) -> None:
    """Settings at the top, sections within sections and variables with names of their own all load."""
    path = write(tmp_path, "title = 'from file'\n[middle.inner]\nname = 'from file'\n")
    got = load(Outer, files=[path], environ={"OTHER_NAME": "from variable"}).value
    assert (got.title, got.middle.inner.name) == ("from file", "from variable")
