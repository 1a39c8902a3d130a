"""Material for the tests of environments: tiny wheels, conda channels, logs that remember."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
import threading
import time
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from debug_server.runner.environment import EnvironmentHandle, EnvironmentManager, EnvironmentRequest


class Recording:
    """A log that keeps what it is told."""

    def __init__(self) -> None:
        self.text = ""
        self.streams: set[str] = set()
        self.heard = threading.Event()

    def write(self, text: str, stream: str = "system") -> None:
        """Remember ``text``."""
        self.text += text
        self.streams.add(stream)
        self.heard.set()


def make_wheel(
    folder: Path,
    name: str,
    version: str,
    source: str = "",
    requires: Sequence[str] = (),
    *,
    more: Mapping[str, str] | None = None,
) -> Path:
    """A wheel with one module called ``name``, and the files ``more``."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    needs = "".join(f"Requires-Dist: {item}\n" for item in requires)
    files = {
        f"{name}.py": source or f"VERSION = {version!r}\n",
        **(more or {}),
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{key},sha256={_digest(text)},{len(text.encode())}\n" for key, text in files.items())
    with zipfile.ZipFile(path, "w") as archive:
        for key, text in {**files, f"{info}/RECORD": f"{record}{info}/RECORD,,\n"}.items():
            archive.writestr(key, text)
    return path


def _digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()


def requirements(path: Path, wheels: Path, *lines: str) -> Path:
    """A requirements file that is served from ``wheels`` alone."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(["--no-index", f"--find-links {wheels}", *lines, ""]))
    return path


def run_python(handle: EnvironmentHandle, code: str, *, env: Mapping[str, str] | None = None) -> str:
    """What ``code`` prints in the environment; its error text if it fails."""
    done = subprocess.run(
        [handle.python_path, "-c", code],
        env={"PATH": os.environ["PATH"], **(env or {})},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd="/",
    )
    return done.stdout.strip() if done.returncode == 0 else done.stderr.strip()


def hook(command: str, *, name: str = "hooked", root: Path) -> EnvironmentRequest:
    """A request that ``command`` builds."""
    return EnvironmentRequest(name, metadata={"builder": "hook", "hook": command}, project_root=root)


def environments(manager: EnvironmentManager) -> list[str]:
    """The names of all environment folders, the unfinished ones too."""
    return sorted(path.name for path in (manager.root / ".by-fingerprint").iterdir())


def wait_for(path: Path, seconds: float = 30.0) -> str:
    """The content of a file that another process is about to write."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if path.exists() and (text := path.read_text()).endswith("\n"):
            return text.strip()
        time.sleep(0.01)
    raise AssertionError(f"{path} did not appear")


def is_alive(pid: int) -> bool:
    """Whether the process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def ended(pid: int, seconds: float = 60.0) -> bool:
    """Whether the process ends within ``seconds``."""
    end = time.monotonic() + seconds
    while is_alive(pid) and time.monotonic() < end:
        time.sleep(0.01)
    return not is_alive(pid)


ENSURE = """
import json, sys
from debug_server.runner.environment import EnvironmentManager, EnvironmentRequest
root, spec = sys.argv[1], json.loads(sys.argv[2])
request = EnvironmentRequest(spec["name"], spec.get("manifests"), spec.get("metadata"), project_root=spec["root"])
handle = EnvironmentManager(root).ensure(request, force=spec.get("force", False))
with handle.hold():
    print(json.dumps([str(handle.path), handle.build.hit]), flush=True)
    if spec.get("hold"):
        sys.stdin.read()
"""


def ensure_elsewhere(root: Path, spec: Mapping[str, object]) -> subprocess.Popen[str]:
    """Another process that asks for an environment and prints [path, hit]; with ``hold`` it waits for stdin's end."""
    project = str(Path(__file__).parents[2])
    paths = [project, *filter(None, [os.environ.get("PYTHONPATH")])]
    return subprocess.Popen(
        [sys.executable, "-c", ENSURE, str(root), json.dumps(spec)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def make_conda_package(
    channel: Path, subdir: str, name: str, files: Mapping[str, tuple[str, int]], **index: object
) -> str:
    """A conda package in ``channel``, listed in its repodata; returns its address with its hash."""
    folder = channel / subdir
    folder.mkdir(parents=True, exist_ok=True)
    facts = {"name": name, "version": "1.0", "build": "0", "build_number": 0, "depends": [], "subdir": subdir, **index}
    archive = folder / f"{name}-{facts['version']}-0.tar.bz2"
    paths = [
        {"_path": path, "path_type": "hardlink", "sha256": hashlib.sha256(text.encode()).hexdigest()}
        | {"size_in_bytes": len(text.encode())}
        for path, (text, _) in files.items()
    ]
    with tarfile.open(archive, "w:bz2") as tar:
        for path, (text, mode) in files.items():
            _add(tar, path, text, mode)
        _add(tar, "info/index.json", json.dumps(facts), 0o644)
        _add(tar, "info/paths.json", json.dumps({"paths": paths, "paths_version": 1}), 0o644)
    data = archive.read_bytes()
    md5 = hashlib.md5(data).hexdigest()
    facts |= {"md5": md5, "sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}
    _list(folder / "repodata.json", subdir, archive.name, facts)
    return f"{archive.as_uri()}#{md5}"


def _add(tar: tarfile.TarFile, path: str, text: str, mode: int) -> None:
    item = tarfile.TarInfo(path)
    item.size, item.mode = len(text.encode()), mode
    tar.addfile(item, io.BytesIO(text.encode()))


def _list(path: Path, subdir: str, name: str, facts: Mapping[str, object]) -> None:
    known = json.loads(path.read_text())["packages"] if path.exists() else {}
    repodata = {"info": {"subdir": subdir}, "packages": {**known, name: facts}, "packages.conda": {}}
    path.write_text(json.dumps(repodata))
