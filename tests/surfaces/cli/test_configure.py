"""Which server is spoken to: flags above variables above the file, and the file is the owner's alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from debug_server.client.connection import (
    DEFAULT_BASE_URL,
    ServerSettings,
    config_file,
    load_grpc_settings,
    load_server_settings,
    save_server_settings,
)
from debug_server.errors import ConfigurationError
from tests.servers import ServerProcess, serving
from tests.surfaces.cli.conftest import Terminal


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    """An environment with a folder of its own."""
    return {"DEBUG_SERVER_HOME": str(tmp_path / "home")}


def test_nothing_configured_means_this_machine(home: dict[str, str]) -> None:
    """Without a file, a variable or a flag there is no server."""
    assert load_server_settings({}, home).server is None


def test_a_token_alone_means_the_usual_address(home: dict[str, str]) -> None:
    """A token without an address is for the server's default address."""
    assert load_server_settings({}, {**home, "DEBUG_SERVER_TOKEN": "t"}).server == DEFAULT_BASE_URL


def test_flags_go_above_variables_above_the_file(home: dict[str, str]) -> None:
    """Each source overrides the one below it, setting by setting."""
    save_server_settings({"base_url": "http://file", "token": "file", "verify_tls": False}, home)
    variables = {**home, "DEBUG_SERVER_URL": "http://variable"}
    expected = ServerSettings(base_url="http://variable", token="flag", verify_tls=False)
    assert load_server_settings({"base_url": None, "token": "flag", "verify_tls": None}, variables) == expected
    assert load_server_settings({}, {**variables, "DEBUG_SERVER_VERIFY_TLS": "true"}).verify_tls is True


def test_the_file_is_private_and_keeps_what_is_not_changed(home: dict[str, str]) -> None:
    """Saving a token keeps the address; the file is readable by its owner only, whatever it was before."""
    path = save_server_settings({"base_url": "https://server", "token": 'o"dd\\'}, home)
    path.chmod(0o644)
    save_server_settings({"verify_tls": False}, home)
    assert path == config_file(home)
    assert path.stat().st_mode & 0o777 == 0o600
    assert load_server_settings({}, home) == ServerSettings(base_url="https://server", token='o"dd\\', verify_tls=False)
    assert [item.name for item in path.parent.iterdir()] == ["config.toml"]


@pytest.mark.parametrize("text", ["base_ulr = 'x'\n", "verify_tls = 'maybe'\n", "token = 5\n", "no toml"])
def test_a_wrong_file_is_named(home: dict[str, str], text: str) -> None:
    """An unknown key, a value of the wrong kind and a broken file are errors that name the file."""
    path = config_file(home)
    path.parent.mkdir()
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=str(path)):
        load_server_settings({}, home)


def test_a_wrong_variable_is_named(home: dict[str, str]) -> None:
    """A truth value that is none is an error that names the variable."""
    with pytest.raises(ConfigurationError, match="DEBUG_SERVER_VERIFY_TLS"):
        load_server_settings({}, {**home, "DEBUG_SERVER_VERIFY_TLS": "perhaps"})


def test_a_token_is_for_its_address(home: dict[str, str]) -> None:
    """A saved token is sent to no other address, however that is named; coming back to an address finds its token."""
    save_server_settings({"base_url": "http://one:8000", "token": "first"}, home)
    save_server_settings({"base_url": "http://two:8000/"}, home)
    assert load_server_settings({}, home).token is None
    save_server_settings({"token": "second"}, home)
    assert load_server_settings({}, home).token == "second"
    assert load_server_settings({"base_url": "http://ONE:8000/"}, home).token == "first"
    assert load_server_settings({}, {**home, "DEBUG_SERVER_URL": "http://evil:8000"}).token is None
    assert load_server_settings({}, {**home, "DEBUG_SERVER_URL": "https://two:8000"}).token is None
    save_server_settings({"base_url": "http://one:8000"}, home)
    assert load_server_settings({}, home).token == "first"
    assert load_server_settings({"base_url": "http://two:8000"}, home).token == "second"


def test_a_file_of_before_is_read(home: dict[str, str]) -> None:
    """One address and one token, or a token alone, mean what they meant."""
    path = config_file(home)
    path.parent.mkdir()
    path.write_text('base_url = "http://server:9000"\ntoken = "t"\nverify_tls = false\n')
    assert load_server_settings({}, home) == ServerSettings(base_url="http://server:9000", token="t", verify_tls=False)
    path.write_text('token = "t"\n')
    assert (load_server_settings({}, home).token, load_server_settings({}, home).server) == ("t", DEFAULT_BASE_URL)


def test_a_token_for_grpc(home: dict[str, str]) -> None:
    """A token of this machine's server goes to that server's gRPC port; any other port's is saved by itself."""
    save_server_settings({"base_url": "http://other:8000", "token": "elsewhere"}, home)
    save_server_settings({"base_url": "http://localhost:8000", "token": "first"}, home)
    save_server_settings({"base_url": "grpc://127.0.0.1:6000", "token": "other"}, home)
    assert load_server_settings({}, home) == ServerSettings(base_url="http://localhost:8000", token="first")
    assert load_grpc_settings("127.0.0.1:6001", {}, home, own_port=6001).token == "first"
    assert (
        load_grpc_settings("127.0.0.1:6001", {}, home, own_port=6001, own_url="http://127.0.0.1:8000").token == "first"
    )
    assert load_grpc_settings("127.0.0.1:6001", {}, home, own_port=6001, own_url="http://127.0.0.1:9").token is None
    assert load_grpc_settings("127.0.0.1:6000", {}, home, own_port=6001).token == "other"
    assert load_grpc_settings("127.0.0.1:6002", {}, home, own_port=6001).token is None
    assert load_grpc_settings("other:50051", {}, home).token is None, "nobody knows whose port that is"
    assert load_grpc_settings("evil:50051", {}, {**home, "DEBUG_SERVER_TOKEN": "given"}).token == "given"


def test_a_token_that_others_do_not_see(alone: Terminal, server: ServerProcess) -> None:
    """From stdin, of which one line is taken, or a file. Two ways at once, or nothing, are refused."""
    file = alone.folder / "token"
    file.write_text(f"{server.token}\n")
    url = ("--base-url", server.base_url)
    known = alone("--json", *url, "--token", "-", "status", stdin=f"{server.token}\nrest")
    assert known.json["you"] is not None, known
    assert alone("--json", *url, "--token-file", file, "status").json == known.json
    assert alone("configure", *url, "--token", "-", stdin=f"{server.token}\n").status == 0
    assert alone("--json", "status").json == known.json
    for words in (("--token", "-"), ("--token-file", file, "--token", "x"), ("--token-file", alone.folder / "none")):
        refused = alone(*words, "status")
        assert refused.status == 2, refused
        assert "--token" in refused.err


def test_whose_server_it_is(alone: Terminal) -> None:
    """By number or name; a name of nobody is refused."""
    url = ("--base-url", "http://127.0.0.1:1")
    assert alone("configure", *url, "--server-user", "root").status == 0
    assert alone("configure", *url, "--server-user", 20001).status == 0
    assert "20001" in (alone.folder / "home/config.toml").read_text()
    refused = alone("configure", "--server-user", "no such user")
    assert (refused.status, "no such user" in refused.err) == (2, True)


@pytest.mark.parametrize("url", ["http://", "foo", "ftp://host", "http://:80", "//host"])
def test_an_address_that_is_none_is_refused(home: dict[str, str], url: str) -> None:
    """Saved, in a variable or as a flag; the error names it, and nothing is saved."""
    for refused in (
        lambda: save_server_settings({"base_url": url}, home),
        lambda: load_server_settings({}, {**home, "DEBUG_SERVER_URL": url}),
        lambda: load_server_settings({"base_url": url}, home),
    ):
        with pytest.raises(ConfigurationError, match="the server's address"):
            refused()
    assert not config_file(home).exists()


@pytest.mark.parametrize("words", [("status",), ("mcp",), ("configure", "--base-url", "http://127.0.0.1:1")])
def test_a_home_that_cannot_be_read_is_one_line(alone: Terminal, words: tuple[str, ...]) -> None:
    """The line names the file and the variable that chooses another folder."""
    looped = alone.folder / "loop"
    looped.symlink_to(looped)  # root may read every folder, but not this one
    done = Terminal(folder=alone.folder, variables={"DEBUG_SERVER_HOME": str(looped)})(*words)
    assert done.status == 2
    assert len(done.err.splitlines()) == 1
    assert str(looped / "config.toml") in done.err and "set DEBUG_SERVER_HOME" in done.err


def test_no_server_again(alone: Terminal, server: ServerProcess) -> None:
    """A configured server is passed over once, and forgotten for good; --clear takes no other option."""
    assert alone("configure", "--base-url", server.base_url, "--token", "-", stdin=f"{server.token}\n").status == 0
    assert alone("--json", "status").json["you"] is not None
    for words in (("--local", "session", "list"), ("--base-url", "", "session", "list")):
        done = alone(*words)
        assert (done.status, done.out.splitlines()[1:]) == (0, []), "no session of the server's"
    refused = alone("configure", "--clear", "--base-url", server.base_url)
    assert refused.status == 2 and "--clear" in refused.err
    assert alone("configure", "--clear").status == 0
    assert server.token not in "".join(path.read_text() for path in alone.folder.rglob("config.toml"))
    assert alone("session", "list").status == 0


def test_a_token_without_an_address_says_which_server_is_used(alone: Terminal) -> None:
    """The default address is named, with what to set; an address, or --local, needs no such line."""
    given = Terminal(folder=alone.folder, variables={"DEBUG_SERVER_TOKEN": "t"})
    first = given("session", "list").err.splitlines()[0]  # whatever may answer there
    assert DEFAULT_BASE_URL in first and "set DEBUG_SERVER_URL" in first, first
    for words in (("--local", "session", "list"), ("--base-url", "http://127.0.0.1:1", "session", "list")):
        assert "without an address" not in given(*words).err


def test_configure_says_who_the_server_takes_you_for(alone: Terminal, server: ServerProcess) -> None:
    """A right address and token are saved; a token that the server refuses is not."""
    url = ("--base-url", server.base_url)
    done = alone("--json", "configure", *url, "--token", "-", stdin=f"{server.token}\n")
    assert (done.status, done.json["server"], done.json["you"]) == (0, server.base_url, "admin (admin)"), done
    refused = alone("configure", *url, "--token", "-", stdin="wrong\n")
    assert (refused.status, refused.err.count("Nothing was saved")) == (77, 1), refused
    assert alone("--json", "status").json["you"] is not None, "the right token is still there"
    alone("configure", "--clear")
    without = alone("configure", *url)
    assert without.status == 0 and "no token is saved for it" in without.err, without


def test_a_server_that_is_away_is_saved_with_a_warning(alone: Terminal) -> None:
    """It may be started later."""
    url = "http://127.0.0.1:1"
    done = alone("configure", "--base-url", url)
    assert done.status == 0 and f"no answer from {url}" in done.err and "saved all the same" in done.err, done
    assert url in (alone.folder / "home/config.toml").read_text()


def test_a_wrong_address_says_what_to_write(alone: Terminal, tmp_path: Path) -> None:
    """TLS where there is none, the gRPC port, a page's path, no scheme, a gRPC address alone: nothing is saved."""
    with serving(tmp_path / "server", grpc=True) as server:
        token = alone.folder / "token"
        token.write_text(server.token)
        host = f"127.0.0.1:{server.port}"
        for url, advice in (
            (f"https://{host}", f"write http://{host}"),
            (f"http://127.0.0.1:{server.grpc_port}", "gRPC port"),
            (f"http://{host}/docs", f"--base-url http://{host}"),
            (host, f"write http://{host}"),
            (f"grpc://{host}/path", "without a path"),
        ):
            refused = alone("configure", "--base-url", url, "--token-file", token)
            assert refused.status == 2 and advice in refused.err, (url, refused)
        refused = alone("configure", "--base-url", f"grpc://127.0.0.1:{server.grpc_port}")
        assert refused.status == 2 and "add --token -" in refused.err, refused
        assert not (alone.folder / "home").exists()
        done = alone("--base-url", f"https://{host}", "--token-file", token, "session", "list")
        assert done.status == 2 and f"write http://{host}" in done.err, "any command says so"
        assert alone("configure", "--base-url", f"http://{host}/api/v1/", "--token-file", token).status == 0


def test_a_token_for_grpc_changes_no_other_command(alone: Terminal) -> None:
    """Commands still run on this machine when only a gRPC server's token was saved."""
    done = alone("configure", "--base-url", "grpc://127.0.0.1:6000", "--token", "-", stdin="t\n")
    assert done.status == 0 and "gRPC server" in done.out, done
    assert alone("session", "list").status == 0


def test_a_token_in_an_argument_is_warned_of(alone: Terminal) -> None:
    """Other users can read arguments; the warning names the other ways, and never the token."""
    done = alone("--token", "SECRET", "--local", "session", "list")
    assert done.status == 0, done
    assert all(words in done.err for words in ("--token -", "--token-file", "DEBUG_SERVER_TOKEN")), done
    assert "SECRET" not in done.err
