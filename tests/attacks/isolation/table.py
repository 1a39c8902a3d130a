"""What each attack may get at each level: the promise, which ``docs/security.md`` shows and the tests hold us to."""

from __future__ import annotations

from typing import Literal

from tests.attacks.isolation.program import ATTACKS, SUBJECTS

Result = Literal["held", "reached"]

# Attacks on processes outside, by what follows the name of the process.
PROCESSES = ("server", "keeper", "neighbour", "stranger")

# The level ``process`` has the machine's own /proc and network, and rules on files cover content alone: not the
# attributes of a file, nor a socket that is a file.
AT_PROCESS_LEVEL = frozenset(
    {
        *("list-processes", "servers-command-line", "messages-between-processes", "shared-memory"),
        *("change-mode", "change-times", "change-attributes"),
        *("interfaces", "keepers-socket", "own-keepers-socket", "other-programs-socket"),
        *(f"{who}s-{what}" for who in PROCESSES for what in ("limits", "priority", "processors")),
    }
)
# Reached where the policy for the network is ``open``.
BY_NETWORK = frozenset(
    {
        *("tcp", "tcp-by-ipv6", "tcp-by-mapped-address", "tcp-by-zero-address", "tcp-by-shell", "tcp-fast-open"),
        *("multipath-tcp", "udp", "name-service", "interfaces"),
    }
)
# Got at the level ``none`` whoever runs the server, on every machine: there the rest depends on the kernel and on root.
REAL = frozenset(
    {
        *("database", "home-folder", "home-start-up-file", "keepers-folder", "keepers-socket", "link-to-data-folder"),
        *(
            "list-data-folder",
            "list-logs",
            "list-workspaces",
            "new-privileges",
            "other-programs-socket",
            "abstract-socket",
        ),
        *("other-sessions-layer", "other-sessions-log", "other-sessions-temporary-folder", "other-sessions-write"),
        *("overwrite", "own-keepers-socket", "own-log", "owners-lock", "poison-environments", "poison-mirror"),
        *("poison-mirrors-configuration", "poison-package-cache", "private-file", "remove", "seal-key", "ssh-key"),
        *("tcp", "tcp-by-shell", "tcp-by-zero-address", "temporary-folder", "token-in-database", "truncate", "udp"),
        *("name-service", "write-by-dots", "write-by-link", "write-by-path", "write-through-descriptor"),
        *("write-through-own-root", "change-mode", "change-times", "messages-between-processes", "shared-memory"),
    }
)
# Run in namespaces alone: elsewhere they would hit the machine itself.
AIMED_AT_THE_MACHINE = frozenset({"end-the-first-process", "make-system-writable"})


# Not judged at the level ``process``: its result depends on the user and on how the tree of processes is held.
_UNCERTAIN = frozenset(f"{who}s-{what}" for who in PROCESSES for what in ("priority", "processors", "limits"))
_NETWORKS = {"process": ("open", "none"), "namespace": ("open", "loopback", "none")}


def promised(name: str, level: str, network: str) -> Result:
    """What an attack gets."""
    if level == "process" and name in AT_PROCESS_LEVEL:
        return "reached"
    return "reached" if name in BY_NETWORK and network == "open" else "held"


def is_promised(name: str, level: str) -> bool:
    """Whether the result is the same on every machine."""
    return level != "process" or name not in _UNCERTAIN


def names(level: str, network: str) -> list[str]:
    """The attacks that are run: with another network than ``open`` only those that it matters to."""
    found = [name for name in ATTACKS if level == "namespace" or name not in AIMED_AT_THE_MACHINE]
    if network == "open":
        return found
    return [name for name in found if name in BY_NETWORK or name.startswith(("server-", "abstract"))]


def as_markdown() -> str:
    """The table of the page: for each subject one row for each set of results."""
    rows: dict[tuple[str, ...], list[str]] = {}
    for name in ATTACKS:
        rows.setdefault((SUBJECTS[name], *(_cell(name, level) for level in _NETWORKS)), []).append(name)
    lines = ["| Attacks | `process` | `namespace` |", "|---|---|---|"]
    for (subject, *cells), attacks in rows.items():
        lines.append(f"| {subject}: {_listed(attacks)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(name: str, level: str) -> str:
    if level == "process" and name in AIMED_AT_THE_MACHINE:
        return "not run"
    if not is_promised(name, level):
        return "not promised"
    results = [promised(name, level, network) for network in _NETWORKS[level]]
    return results[0] if len(set(results)) == 1 else "reached with the network `open`, else held"


def _listed(attacks: list[str]) -> str:
    """The names; those on each of the processes outside once."""
    return ", ".join(f"`{name}`" for name in dict.fromkeys(map(_without_process, attacks)))


def _without_process(name: str) -> str:
    who, _, what = name.partition("s-")
    every = who in PROCESSES and all(f"{process}s-{what}" in ATTACKS for process in PROCESSES)
    return f"PROCESS-{what}" if every else name
