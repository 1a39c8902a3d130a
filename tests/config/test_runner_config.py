"""The runner's settings and the files that show them."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from debug_server.config import RunnerConfig, load, settings_of
from debug_server.config.gateway import GatewayConfig
from debug_server.config.page import env_example, settings_page, with_limits
from debug_server.errors import ConfigurationError
from debug_server.model import LIMITS
from debug_server.model.limits import Limit, Unit

ROOT = Path(__file__).resolve().parents[2]


def test_the_development_settings_are_sound() -> None:
    """.env.dev names declared variables only, loads, stays on loopback and holds no key."""
    lines = [line for line in (ROOT / ".env.dev").read_text().splitlines() if line and not line.startswith("#")]
    environ = dict(line.split("=", 1) for line in lines)
    declared = {line.split("=", 1)[0] for line in (ROOT / ".env.example").read_text().splitlines() if "=" in line}
    assert environ.keys() <= declared
    assert not [name for name in environ if "KEY" in name or "TOKEN" in name or "SECRET" in name]
    config = load(GatewayConfig, environ=environ).value
    assert config.codex.enabled is True
    assert environ["PROXY_HOST"] == "127.0.0.1"


def test_the_shipped_file_says_the_defaults() -> None:
    """config/runner.toml loads, and every value in it is the declared default."""
    assert load(RunnerConfig, files=[ROOT / "config/runner.toml"]).value == load(RunnerConfig, base=ROOT).value


def test_the_shipped_file_shows_every_setting(tmp_path: Path) -> None:
    """config/runner.toml names each declared setting, with what is commented out valid as well."""
    shown = (ROOT / "config/runner.toml").read_text().replace("\n# ", "\n")
    lines = [line for line in shown.splitlines() if line.startswith("[") or " = " in line]
    path = tmp_path / "runner.toml"
    path.write_text("\n".join(lines))
    assert "default" not in load(RunnerConfig, files=[path]).sources.values()


def test_the_shipped_file_shows_the_limits_of_the_table() -> None:
    """Its section [limits] is what the table says; `make docs` writes it anew."""
    text = (ROOT / "config/runner.toml").read_text()
    assert text == with_limits(text), "run `make docs`"


def test_missing_paths_follow_artifacts(tmp_path: Path) -> None:
    """With only paths.artifacts set, logs, environments and patches lie below it; a given one stays as given."""
    path = tmp_path / "runner.toml"
    path.write_text('[paths]\nartifacts = "here"\npatches = "there"\n')
    got = load(RunnerConfig, files=[path]).value.paths
    assert (got.logs, got.environments, got.patches) == tuple(
        tmp_path / name for name in ("here/logs", "here/envs", "there")
    )


def test_limits_become_the_value_that_commands_carry(tmp_path: Path) -> None:
    """Every key of [limits] reaches its own field of Limits, sizes in bytes."""
    values = {limit: number for number, limit in enumerate(LIMITS.values(), start=1)}
    values[LIMITS["memory_bytes"]] = 64 << 20
    shown = {limit.setting: limit.text_of(value) for limit, value in values.items()}
    sizes = {limit.setting for limit in LIMITS.values() if limit.unit is Unit.BYTES}
    path = tmp_path / "runner.toml"
    path.write_text(
        "[limits]\n" + "".join(f"{key} = {repr(text) if key in sizes else text}\n" for key, text in shown.items())
    )
    found = load(RunnerConfig, files=[path]).value.limits.to_limits()
    assert found.requested() == {limit.name: value for limit, value in values.items()}


@pytest.mark.parametrize("limit", LIMITS.values(), ids=LIMITS)
def test_a_limit_outside_of_its_range_names_the_setting(tmp_path: Path, limit: Limit) -> None:
    """More than can be enforced is refused by the name of the setting."""
    path = tmp_path / "runner.toml"
    path.write_text(f"[limits]\n{limit.setting} = {int(limit.maximum) + 1}\n")
    with pytest.raises(ConfigurationError, match=limit.setting):
        load(RunnerConfig, files=[path])


def test_no_limits_by_default() -> None:
    """A machine without a [limits] table bounds nothing."""
    assert load(RunnerConfig).value.limits.to_limits().requested() == {}


def test_variables_are_unique_and_sentences_are_sentences() -> None:
    """No two settings share a variable, and each is explained by a sentence."""
    found = settings_of(RunnerConfig).values()
    assert len({item.variable for item in found}) == len(found)
    assert all(item.description[0].isupper() and item.description.endswith(".") for item in found)


def test_the_settings_page_is_fresh() -> None:
    """docs/settings.md is what the declarations say; `make docs` writes it anew."""
    assert (ROOT / "docs/settings.md").read_text() == settings_page(), "run `make docs`"


def test_the_example_of_variables_is_fresh() -> None:
    """.env.example is what the declarations say, and setting all of it changes nothing."""
    text = (ROOT / ".env.example").read_text()
    assert text == env_example(), "run `make docs`"
    given = dict(line.split("=", 1) for line in text.splitlines() if line and not line.startswith("#"))
    for cls in (RunnerConfig, GatewayConfig):
        assert load(cls, environ=given).value == load(cls).value
        assert {item.variable for item in settings_of(cls).values()} <= set(given)


def test_importing_settings_is_cheap() -> None:
    """Reading TOML settings does not import the YAML library."""
    code = "import sys, debug_server.config as c; c.load(c.RunnerConfig); sys.exit('yaml' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_pyproject_and_config_are_toml() -> None:
    """Every TOML file that is shipped parses."""
    for path in [ROOT / "pyproject.toml", *ROOT.glob("config/*.toml")]:
        tomllib.loads(path.read_text())
