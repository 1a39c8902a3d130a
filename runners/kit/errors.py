"""The error of the runner programs."""

from __future__ import annotations


class JobError(RuntimeError):
    """The job failed; the message says which value is wrong and what to do. It is printed without a traceback."""
