"""What users of workspaces work with: a repository, environments to ask for, and what each must look like."""

from __future__ import annotations

import hashlib
import json
import random
from dataclasses import dataclass
from pathlib import Path

from debug_server.app import Local
from debug_server.config import EnvironmentsConfig, WorkspacesConfig
from debug_server.runner.environment import EnvironmentHandle, EnvironmentRequest
from debug_server.runner.environments.uv_builder import find_uv
from debug_server.runner.settings import RunnerPaths, RunnerSettings
from tests.runner.environment_support import make_wheel, requirements
from tests.running import VISIBLE
from tests.worktrees.places import fingerprint, random_remote, reference

LEASE_SECONDS = 15.0  # a holder renews after a third of it, and may be given no processor for a while
LONG_LEASE_SECONDS = 1800.0  # longer than a campaign's end waits: only recovery frees those of killed users
_COMMITS = 12
_PARTS = 20
_WHEELS = ("soaka", "soakb", "soakc")
_HOOK = (
    f"for part in $(seq {_PARTS}); do mkdir -p $DEBUG_SERVER_ENV_PATH/parts;"
    " echo $part-{0} > $DEBUG_SERVER_ENV_PATH/parts/$part; sleep 0.005; done"
)


@dataclass(frozen=True, slots=True)
class WorkspaceSetup:
    """The folders of one campaign over workspaces."""

    root: Path
    backend: str = "auto"

    @property
    def remote(self) -> Path:
        """The repository that is leased from."""
        return self.root / "remote"

    @property
    def paths(self) -> RunnerPaths:
        """Where users leave things."""
        return RunnerPaths.from_root(self.root / "data")

    @property
    def violations(self) -> Path:
        """What users saw that must not be; one line each."""
        return self.root / "violations"

    @property
    def actions(self) -> Path:
        """What users did; one word on each line."""
        return self.root / "actions"

    @property
    def scratch(self) -> Path:
        """The users' TMPDIR: what is left there was leaked."""
        return self.root / "tmp"

    @property
    def expected(self) -> dict[str, str]:
        """Commit -> digest of its files, as git itself checks them out."""
        found: dict[str, str] = json.loads((self.root / "expected.json").read_text())
        return found

    def prepare(self, seed: int) -> None:
        """Make the repository, the wheels and the list of what to expect."""
        remote = random_remote(self.remote, commits=_COMMITS, seed=seed)
        trees = {commit: digest(reference(self.remote, commit, self.root / f"r-{commit}")) for commit in remote.commits}
        (self.root / "expected.json").write_text(json.dumps(trees))
        for name in _WHEELS:
            make_wheel(self.root / "wheels", name, "1.0")
        requirements(self.root / "requirements.txt", self.root / "wheels", *_WHEELS)
        for path in (self.scratch, self.root / "uv-cache"):
            path.mkdir()
        for path in (self.violations, self.actions):
            path.touch()

    def open(self, *, lease_seconds: float = LEASE_SECONDS) -> Local:
        """Everything on this machine, below the root."""
        settings = RunnerSettings(
            self.paths,
            kill_grace=0.2,
            isolation=VISIBLE,
            workspaces=WorkspacesConfig(
                backend=self.backend, lease_ttl_seconds=lease_seconds, max_worktrees=12, idle_seconds=0.5
            ),
            environments=EnvironmentsConfig(build_timeout=60.0),
        )
        return Local(settings, str(self.root / "store.db"))

    def request(self, draw: random.Random) -> EnvironmentRequest:
        """One of a few environments."""
        kind = draw.randrange(4)
        if kind == 0 and find_uv() is not None:
            return EnvironmentRequest("wheels", [self.root / "requirements.txt"], project_root=self.root)
        metadata = {"builder": "hook", "hook": _HOOK.format(kind)}
        return EnvironmentRequest(f"hook-{kind}", metadata=metadata, project_root=self.root)

    def patch(self) -> bytes:
        """Adds the manifest that a run names."""
        lines = (self.root / "requirements.txt").read_text().splitlines()
        head = f"--- /dev/null\n+++ b/soak-requirements.txt\n@@ -0,0 +1,{len(lines)} @@\n"
        text = head + "".join(f"+{line}\n" for line in lines)
        return f"diff --git a/soak-requirements.txt b/soak-requirements.txt\nnew file mode 100644\n{text}".encode()


def digest(tree: Path) -> str:
    """Of every entry of a tree but its gitdir."""
    return hashlib.sha256(json.dumps(fingerprint(tree), sort_keys=True).encode("utf-8", "surrogateescape")).hexdigest()


def what_is_missing(handle: EnvironmentHandle, request: EnvironmentRequest) -> str | None:
    """What a served environment lacks; None when it is whole."""
    if request.metadata is None:
        names = {path.name for path in handle.path.glob("lib/python*/site-packages/*.py")}
        lost = {f"{name}.py" for name in _WHEELS} - names
        return f"{handle.path} lacks {sorted(lost)}" if lost else None
    kind = request.name.rpartition("-")[2]
    for part in range(1, _PARTS + 1):
        path = handle.path / "parts" / str(part)
        if not path.is_file() or path.read_text() != f"{part}-{kind}\n":
            return f"{path} is missing or half written"
    return None
