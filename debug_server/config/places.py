"""Finds the settings files and the data folder; every program uses this search. The data folder is:

    1. paths.artifacts of a variable or of the settings file, if set
    2. else ``.artifacts`` in the nearest folder, from the current directory up, with ``.artifacts`` or a file of FILES
    3. else the user's data folder

A file of another user must not choose a shell or a database: only paths that ``disk.trusted`` accepts count, and above
the current directory only paths of this user. ``cloned`` has the rule for cloned repositories. A user who names a file
(``--config``) also trusts its owner.
"""

from __future__ import annotations

import hashlib
import os
import pwd
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from debug_server.config.cloned import check_cloned
from debug_server.config.declare import settings_of
from debug_server.config.load import Loaded, base_of, load
from debug_server.config.runner import RunnerConfig
from debug_server.config.variables import misspelt
from debug_server.disk import check_trusted, owners_of, trusted_users, why_distrusted
from debug_server.errors import ConfigurationError

CONFIG_FOLDER, DATA_FOLDER = "config", ".artifacts"
RUNNER_FILE = "runner.toml"
FILES = (RUNNER_FILE, "runners.yml", "repos.yml", "tasks.toml", "gateway.toml", "workers.toml")
DATA_VARIABLE = "DEBUG_SERVER_PATHS_ARTIFACTS"
_PROJECT = "debug-server"
_ACCESS = os.R_OK | os.W_OK | os.X_OK


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigLocation:
    """Where settings are read, and the default data folder."""

    named: Path | None  # the settings file that the caller named
    found: Path | None  # the folder that the search found; None: use the user's data folder
    data: Path | None  # None: there is no home folder
    ignored: tuple[tuple[Path, str], ...] = ()  # paths in the current directory that are not trusted, with the reasons
    trusted_uids: frozenset[int] = field(default_factory=trusted_users)  # whose files are trusted

    @property
    def base(self) -> Path:
        """The folder against which relative default paths of other settings are resolved."""
        return self.found or self.data or Path.cwd()

    @property
    def config_folder(self) -> Path:
        """The folder of settings files; it may not exist."""
        return (self.found or Path.cwd()) / CONFIG_FOLDER

    def files(self, name: str) -> list[Path]:
        """The settings file ``name`` as a list of one path or none: beside the named file, else in the found folder."""
        if name == RUNNER_FILE and self.named is not None:
            return [self.named]
        beside = [self.named.parent / name] if self.named is not None else []
        here = [self.found / CONFIG_FOLDER / name] if self.found is not None else []
        if self.named is None or self.named.parent.name != CONFIG_FOLDER:  # else the user named this folder
            here = [path for path in here if _is_there(path) and why_distrusted(path) is None]
        return [path for path in (*beside, *here) if path.is_file()][:1]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedConfig:
    """The runner's settings, with absolute paths, and where they were found."""

    location: ConfigLocation
    loaded: Loaded[RunnerConfig]

    @property
    def data(self) -> Path:
        """The data folder."""
        return self.loaded.value.paths.artifacts

    def notes(self, environ: Mapping[str, str]) -> list[str]:
        """Messages for the user: what the search ignored, and, when shown for the first time, what it found."""
        found = [f"{path} is ignored: {reason}" for path, reason in self.location.ignored]
        declared = [item.variable for item in settings_of(RunnerConfig).values()]
        found += [f"{name} is ignored: did you mean {ours}?" for name, ours in misspelt(environ, declared)]
        searched = self.location.named is None
        files = [str(path) for name in FILES for path in self.location.files(name)] if searched else []
        if files or (searched and self.loaded.source("paths.artifacts") == "default"):
            sentence = f"using the data folder {self.data}" + (f" and the settings {', '.join(files)}" if files else "")
            found += [sentence] if _shown_first_time(sentence, environ) else []
        return found


def find_config_location(
    config: str | os.PathLike[str] | None = None,
    *,
    environ: Mapping[str, str] = os.environ,
    cwd: Path | None = None,
) -> ConfigLocation:
    """The location for a named settings file, or for the current directory."""
    named = Path(config).absolute() if config is not None else None
    if named is not None and named.parent.name == CONFIG_FOLDER:
        base = base_of(named)
        return ConfigLocation(named=named, found=base, data=base / DATA_FOLDER, trusted_uids=owners_of(named))
    found, ignored = _search(cwd)
    data = user_data_folder(environ) if found is None else found / DATA_FOLDER
    trusted_uids = trusted_users() if named is None else owners_of(named)
    return ConfigLocation(named=named, found=found, data=data, ignored=ignored, trusted_uids=trusted_uids)


def load_runner(
    config: str | os.PathLike[str] | None = None,
    *,
    environ: Mapping[str, str] = os.environ,
    cwd: Path | None = None,
) -> LoadedConfig:
    """Load the runner's settings from a named file or the nearest one, overridden by variables."""
    location = find_config_location(config, environ=environ, cwd=cwd)
    defaults = {} if location.data is None else {"paths.artifacts": location.data}
    loaded = load(
        RunnerConfig,
        files=location.files(RUNNER_FILE),
        environ=environ,
        defaults=defaults,
        trusted_uids=location.trusted_uids,
    )
    if location.data is None and loaded.source("paths.artifacts") == "default":
        raise ConfigurationError(f"no home folder is known: set HOME, or {DATA_VARIABLE} to the data folder")
    if location.found is not None and location.named is None:
        check_cloned(loaded, next(iter(location.files(RUNNER_FILE)), None), environ)
    return LoadedConfig(location=location, loaded=loaded)


def user_data_folder(environ: Mapping[str, str] = os.environ) -> Path | None:
    """The data folder of the XDG base directory specification; None without a home folder."""
    given = environ.get("XDG_DATA_HOME", "")
    if given.startswith("/"):  # a relative one is ignored, as specified
        return Path(given) / _PROJECT
    home = environ.get("HOME", "")
    try:
        folder = Path(home) if home.startswith("/") else Path(pwd.getpwuid(os.geteuid()).pw_dir)
    except KeyError:  # a user without an account
        return None
    return folder / ".local" / "share" / _PROJECT


def make_data_folder(path: Path, trusted_uids: Collection[int] | None = None) -> None:
    """Create the data folder, private and with a ``.gitignore`` of ``*``; an existing folder keeps its mode.

    ConfigurationError when it cannot be used, or is not trusted: a user with write access could place a database with
    their own token.
    """
    try:
        made = _make(path)
        check_trusted(path, trusted_uids)
        if made or path.name == DATA_FOLDER:  # another existing folder may contain more than our data
            _ignore_in_git(path)
    except OSError as error:
        raise _unusable(path, error.strerror or str(error)) from error
    if not os.access(path, _ACCESS, effective_ids=True):
        raise _unusable(path, "this user may not read and write it")


def _make(path: Path) -> bool:
    """Create the folder; returns whether it is new."""
    try:
        path.mkdir(mode=0o700, parents=True)
    except FileExistsError:
        if not path.is_dir():
            raise _unusable(path, "it is not a folder") from None
        return False
    return True


def _ignore_in_git(path: Path) -> None:
    try:
        descriptor = os.open(path / ".gitignore", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    except (FileExistsError, PermissionError):
        return
    with os.fdopen(descriptor, "w") as file:
        file.write("*\n")


def _unusable(path: Path, reason: str) -> ConfigurationError:
    return ConfigurationError(f"the data folder {path} cannot be used: {reason}: set {DATA_VARIABLE} to another folder")


def _search(cwd: Path | None) -> tuple[Path | None, tuple[tuple[Path, str], ...]]:
    try:
        here = (cwd or Path.cwd()).absolute()
    except FileNotFoundError:  # the current directory was removed
        return None, ()
    ignored: tuple[tuple[Path, str], ...] = ()
    for folder in (here, *here.parents):
        candidates = [folder / DATA_FOLDER, *(folder / CONFIG_FOLDER / name for name in FILES)]
        present = {path: _why_ignored(path) for path in candidates if _is_there(path)}
        refused = tuple((path, reason) for path, reason in present.items() if reason is not None)
        if any(reason is None and (folder == here or _is_ours(path, folder)) for path, reason in present.items()):
            return folder, refused
        if folder == here:
            ignored = refused
    return None, ignored


def _why_ignored(path: Path) -> str | None:
    """Why a data folder or settings file that the search found does not count."""
    if path.name in FILES and path.is_dir():
        return "it is a folder, not a file"
    if path.name == DATA_FOLDER and not os.access(path, _ACCESS, effective_ids=True):
        return "this user may not read and write it"
    return why_distrusted(path)


def _is_there(path: Path) -> bool:
    try:
        return path.is_dir() if path.name == DATA_FOLDER else path.is_file() or path.is_dir()
    except OSError:  # a folder that this user cannot read
        return False


def _is_ours(path: Path, below: Path) -> bool:
    """Whether the path, its folders below ``below`` and the targets of links belong to this user."""
    parts = [path, *(parent for parent in path.parents if parent != below and parent.is_relative_to(below))]
    try:
        return all(part.lstat().st_uid == part.stat().st_uid == os.geteuid() for part in parts)
    except OSError:
        return False


def _shown_first_time(sentence: str, environ: Mapping[str, str]) -> bool:
    """Whether this message is shown to the user for the first time."""
    home = user_data_folder(environ)
    if home is None:
        return True
    mark = home / "told" / hashlib.sha256(sentence.encode()).hexdigest()[:32]
    try:
        make_data_folder(home)
        mark.parent.mkdir(mode=0o700, exist_ok=True)
        os.close(os.open(mark, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        return False
    except (OSError, ConfigurationError):  # no folder to record it
        return True
    return True
