"""The shell executor's template: what reaches the command is the prompt, whatever is in it and wherever it stands."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from debug_server.errors import ConfigurationError
from debug_server.tasks.template import render
from tests.tasks.serving import TaskServer

CONTEXTS = {
    "bare": "printf %s {prompt}",
    "glued": "printf %s --x={prompt}",
    "double": 'printf %s "{prompt}"',
    "single": "printf %s '{prompt}'",
    "ansi": r"printf %s $'{prompt}'",
    "locale": 'printf %s $"{prompt}"',
    "mixed": "printf %s 'a'\"b{prompt}\"'c'",
    "substitution": 'printf %s "$(printf %s. {prompt})"',
    "quoted in substitution": 'printf %s "$(printf %s. "{prompt}")"',
    "heredoc": "cat <<EOF\n{prompt}\nEOF",
    "heredoc without tabs": "cat <<-EOF\n\t{prompt}\n\tEOF",
    "heredoc in substitution": 'printf %s "$(cat <<EOF\n{prompt}.\nEOF\n)"',
    "second heredoc": "cat <<A - <<B\nx\nA\n{prompt}\nB",
    "here string": "cat <<< {prompt}",
    "assignment": 'x={prompt}; printf %s "$x"',
    "export": 'export x={prompt}; printf %s "$x"',
    "array": 'x=({prompt}); printf %s "${x[0]}"',
    "subshell": "(printf %s {prompt})",
    "group": "{ printf %s {prompt}; }",
    "function": 'f() { printf %s "$1"; }; f {prompt}',
    "another shell's argument": "bash -c 'printf %s \"$1\"' _ {prompt}",
    "process substitution": "cat <(printf %s {prompt})",
    "case": "case a in a) printf %s {prompt};; esac",
    "comment": "# {prompt} is not used here\nprintf %s {prompt}",
    "json": 'printf %s \'{"a":{"b":1}}\'{prompt}',
    "escaped braces": "awk '{{print}}' <<< {prompt}",
}
REFUSED = {
    "eval {prompt}": "eval would evaluate",
    'bash -c "{prompt}"': "takes a script",
    "bash -lc 'echo {prompt}'": "takes a script",
    'sh -c "$(echo {prompt})"': "takes a script",
    "timeout 5 bash -c '{prompt}'": "takes a script",
    'python3 -c "print({prompt})"': "takes a script",
    "echo $(({prompt}))": "arithmetic",
    "(( {prompt} ))": "arithmetic",
    "echo $[{prompt}]": "arithmetic",
    "let {prompt}": "let would evaluate",
    "[[ {prompt} -eq 1 ]]": "inside [[",
    "echo `echo {prompt}`": "write $(…) instead",
    "echo ${x:-{prompt}}": "assign it to a variable",
    "cat <<'EOF'\n{prompt}\nEOF": "unquote it",
    "ssh host {prompt}": "ssh would evaluate",
    "a[{prompt}]=1": "subscript",
    "unset {prompt}": "unset would evaluate",
    "declare -i x={prompt}": "declare would evaluate",
    "printf -v {prompt} x": "printf would evaluate",
    "trap {prompt} EXIT": "trap would evaluate",
    "x=$(case a in a) echo {prompt};; esac)": "case",
    'echo "{prompt}': 'a " opened',
    "echo {other}": "{other} is no placeholder: use {prompt}, {task_id}, {run_id}, or write {{other}}",
    "awk '{print}' <<< {prompt}": "{print} is no placeholder",
    "echo {prompt}\0": "NUL",
}
# What has ever opened, closed, escaped or ended something in a shell.
HOSTILE_PIECES = [
    *("'", '"', "\\", "`", "$(", ")", "${", "}", "$((", "))", ";", "&", "|", "\n", "\r", "\t", " ", "*", "?", "~", "!"),
    *("#", "<", ">", "<<EOF", "EOF", "\nEOF\n", "$HOME", "${IFS}", "{prompt}", "{", "[", "]", "-n", "-e", "%s", "\x1b"),
    *("$(touch PWNED)", "`touch PWNED`", ";touch PWNED;", "'; touch PWNED; '", '"; touch PWNED; "', "\ntouch PWNED\n"),
    *("a[$(touch PWNED)]", "<(touch PWNED)", "é", "😀", "\u2028", "\ufeff", "\x7f", "A"),
]
SLOW = [HealthCheck.too_slow]  # of a busy machine, which says nothing about the examples
ANYTHING = st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=8)
HOSTILE = st.lists(st.sampled_from(HOSTILE_PIECES) | ANYTHING, min_size=1, max_size=12).map("".join).filter(bool)


def received(script: str, prompt: str, folder: Path) -> str:
    """What bash makes of it."""
    env = {"PATH": os.environ["PATH"], "HOME": str(folder), "HOST_RUNNER_PROMPT": prompt, "LC_ALL": "C.UTF-8"}
    done = subprocess.run(["bash", "-c", script], env=env, cwd=folder, capture_output=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.decode()


@pytest.mark.parametrize("context", CONTEXTS)
def test_a_reference_is_right_for_its_quotes(context: str, tmp_path: Path) -> None:
    """In each context the value arrives whole: no word is split, no glob expanded, nothing executed."""
    script = render(CONTEXTS[context])
    hostile = "a'b\"c $(touch PWNED) `touch PWNED` \\ *\n ;|&<> ${HOME} $HOME !x {} ~ \t\n\nEOF\nB\nEOF"
    assert hostile in received(script, hostile, tmp_path)
    assert not (tmp_path / "PWNED").exists()


@pytest.mark.parametrize("template", REFUSED)
def test_where_no_reference_is_safe_it_is_refused(template: str) -> None:
    """The operator is told at the start why, and what to write instead."""
    with pytest.raises(ConfigurationError) as refused:
        render(template)
    assert str(refused.value).startswith("HOST_RUNNER_CMD_TEMPLATE is refused: ") and REFUSED[template] in str(
        refused.value
    )


def test_what_has_no_placeholder_stays_as_it_is() -> None:
    """Braces of the shell, of JSON and of find are nobody's placeholder."""
    for template in (
        "echo {a,b} {1..3} ${HOME} ${x:-y}",
        "find . -exec echo {} \\;",
        'echo "{\\"a\\": 1}"',
        "awk '{ print $1 }'",
    ):
        assert render(template) == template


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, *SLOW])
@given(prompt=HOSTILE, context=st.sampled_from(["bare", "double", "single", "substitution", "ansi", "case"]))
def test_200_hostile_prompts_in_every_quoting(prompt: str, context: str, tmp_path: Path) -> None:
    """The command receives exactly the prompt."""
    said = received(render(CONTEXTS[context]), prompt, tmp_path)
    assert said.removesuffix("." if context == "substitution" else "") == prompt
    assert not (tmp_path / "PWNED").exists()


def test_hostile_prompts_through_the_whole_server(make_server: Callable[..., TaskServer], tmp_path: Path) -> None:
    """Submitted over HTTP, prompts come back as each command's stdout, byte for byte."""
    server = make_server(executor="shell", cmd_template='printf %s "{prompt}"', max_concurrency=4)
    prompts: dict[str, str] = {}

    @settings(max_examples=40, deadline=None, database=None, suppress_health_check=SLOW)
    @given(prompt=HOSTILE)
    def collect(prompt: str) -> None:
        prompts[f"t{len(prompts)}"] = prompt

    collect()
    for task_id, prompt in prompts.items():
        server.accepted(task_id, prompt)
    for task_id, prompt in prompts.items():
        found = server.ended(task_id)
        assert (found["status"], found["stdout"]) == ("success", prompt)
    assert not list(tmp_path.rglob("PWNED"))
