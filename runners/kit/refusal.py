"""The one error of the runner programs: what was wrong, for a person, without a traceback."""

from __future__ import annotations


class Refusal(RuntimeError):
    """The job is not done; the text says which value was wrong and what to do."""
