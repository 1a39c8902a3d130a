"""The parts of this machine that every isolated command sees: programs, libraries and what they read, nothing of users.

Only what is named here is shown. On a server of root the command keeps root's id for the kernel, so of /etc only what
everybody may read is shown, by a list.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from functools import cache
from pathlib import Path

Place = list[str]  # see ``root.py``

_PROGRAMS = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix", "/gnu", "/snap")
_SHOWN_ANYWAY = tuple(f"{path}/" for path in _PROGRAMS)
_MACHINE = ("/sys/devices/system", "/run/current-system", "/run/opengl-driver")
_SETTINGS = (
    *(
        "alternatives",
        "bash.bashrc",
        "bash_completion.d",
        "ca-certificates",
        "ca-certificates.conf",
        "bindresvport.blacklist",
    ),
    *("debian_version", "default/locale", "environment", "ethertypes", "fonts", "gai.conf", "gitconfig", "host.conf"),
    *("hostname", "hosts", "inputrc", "java-8-openjdk", "java-11-openjdk", "java-17-openjdk", "java-21-openjdk"),
    *("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "libnl-3", "locale.alias", "locale.conf", "localtime", "login.defs"),
    *("lsb-release", "machine-info", "magic", "magic.mime", "mailcap", "manpath.config", "maven", "mime.types"),
    *("mke2fs.conf", "mtab", "nanorc", "networks", "nsswitch.conf", "npmrc", "openssl", "os-release", "papersize"),
    *("perl", "pip.conf", "pki/ca-trust", "pki/tls/certs", "profile", "profile.d", "protocols", "python", "python3"),
    *("R", "redhat-release", "resolv.conf", "rpc", "securetty", "selinux/config", "services", "shells", "skel"),
    *("ssl/certs", "ssl/cert.pem", "ssl/openssl.cnf", "static", "terminfo", "timezone", "uv", "vim", "wgetrc"),
    *("X11", "xattr.conf", "xdg", "xml", "zsh", "zshenv", "zshrc"),
)
# Where people install interpreters and compilers for themselves; programs only, where other things lie beside them.
_TOOLS_OF_HOME = (
    *(".asdf", ".bun/bin", ".cargo/bin", ".deno/bin", ".fnm", ".local/bin", ".local/share/mise", ".local/share/pipx"),
    *(".local/share/uv/python", ".local/share/uv/tools", ".nodenv", ".nvm", ".pyenv", ".rbenv", ".rustup/toolchains"),
    *(".rustup/settings.toml", ".sdkman/candidates", ".volta", "go/bin", "miniconda3", "miniforge3", "micromamba"),
)


@cache
def system_places() -> tuple[Place, ...]:
    """Programs, libraries and settings of the machine."""
    settings = [f"/etc/{name}" for name in _SETTINGS] if os.geteuid() == 0 else ["/etc"]
    return tuple(place for path in (*_PROGRAMS, *_MACHINE, *settings) if (place := _shown(path)) is not None)


def tool_places(home: str, search_path: str) -> Iterator[Place]:
    """Interpreters and compilers that were installed below the home folder, or that a PATH names elsewhere."""
    for name in _TOOLS_OF_HOME:
        if os.path.exists(path := f"{home}/{name}"):
            yield ["read", path, os.path.realpath(path)]
    for folder in search_path.split(os.pathsep):
        if os.path.isabs(folder) and os.path.isdir(folder):
            path, outside = os.path.normpath(folder), os.path.realpath(folder)
            holds_home = f"{os.path.realpath(home)}/".startswith(f"{outside.rstrip('/')}/")
            if not holds_home and not outside.startswith(_SHOWN_ANYWAY):
                yield ["read", path, outside]
                if path.endswith("/shims"):  # of pyenv and the like: they call programs beside their folder
                    yield ["read", os.path.dirname(path), os.path.dirname(outside)]


def interpreter_places(python: Path) -> Iterator[Place]:
    """The installation that an environment's interpreter belongs to, by each of the links that lead to it."""
    seen = set()
    path = python
    while path.is_symlink() and path not in seen:
        seen.add(path)
        path = Path(os.path.normpath(path.parent / path.readlink()))
        if (prefix := str(path.parent.parent)) not in ("/", "/usr") and not prefix.startswith("/usr/"):
            yield ["read", prefix, os.path.realpath(prefix)]


def _shown(path: str) -> Place | None:
    """How a path of the machine is shown; None if it does not exist, or if not everybody may read it."""
    try:
        if os.path.islink(path):
            target = os.path.realpath(path)
            inside = target.startswith(("/usr/", "/etc/")) and os.path.dirname(path) in ("/", "/etc")
            return ["link", path, os.readlink(path)] if inside and os.path.exists(path) else _shown_as(path, target)
        return _shown_as(path, path)
    except OSError:
        return None


def _shown_as(path: str, target: str) -> Place | None:
    mode = os.stat(target).st_mode
    needed = stat.S_IROTH | (stat.S_IXOTH if stat.S_ISDIR(mode) else 0)
    return ["read", path, target] if mode & needed == needed else None
