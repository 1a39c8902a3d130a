"""Path globs of triggers."""

from __future__ import annotations

import pytest

from debug_server.dispatch.globs import matches


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("*.md", "a.md", True),
        ("*.md", "b/a.md", False),
        ("kanban/**/*.md", "kanban/a.md", True),
        ("kanban/**/*.md", "kanban/b/c/a.md", True),
        ("kanban/*/TASK-*.md", "kanban/wip/TASK-1.md", True),
        ("kanban/*/TASK-*.md", "kanban/wip/x/TASK-1.md", False),
        ("Modelfile*", "Modelfile.big", True),
        (".gitignore", "agitignore", False),
        ("**", "a/b", True),
    ],
)
def test_globs(pattern: str, path: str, expected: bool) -> None:
    """A star stays within its folder, two cross them."""
    assert matches(pattern, path) is expected
