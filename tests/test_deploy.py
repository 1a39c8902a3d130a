"""The examples in ``deploy/``: each is read by the program that it is for, where that is installed."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import yaml

from debug_server.client import DebugServerClient
from debug_server.config.declare import settings_of
from debug_server.config.runner import RunnerConfig
from tests.certificates import Certificate, self_signed
from tests.repositories import make_repository
from tests.running import ROOT, eventually, lasting_port
from tests.servers import ServerProcess, serving

DEPLOY = ROOT / "deploy"
SECONDS = 100


def help_of(*words: str) -> str:
    """What a command of ours says about itself."""
    argv = [sys.executable, "-m", "debug_server", *words, "--help"]
    return subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS, check=True).stdout


def check_arguments(words: list[str]) -> None:
    """Every option of a line is one that the command has."""
    options = [word for word in words if word.startswith("--")]
    text = help_of(*words[: words.index(options[0])][:2] if words[0] == "token" else words[:1])
    assert [option for option in options if option not in text] == []


def check_variables(names: list[str]) -> None:
    """Every variable of ours is one that is read."""
    known = {item.variable for item in settings_of(RunnerConfig).values()} | {"DEBUG_SERVER_DB_URL"}
    assert [name for name in names if name.startswith("DEBUG_SERVER_") and name not in known] == []


def test_the_unit_is_one_that_systemd_takes(tmp_path: Path) -> None:
    """Without a warning; its command line and variables are ours."""
    text = (DEPLOY / "debug-server.service").read_text()
    (line,) = re.findall(r"^ExecStart=\S+/debug-server (.*)$", text, re.MULTILINE)
    check_arguments(shlex.split(line))
    check_variables(
        [pair.partition("=")[0] for pair in re.findall(r"^Environment=(.*)$", text, re.MULTILINE)[0].split()]
    )
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    unit = tmp_path / "debug-server.service"
    unit.write_text(re.sub(r"^ExecStart=\S+", f"ExecStart={shutil.which('true')}", text, flags=re.MULTILINE))
    done = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False)
    if "Failed to " in done.stderr and "debug-server.service" not in done.stderr:
        pytest.skip(f"systemd-analyze does not work here: {done.stderr.strip()}")
    assert (done.returncode, done.stderr) == (0, "")


def test_the_compose_file_fits_the_dockerfile() -> None:
    """Files, volumes, commands and variables that it names exist."""
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    server, docker = compose["services"]["server"], (DEPLOY / "Dockerfile").read_text()
    assert (DEPLOY / server["build"]["context"] / server["build"]["dockerfile"]).samefile(DEPLOY / "Dockerfile")
    assert set(server["depends_on"]) <= set(compose["services"])
    named = {volume.partition(":")[0] for service in compose["services"].values() for volume in service["volumes"]}
    assert named == set(compose["volumes"])
    assert f"VOLUME {server['volumes'][0].partition(':')[2]}\n" in docker
    check_variables(
        [*server["environment"], *re.findall(r"(\w+)=", re.findall(r"^ENV (.*)$", docker, re.MULTILINE)[0])]
    )
    check_arguments(yaml.safe_load(re.findall(r"^CMD (.*)$", docker, re.MULTILINE)[0]))
    for line in re.findall(r"(token create .*)$", docker + (DEPLOY / "compose.yaml").read_text(), re.MULTILINE):
        check_arguments(shlex.split(line))


@pytest.fixture
def certificate(tmp_path: Path) -> Certificate:
    """Of 127.0.0.1, and its key."""
    return self_signed(tmp_path)


@pytest.fixture
def proxy(tmp_path: Path, certificate: Certificate) -> Iterator[tuple[str, ServerProcess]]:
    """A server and, before it, nginx with the example's settings; the address of nginx, and the server."""
    nginx = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
    if nginx is None:
        pytest.skip("nginx is not installed")
    with serving(tmp_path / "server") as server:
        port = lasting_port()
        text = (DEPLOY / "nginx.conf").read_text()
        for old, new in {
            "listen 443 ssl": f"listen 127.0.0.1:{port} ssl",
            "/etc/ssl/debug-server/fullchain.pem": str(certificate.cert),
            "/etc/ssl/debug-server/privkey.pem": str(certificate.key),
            "http://127.0.0.1:8000": server.base_url,
        }.items():
            assert old in text
            text = text.replace(old, new)
        temporary = "".join(
            f"{name}_temp_path {tmp_path}/{name};\n" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        owner = "user root;\n" if os.geteuid() == 0 else ""
        (tmp_path / "nginx.conf").write_text(
            f"daemon off;\n{owner}pid {tmp_path}/pid;\nerror_log stderr;\nevents {{}}\n"
            f"http {{\naccess_log off;\n{temporary}{text}}}\n"
        )
        command = [nginx, "-p", str(tmp_path), "-c", str(tmp_path / "nginx.conf")]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        try:
            yield f"https://127.0.0.1:{port}", server
        finally:
            process.terminate()
            process.communicate(timeout=SECONDS)


def test_a_server_is_used_through_the_proxy(
    proxy: tuple[str, ServerProcess], certificate: Certificate, tmp_path: Path
) -> None:
    """Who comes through it needs a token for everything, output arrives while the command runs, and no byte is lost."""
    address, server = proxy
    trusted = ssl.create_default_context(cafile=str(certificate.cert))

    def health() -> bool:
        try:
            return httpx.get(f"{address}/health", verify=trusted, timeout=SECONDS).status_code == 200
        except httpx.ConnectError:
            return False

    eventually(health, what="nginx")
    assert httpx.get(f"{address}/metrics", verify=trusted, timeout=SECONDS).status_code == 401
    assert httpx.get(f"{server.base_url}/metrics", timeout=SECONDS).status_code == 200
    repository = make_repository(tmp_path / "project")
    with DebugServerClient(base_url=address, token=server.token, verify_tls=False) as client:
        client.register_repository("project", str(repository))
        session = client.open_session("project", "HEAD")
        go = tmp_path / "go"
        text = f"echo one; while [ ! -e {go} ]; do sleep 0.05; done; echo two"
        command = client.submit_command(session.id, ["sh", "-c", text])
        pieces = iter(client.follow_log(command.id))
        first = next(pieces)
        assert first.data == b"one\n"  # before the command may go on
        go.touch()
        assert first.data + b"".join(piece.data for piece in pieces) == b"one\ntwo\n"
        assert client.wait_command(command.id).exit_code == 0
        client.close_session(session.id)
