"""What the requirements of a project depend on."""

from __future__ import annotations

from pathlib import Path

import pytest

from debug_server.runner.environments.build_inputs import BuildInputs, build_inputs, tree_digest

NONE = BuildInputs()
ALL = BuildInputs(everything=True)
LITERAL = """
import os
from setuptools import setup
NEEDS = ["a"]
VERSION = open("VERSION").read()
setup(name="p", version=VERSION, install_requires=NEEDS, extras_require={"x": ["b"]})
"""


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"pyproject.toml": '[project]\nname = "p"\ndependencies = ["a"]\ndynamic = ["version"]'}, NONE),
        ({"setup.py": LITERAL}, NONE),
        ({"setup.py": LITERAL.replace("import os", "NEEDS.append('b')")}, ALL),
        ({"setup.py": "setup(install_requires=open('r.txt').read())"}, ALL),
        ({"setup.py": "setup(**arguments)"}, ALL),
        ({"setup.py": "setup(setup_requires=['pbr'], pbr=True)"}, ALL),
        ({"setup.py": "print 'Python 2'"}, ALL),
        ({"setup.py": "setup()", "setup.cfg": "[options]\ninstall_requires = a\n"}, NONE),
        (
            {
                "setup.py": "setup()",
                "setup.cfg": "[options]\ninstall_requires = file: r.txt, s.txt\n"
                "[options.extras_require]\nx = file: t.txt\n",
            },
            BuildInputs(files=("r.txt", "s.txt", "t.txt")),
        ),
        (
            {
                "pyproject.toml": '[project]\nname = "p"\ndynamic = ["dependencies"]\n'
                '[tool.setuptools.dynamic]\ndependencies = {file = ["r.txt"]}'
            },
            BuildInputs(files=("r.txt",)),
        ),
        (
            {"pyproject.toml": '[build-system]\nrequires = ["poetry-core"]\nbuild-backend = "poetry.core.masonry.api"'},
            NONE,
        ),
        (
            {
                "pyproject.toml": '[project]\nname = "p"\ndynamic = ["dependencies"]\n'
                '[build-system]\nrequires = ["hatchling", "hatch-requirements-txt"]\nbuild-backend = "hatchling.build"'
            },
            ALL,
        ),
        ({"pyproject.toml": '[build-system]\nrequires = []\nbuild-backend = "own"\nbackend-path = ["."]'}, ALL),
    ],
)
def test_inputs(tmp_path: Path, files: dict[str, str], expected: BuildInputs) -> None:
    """Literals need no build; files that are named are followed; whatever is computed may come from any file."""
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert build_inputs(tmp_path) == expected


def test_a_tree(tmp_path: Path) -> None:
    """Names, contents and links count; times and what tools make do not."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b").write_text("1")
    (tmp_path / "c").symlink_to("a")
    seen = [tree_digest(tmp_path)]
    for name in (".git", "a/__pycache__", "p.egg-info", ".venv"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "pyvenv.cfg").touch()
    assert tree_digest(tmp_path) == seen[0]
    (tmp_path / "a" / "b").write_text("2")
    seen.append(tree_digest(tmp_path))
    (tmp_path / "a" / "b").rename(tmp_path / "a" / "d")
    seen.append(tree_digest(tmp_path))
    (tmp_path / "c").unlink()
    (tmp_path / "c").symlink_to("b")
    seen.append(tree_digest(tmp_path))
    assert len(set(seen)) == 4
