"""A day with curl, the real program: open, patch, run, fail, digest, diff, cancel, list, history."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from tests.repositories import make_repository
from tests.servers import ServerProcess, serving

PATCH = """\
diff --git a/note.txt b/note.txt
new file mode 100644
--- /dev/null
+++ b/note.txt
@@ -0,0 +1 @@
+patched
"""
SECONDS = "100"

pytestmark = pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server in a process of its own."""
    with serving(tmp_path_factory.mktemp("server")) as running:
        yield running


class Curl:
    """Runs curl against one server, as a person types it; ``status`` is the last response's."""

    def __init__(self, server: ServerProcess, *, token: str) -> None:
        self._base = f"{server.base_url}/api/v1"
        self._header = f"Authorization: Bearer {token}"
        self.status = 0

    def text(self, *arguments: str, path: str) -> str:
        """The body of a response."""
        options = ["-sS", "--max-time", SECONDS, "-H", self._header, "-w", "\n%{http_code}"]
        done = subprocess.run(
            ["curl", *options, *arguments, f"{self._base}{path}"],
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        body, _, status = done.stdout.rpartition("\n")
        self.status = int(status)
        return body

    def get(self, path: str) -> Any:
        """The JSON of a GET."""
        return json.loads(self.text(path=path))

    def post(self, path: str, **body: Any) -> Any:
        """The JSON of a POST, with curl's own content type."""
        return json.loads(self.text("-d", json.dumps(body), path=path))

    def delete(self, path: str) -> Any:
        """The JSON of a DELETE."""
        return json.loads(self.text("-X", "DELETE", path=path))


def test_a_day_with_curl(server: ServerProcess) -> None:
    """Each request, in the order in which a person sends them."""
    curl = Curl(server, token=server.token)
    curl.post("/repository/init", name="project", remote_url=str(make_repository(server.root / "project")))
    session = curl.post("/sessions", repository="project", commit="HEAD", patch=PATCH)["id"]
    assert curl.post(f"/sessions/{session}/exec", argv=["cat", "note.txt"])["stdout"] == "patched\n"
    failed = curl.post(f"/sessions/{session}/exec", argv=["sh", "-c", "seq 300; echo 'Error: 4 != 5'; exit 3"])
    assert (failed["ended"], failed["exit_code"], failed["exit_reason"]) == (True, 3, "nonzero_exit")
    log = f"/commands/{failed['command_id']}/log"
    assert "4 != 5" in curl.get(f"{log}/digest")["first_error"]["text"]
    assert curl.get(f"{log}/text?tail=1")["text"] == "Error: 4 != 5\n"
    assert curl.text("-r", "0-3", path=log) == "1\n2\n" and curl.status == 206
    curl.post(f"/sessions/{session}/exec", argv=["touch", "made.txt"])
    assert "made.txt" in curl.text("-H", "Accept: text/x-patch", path=f"/sessions/{session}/diff")
    long = curl.post(f"/sessions/{session}/commands", argv=["sleep", "600"])["id"]
    assert curl.get(f"/commands/{long}/wait?timeout=0.2")["ended"] is False
    assert long in [item["id"] for item in curl.get("/commands?status=active")["items"]]
    curl.post(f"/commands/{long}/cancel")
    ended = curl.get(f"/commands/{long}/wait?timeout={SECONDS}")
    assert (ended["ended"], ended["exit_reason"]) == (True, "cancelled")
    assert session in [item["id"] for item in curl.get("/sessions?status=open")["items"]]
    curl.delete(f"/sessions/{session}")
    history = {item["id"]: item["exit_reason"] for item in curl.get("/commands?status=ended")["items"]}
    assert (history[failed["command_id"]], history[long]) == ("nonzero_exit", "cancelled")


def test_mistakes_with_curl(server: ServerProcess) -> None:
    """A misspelled path, field and method, and a wrong token, are answered with what to write."""
    curl = Curl(server, token=server.token)
    assert "did you mean '/api/v1/sessions'?" in curl.get("/sesions")["error"]["message"] and curl.status == 404
    assert "did you mean 'commit'?" in curl.post("/sessions", repository="project", comit="HEAD")["error"]["message"]
    assert "use GET or POST" in curl.delete("/sessions")["error"]["message"] and curl.status == 405
    stranger = Curl(server, token="guessed")
    assert "the token is unknown" in stranger.get("/sessions")["error"]["message"] and stranger.status == 401
