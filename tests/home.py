"""The home folder of a test run: private, and full of traps, whoever runs the tests and whatever he has configured.

A test that reads the user's configuration meets a server that does not exist, indexes that do not exist, and programs
that leave a mark; the run fails when there is one. What is needed to reach the package index is turned into variables
before the user's own home folder is out of sight.
"""

from __future__ import annotations

import fcntl
import os
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from debug_server.disk import remove_tree
from debug_server.runner.environments.package_index import pip_settings, uv_tables, uv_variables

ROOT = Path(__file__).resolve().parents[1]
DEAD = "http://127.0.0.1:9"  # the discard port, on which nobody listens
MARKS = "marks"
_PREFIX = "debug-server-test-home-"
_OWNER = ".owner"  # locked while its run lives
_WORKER = "PYTEST_XDIST_WORKER"

# Settings of ours, of the tools that we and the tests start, and of who the user is to others.
_REMOVED = re.compile(
    r"XDG_.*|DEBUG_SERVER_.*|PIP_.*|UV_.*|GIT_(?!SSL_).*|NPM_CONFIG_.*|PROXY_.*|WORKER_.*|CODEX_.*|HOST_RUNNER_.*"
    r"|PROBE_.*|GOVERNOR_.*|OTEL_.*|OPENAI_.*|DATABASE_URL|METADATA_DB_URL|PORT|PROTO_LOG_PATH|TOKEN_LOG_PATH"
    r"|CONDA.*|MAMBA_.*|RATTLER_.*|PG.*|NOTIFY_SOCKET|BASH_ENV|ENV|PYTHONSTARTUP|PYTHONUSERBASE|VIRTUAL_ENV|NETRC"
    r"|SSH_AUTH_SOCK|NODE_OPTIONS",
    re.IGNORECASE,
)
_KEPT = re.compile(
    r"UV_(HTTP_TIMEOUT|CONCURRENT_.*|KEYRING_PROVIDER|NATIVE_TLS|SYSTEM_CERTS|OFFLINE)|PIP_DEFAULT_TIMEOUT"
)
# Programs of these tools are found through a folder in the home folder, unless a variable names it.
_TOOL_FOLDERS = {
    "PYENV_ROOT": ".pyenv",
    "RUSTUP_HOME": ".rustup",
    "CARGO_HOME": ".cargo",
    "ASDF_DATA_DIR": ".asdf",
    "MISE_DATA_DIR": ".local/share/mise",
    "VOLTA_HOME": ".volta",
    "NVM_DIR": ".nvm",
}
_UV_INDEX = re.compile(r"UV_(DEFAULT_INDEX|INDEX.*|EXTRA_INDEX_URL|FIND_LINKS|NO_INDEX|INSECURE_HOST)")
_PIP_INDEX = ("index-url", "extra-index-url", "find-links", "no-index", "trusted-host", "cert", "client-cert", "proxy")
_NPM_INDEX = ("registry", "cafile", "strict-ssl", "proxy", "https-proxy", "noproxy")


def enter_private_home() -> Path | None:
    """Replace the user's settings in our environment, once in each test run; None where another process did it."""
    if _WORKER in os.environ:
        return None
    _remove_abandoned_homes()
    home = Path(tempfile.mkdtemp(prefix=_PREFIX))
    _hold(home)
    environ = private_environment(os.environ, home)
    os.environ.clear()
    os.environ.update(environ)
    set_traps(home)
    return home


def _hold(home: Path) -> None:
    """Say that the run of this home folder lives: its lock ends with the process."""
    descriptor = os.open(home / ".owner.new", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    (home / ".owner.new").rename(home / _OWNER)  # with its name it is locked already


def _remove_abandoned_homes() -> None:
    """Those of killed runs; one without the file has another owner, or is being made."""
    for owner in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*/{_OWNER}"):
        with suppress(OSError), owner.open("rb") as lock:  # another user's, or held
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            remove_tree(owner.parent)


def private_environment(environ: Mapping[str, str], home: Path) -> dict[str, str]:
    """``environ`` without anybody's settings, with this home folder and the indexes that the user's settings name."""
    kept = {name: value for name, value in environ.items() if not _REMOVED.fullmatch(name) or _KEPT.fullmatch(name)}
    before = Path(environ.get("HOME") or "/nonexistent")
    for name, folder in _TOOL_FOLDERS.items():
        if name not in kept and (before / folder).is_dir():
            kept[name] = str(before / folder)
    cache = ROOT / ".cache" / "uv"
    return {
        **kept,
        **index_variables(environ, before),
        "HOME": str(home),
        "NO_PROXY": _with_loopback(environ.get("NO_PROXY") or environ.get("no_proxy") or ""),
        "no_proxy": _with_loopback(environ.get("no_proxy") or environ.get("NO_PROXY") or ""),
        "UV_CACHE_DIR": str(cache if os.access(ROOT, os.W_OK) else home / ".cache" / "uv"),
    }


def _with_loopback(hosts: str) -> str:
    return ",".join(filter(None, [hosts, "127.0.0.1,localhost,::1"]))


def index_variables(environ: Mapping[str, str], home: Path) -> dict[str, str]:
    """Where uv, pip and npm find packages, as variables; without files of theirs, which are traps from now on."""
    prefix = Path(sys.prefix)
    found = uv_variables(environ, prefix=prefix) | _from_tables(uv_tables(environ))
    found |= {name: value for name, value in environ.items() if _UV_INDEX.fullmatch(name)}
    pip = pip_settings(environ, prefix=prefix)
    if (default := _default_index()) is not None:
        if not {"UV_INDEX_URL", "UV_NO_INDEX"} & found.keys():
            found.setdefault("UV_DEFAULT_INDEX", default)
        pip.setdefault("index-url", default)
    found |= {
        f"PIP_{name.upper().replace('-', '_')}": " ".join(pip[name].split()) for name in _PIP_INDEX if name in pip
    }
    npm = _npm_settings(environ, home)
    return found | {f"npm_config_{name.replace('-', '_')}": npm[name] for name in _NPM_INDEX if name in npm}


def _default_index() -> str | None:
    """The address that pip uses without a setting: no file of ours names a registry."""
    try:
        from pip._internal.models.index import PyPI
    except ImportError:
        return None
    return str(PyPI.simple_url)


def _from_tables(tables: list[dict[str, Any]]) -> dict[str, str]:
    """uv's variables for its own settings."""
    merged = {name: value for table in tables for name, value in table.items()}
    indexes = [item for item in merged.get("index", []) if not item.get("explicit")]
    others = [item["url"] for item in indexes if not item.get("default")]
    found = {
        "UV_DEFAULT_INDEX": next((item["url"] for item in indexes if item.get("default")), merged.get("index-url", "")),
        "UV_INDEX": " ".join([*others, *merged.get("extra-index-url", [])]),
        "UV_FIND_LINKS": ",".join(merged.get("find-links", [])),
        "UV_NO_INDEX": "1" if merged.get("no-index") else "",
        "UV_INDEX_STRATEGY": merged.get("index-strategy", ""),
        "UV_INSECURE_HOST": " ".join(merged.get("allow-insecure-host", [])),
    }
    return {name: value for name, value in found.items() if value}


def _npm_settings(environ: Mapping[str, str], home: Path) -> dict[str, str]:
    path = Path(environ.get("NPM_CONFIG_USERCONFIG") or environ.get("npm_config_userconfig") or home / ".npmrc")
    try:
        lines = path.read_text("utf-8", "replace").splitlines()
    except OSError:
        lines = []
    pairs = [line.partition("=") for line in lines if not line.lstrip().startswith(("#", ";"))]
    found = {name.strip(): value.strip().strip('"') for name, _, value in pairs}
    variables = {name.lower(): value for name, value in environ.items() if name.lower().startswith("npm_config_")}
    return found | {name.removeprefix("npm_config_").replace("_", "-"): value for name, value in variables.items()}


def set_traps(home: Path) -> None:
    """Fill a home folder with settings that break, or betray, whoever uses them."""
    (home / MARKS).mkdir(mode=0o777)
    for name, text in {**_settings(home), **_start_files(home), **_git_files(home)}.items():
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755 if text.startswith("#!") else 0o600)


def _settings(home: Path) -> dict[str, str]:
    return {
        ".debug-server/config.toml": f'base_url = "{DEAD}"\ntoken = "of-nobody"\n',
        ".local/share/debug-server": "A file in the place of the data folder: tests keep their data elsewhere.\n",
        ".config/pip/pip.conf": f"[global]\nindex-url = {DEAD}/simple\n",
        ".config/uv/uv.toml": f'[[index]]\nurl = "{DEAD}/simple"\ndefault = true\n',
        ".npmrc": f"registry={DEAD}/\nignore-scripts=true\n",
        ".condarc": f"channels: [{DEAD}/conda]\n",
        ".ssh/config": f"Host *\n    ProxyCommand {_mark(home, 'ssh')}\n",
        ".codex/config.toml": f'model_provider = "{DEAD}"\n',
    }


def _start_files(home: Path) -> dict[str, str]:
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    shells = (".bashrc", ".bash_profile", ".bash_logout", ".profile", ".zshenv", ".kshrc")
    python = f"import sys; print(sys.orig_argv, file=open({str(home / MARKS)!r} + '/NAME', 'a'))\n"
    return {
        **{name: f"{_mark(home, name)}\n" for name in shells},
        ".pythonrc": python.replace("NAME", "pythonrc"),
        f".local/lib/python{version}/site-packages/usercustomize.py": python.replace("NAME", "usercustomize"),
    }


def _git_files(home: Path) -> dict[str, str]:
    hooks = ("pre-commit", "post-commit", "post-checkout", "post-merge", "reference-transaction", "pre-push")
    mark = f"{home}/.traps/git-program"
    config = f"""\
[user]
    useConfigOnly = true
[commit]
    gpgSign = true
[tag]
    gpgSign = true
[gpg]
    program = {mark}
[core]
    hooksPath = {home}/.traps/hooks
    fsmonitor = {mark}
    sshCommand = {mark}
    editor = {mark}
    pager = {mark}
[init]
    templateDir = {home}/.traps/template
    defaultBranch = trap
[filter "trap"]
    clean = {mark}
    smudge = {mark}
[diff]
    external = {mark}
[credential]
    helper = {mark}
[alias]
    co = !{mark}
[protocol "file"]
    allow = never
[url "{DEAD}/"]
    insteadOf = file://
"""
    return {
        ".gitconfig": config,
        ".traps/git-program": f"#!/bin/sh\n{_mark(home, 'git-program')}\nexit 1\n",
        **{f".traps/hooks/{name}": f"#!/bin/sh\n{_mark(home, f'git-{name}')}\n" for name in hooks},
        **{f".traps/template/hooks/{name}": f"#!/bin/sh\n{_mark(home, f'template-{name}')}\n" for name in hooks},
    }


def _mark(home: Path, name: str) -> str:
    """A shell command that leaves a mark with the name of the trap and what ran into it."""
    words = "$(tr '\\0' ' ' </proc/$$/cmdline) of $(tr '\\0' ' ' </proc/$PPID/cmdline 2>/dev/null)"
    return f'echo "{words}" >>{shlex.quote(str(home / MARKS / name))} 2>/dev/null'


def plain_git() -> dict[str, str]:
    """Our environment with nobody's settings of git, for the tests' own repositories."""
    return {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}


def left_marks(home: Path) -> dict[str, str]:
    """The traps that something ran into, and what is known of it."""
    return {path.name: path.read_text(errors="replace").strip()[:2000] for path in (home / MARKS).iterdir()}


def remove_private_home(home: Path) -> None:
    """At the end of the run."""
    shutil.rmtree(home, ignore_errors=True)
