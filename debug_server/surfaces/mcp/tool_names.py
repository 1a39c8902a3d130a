"""Finds the tool that is meant by a name that no tool has."""

from __future__ import annotations

from difflib import SequenceMatcher

from debug_server.surfaces.mcp.tools import TOOLS

# What other interfaces, and other servers, call it.
_OTHER_NAMES = {
    "bash": "run",
    "exec": "run",
    "execute": "run",
    "history": "find_commands",
    "kill": "cancel_command",
    "logs": "read_log",
    "ps": "find_commands",
    "run_command": "run",
    "shell": "run",
    "wait": "wait_command",
}
_ALIKE = 0.8  # of 1: token_create and session_create are 0.69, session_lst and session_list 0.96


def meant_tool(name: str) -> str | None:
    """The tool of an operation's name, of the same words in another order, of a misspelt name, or of one of its words.

    None rather than a tool of another noun.
    """
    given = name.lower().replace("-", "_")
    words = _words(given)
    return (
        _OTHER_NAMES.get(given)
        or next((tool.name for tool in TOOLS.values() if words in map(_words, (tool.name, *tool.operations))), None)
        or _alike(given)
        or next((known for known in TOOLS if given in known.split("_")), None)
    )


def _words(name: str) -> list[str]:
    """The words of a name in the singular, in one order."""
    return sorted(word.removesuffix("s") for word in name.split("_"))


def _alike(given: str) -> str | None:
    ratio, known = max((SequenceMatcher(None, given, known).ratio(), known) for known in TOOLS)
    return known if ratio >= _ALIKE else None
