"""Texts from outside made fit for a line, a file name or a card."""

from __future__ import annotations

import re
import unicodedata

from runners.kit.refusal import Refusal

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def single_line(text: str, limit: int = 200) -> str:
    """``text`` on one line without control characters, cut at ``limit``."""
    kept = " ".join(_visible(text[: limit * 4]).split())
    return kept if len(kept) <= limit else kept[: limit - 1] + "…"


def paragraph(text: str, limit: int) -> str:
    """``text`` with its lines and tabs, without other control characters; too much of it is refused."""
    size = len(text.encode("utf-8", "replace"))
    if size > limit:
        raise Refusal(f"the text has {size} bytes, at most {limit} fit")
    return "\n".join("\t".join(_visible(part) for part in line.split("\t")).rstrip() for line in text.splitlines())


def name(text: str, what: str) -> str:
    """``text`` when it can be part of a file name; it never holds a separator or starts with a dot."""
    if not NAME.fullmatch(text) or ".." in text:
        raise Refusal(f"{what} {single_line(text, 60)!r} is not a name: letters, digits, '.', '_' and '-', at most 100")
    return text


def _visible(text: str) -> str:
    # Cc: control, Cf: direction overrides and other invisible marks, Cs: lone surrogates that no file can hold.
    return "".join(" " if unicodedata.category(letter) in ("Cc", "Cf", "Cs", "Zl", "Zp") else letter for letter in text)
