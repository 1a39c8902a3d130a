"""The server that a client uses: arguments, variables, the saved configuration; and what the SDK imports."""

from __future__ import annotations

import re
import subprocess
import sys
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

import pytest

from debug_server.client import AsyncDebugServerClient, DebugServerClient
from debug_server.client.connection import client_settings, save_server_settings
from debug_server.errors import AccessError, ConfigurationError, UnavailableError
from tests.servers import ServerProcess

OTHER = "http://127.0.0.1:9"
IMPORTS = """
import sys
sys.modules["httpx._main"] = None  # httpx's own command line, which it imports if it can
from debug_server.client import AsyncDebugServerClient, DebugServerClient
client = DebugServerClient()
client.close()
print(client.base_url)
print(*{name.partition(".")[0] for name in sys.modules if sys.modules[name] is not None} - sys.stdlib_module_names)
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty configuration."""
    monkeypatch.setenv("DEBUG_SERVER_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def test_the_server_of_the_variables(
    server: ServerProcess, repository: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client without arguments uses DEBUG_SERVER_URL and DEBUG_SERVER_TOKEN."""
    monkeypatch.setenv("DEBUG_SERVER_URL", server.base_url)
    monkeypatch.setenv("DEBUG_SERVER_TOKEN", server.token)
    with DebugServerClient() as client:
        assert client.base_url == server.base_url
        assert [item.name for item in client.repositories()] == ["project"]


def test_the_server_of_the_configuration(server: ServerProcess, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without variables it is the saved server; a saved token goes to its own server only."""
    save_server_settings({"base_url": server.base_url, "token": server.token})
    with DebugServerClient() as client:
        assert client.who_am_i().scopes == ["admin"]
    with DebugServerClient(base_url=server.base_url) as client:
        assert client.who_am_i().scopes == ["admin"]
    assert client_settings(OTHER, None, verify_tls=None, server_uid=None).token is None
    monkeypatch.setenv("DEBUG_SERVER_URL", OTHER)
    with DebugServerClient() as client:
        assert client.base_url == OTHER
    assert client_settings(None, "", verify_tls=None, server_uid=None).token is None


def test_arguments_come_first(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Arguments win over variables; with URL and token nothing is looked up, so a broken file does no harm."""
    home.mkdir()
    (home / "config.toml").write_text("base_url = 7\n")
    monkeypatch.setenv("DEBUG_SERVER_URL", "http://example.org")
    assert client_settings(OTHER, "mine", verify_tls=None, server_uid=None).base_url == OTHER
    assert AsyncDebugServerClient(base_url=OTHER, token="mine").base_url == OTHER
    with pytest.raises(ConfigurationError, match=r"config\.toml.*base_url = 7"):
        DebugServerClient()


def test_a_missing_token_is_explained(server: ServerProcess, home: Path) -> None:
    """A refusal without a token says how to set one."""
    with (
        DebugServerClient(base_url=server.base_url) as client,
        pytest.raises(AccessError, match=r"DEBUG_SERVER_TOKEN.*debug-server configure"),
    ):
        client.list_sessions()


def test_a_server_that_is_away_is_explained(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the address, and says how to start a server or name another."""
    monkeypatch.setattr("debug_server.client.exchange.ATTEMPTS", 1)
    with (
        DebugServerClient(base_url="http://127.0.0.1:1") as client,
        pytest.raises(UnavailableError, match=r"http://127\.0\.0\.1:1.*debug-server serve.*DEBUG_SERVER_URL"),
    ):
        client.health()


def test_the_sdk_imports_two_libraries(home: Path) -> None:
    """A program that uses the SDK loads httpx, pydantic and what they need: nothing of a server."""
    done = subprocess.run([sys.executable, "-c", IMPORTS], capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    url, found = done.stdout.splitlines()
    assert url == "http://127.0.0.1:8000"
    by_module = packages_distributions()
    loaded = {name for module in found.split() for name in by_module.get(module, ())}
    allowed = closure({"debug-server", "httpx", "pydantic"}, without="debug-server")
    assert {name.lower().replace("_", "-") for name in loaded} - {"setuptools"} <= allowed


def closure(names: set[str], *, without: str) -> set[str]:
    """The distributions and what they require; for ``without`` only itself."""
    found: set[str] = set()
    waiting = set(names)
    while waiting:
        name = waiting.pop()
        found.add(name)
        with suppress(PackageNotFoundError):  # another Python needs it
            needed = [item for item in requires(name) or () if "extra ==" not in item and name != without]
            waiting |= {re.split(r"[^\w.-]", item)[0].lower().replace("_", "-") for item in needed} - found
    return found
