"""Creates or completes ``.venv``: installs uv with pip, then the packages of the lock, then this project.

Uses the standard library only.
"""

from __future__ import annotations

import importlib.util
import os
import re
import runpy
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
LOCK = ROOT / "requirements" / "dev.txt"
PYTHON = VENV / "bin" / "python"
UV = VENV / "bin" / "uv"

PACKAGE_INDEX = ROOT / "debug_server" / "runner" / "environments" / "package_index.py"


def main() -> None:
    """Run the steps."""
    began = time.monotonic()
    say(f"Python {sys.version.split()[0]} at {sys.executable}")
    make_venv()
    install_uv()
    environ = uv_environment()
    say(f"installing the {len(locked_names())} packages of {LOCK.relative_to(ROOT)}")
    install_packages(environ)
    say("installing this project in place")
    run(uv_command("install"), "--no-deps", "--no-build-isolation", "--editable", str(ROOT), environ=environ)
    say(f"done in {time.monotonic() - began:.1f} s")


def say(text: str) -> None:
    """Print one line of progress."""
    print(f"setup: {text}", flush=True)


def run(command: Sequence[str], *more: str, environ: dict[str, str] | None = None) -> None:
    """Run a program, which prints its own messages; exit with status 1 if it fails."""
    status = subprocess.run([*command, *more], cwd=ROOT, env=environ, check=False).returncode
    if status:
        sys.exit(f"setup: failed with status {status}: {shlex.join([*command, *more])}")


def make_venv() -> None:
    """Create the virtual environment unless a working one is there."""
    if works(PYTHON, "-c", "import sys; sys.exit(sys.version_info < (3, 11))") and not was_moved():
        return
    if importlib.util.find_spec("ensurepip") is None:
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        sys.exit(
            f"setup: {sys.executable} cannot make virtual environments: its module ensurepip is missing.\n"
            f"setup: on Debian and Ubuntu run: apt-get install python{version}-venv"
        )
    say(f"creating {VENV.name}")
    run([sys.executable, "-m", "venv", "--clear", str(VENV)])


def was_moved() -> bool:
    """Whether the environment was created in another folder: the first lines of its programs still name it."""
    made_by = re.search(r"^command = .* -m venv (.*)$", (VENV / "pyvenv.cfg").read_text(), re.MULTILINE)
    return made_by is not None and not made_by[1].endswith(str(VENV))


def works(program: Path, *arguments: str) -> bool:
    """Whether a program is there and ends with status 0."""
    return program.exists() and subprocess.run([program, *arguments], capture_output=True, check=False).returncode == 0


def install_uv() -> None:
    """Install the locked uv with pip. The hash is checked, so it does not matter which index it comes from."""
    stanza = next(item for item in stanzas() if item.startswith("uv=="))
    version = stanza.removeprefix("uv==").split()[0]
    if works(UV, "--version") and subprocess.check_output([UV, "--version"], text=True).split()[1] == version:
        return
    say(f"installing uv {version}")
    if not works(PYTHON, "-m", "pip", "--version"):
        run([str(PYTHON), "-m", "ensurepip"])
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write(stanza)
        file.flush()
        with tempfile.TemporaryDirectory() as wheels:
            # Download with the user's pip settings, which name the indexes. Install without them: `user`, `target` or
            # `prefix` in them would install it elsewhere.
            pip = [str(PYTHON), "-m", "pip", "--disable-pip-version-check", "--quiet"]
            run([*pip, "download"], "--no-deps", "--require-hashes", "--dest", wheels, "-r", file.name)
            alone = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
            found = [str(path) for path in Path(wheels).iterdir()]
            install = [*pip, "--isolated", "install", "--no-index", "--no-deps"]
            run(install, *found, environ={**alone, "PIP_CONFIG_FILE": os.devnull})


def install_packages(environ: dict[str, str]) -> None:
    """Install the lock by uv, or by pip where uv fails: pip passes over an index that does not answer."""
    sync = [*uv_command("sync"), "--require-hashes", str(LOCK)]
    if subprocess.run(sync, cwd=ROOT, env=environ, check=False).returncode == 0:
        return
    say("uv could not install the packages; trying pip (UV_DEFAULT_INDEX and UV_INDEX set the indexes of uv)")
    pip = [str(PYTHON), "-m", "pip", "--disable-pip-version-check", "--quiet", "install", "--require-hashes", "-r"]
    run(pip, str(LOCK), environ={**os.environ, "PIP_USER": "no"})


def stanzas() -> list[str]:
    """The lock's requirements, each with its hashes."""
    return re.findall(r"^[a-z0-9].*(?:\n +--hash.*)*", LOCK.read_text(), flags=re.MULTILINE)


def locked_names() -> list[str]:
    """The names in the lock."""
    return [re.split(r"[=\[ ]", item, maxsplit=1)[0] for item in stanzas()]


def uv_command(verb: str) -> list[str]:
    """``uv pip`` on our environment."""
    # The hashes are checked, so a package may come from any configured index that has the file.
    return [str(UV), "pip", verb, "--quiet", "--python", str(PYTHON), "--index-strategy", "unsafe-best-match"]


def uv_environment() -> dict[str, str]:
    """This process's environment plus variables that give uv the indexes of pip, unless uv has its own."""
    environ = {"UV_PYTHON_DOWNLOADS": "never", **os.environ}
    if not os.access(Path.home(), os.W_OK):
        environ.setdefault("UV_CACHE_DIR", str(ROOT / ".cache" / "uv"))
    # Run by path, not imported: the dependencies of the package are not installed yet.
    found: dict[str, str] = runpy.run_path(str(PACKAGE_INDEX))["uv_variables"](environ, prefix=VENV)
    return found | environ


if __name__ == "__main__":
    main()
