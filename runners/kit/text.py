"""Cleans untrusted texts for use in a line, a file name or a card."""

from __future__ import annotations

import re
import unicodedata

from runners.kit.errors import JobError

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def single_line(text: str, limit: int = 200) -> str:
    """``text`` on one line, without control characters, cut at ``limit``."""
    kept = " ".join(_visible(text[: limit * 4]).split())
    return kept if len(kept) <= limit else kept[: limit - 1] + "…"


def paragraph(text: str, limit: int) -> str:
    """``text`` with lines and tabs, without other control characters; JobError if it is too long."""
    size = len(text.encode("utf-8", "replace"))
    if size > limit:
        raise JobError(f"the text has {size} bytes (limit {limit})")
    return "\n".join("\t".join(_visible(part) for part in line.split("\t")).rstrip() for line in text.splitlines())


def checked_name(text: str, what: str) -> str:
    """``text``, if it can be part of a file name: no separator, no leading dot."""
    if not NAME.fullmatch(text) or ".." in text:
        raise JobError(
            f"{what} {single_line(text, 60)!r} is not a name: use at most 100 letters, digits, '.', '_' and '-'"
        )
    return text


def _visible(text: str) -> str:
    # Cc: control, Cf: direction overrides and other invisible marks, Cs: lone surrogates, which cannot be encoded.
    return "".join(" " if unicodedata.category(letter) in ("Cc", "Cf", "Cs", "Zl", "Zp") else letter for letter in text)
