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
from tests.tasks.task_server import TaskServer

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
    "here string": "cat <<< {prompt}",
    "assignment": 'x={prompt}; printf %s "$x"',
    "export": 'export x={prompt}; printf %s "$x"',
    "subshell": "(printf %s {prompt})",
    "group": "{ printf %s {prompt}; }",
    "another shell's argument": "bash -c 'printf %s \"$1\"' _ {prompt}",
    "process substitution": "cat <(printf %s {prompt})",
    "case": "case a in a) printf %s {prompt};; esac",
    "comment": "# {prompt} is not used here\nprintf %s {prompt}",
    "json": 'printf %s \'{"a":{"b":1}}\'{prompt}',
    "escaped braces": "awk '{{print}}' <<< {prompt}",
}
REFUSED = {
    "eval {prompt}": "eval is a bash builtin",
    "let {prompt}": "let is a bash builtin",
    "unset {prompt}": "unset is a bash builtin",
    "declare -i x={prompt}": "declare is a bash builtin",
    "printf -v {prompt} x": "printf is a bash builtin",
    "trap {prompt} EXIT": "trap is a bash builtin",
    "{prompt} x": "would be a command name",
    "$AGENT {prompt}": "the command name is not constant",
    "echo $(({prompt}))": "arithmetic",
    "(( {prompt} ))": "arithmetic",
    "echo $[{prompt}]": "arithmetic",
    "[[ {prompt} -eq 1 ]]": "inside [[ … ]]: use [ … ]",
    "echo `echo {prompt}`": "write $(…)",
    "echo ${x:-{prompt}}": "inside ${…}",
    "cat <<EOF\n{prompt}\nEOF": "use <<< or a pipe",
    "a=([{prompt}]=1)": "subscripts",
    "x={prompt}; echo $((x))": "the variable x contains a value",
    "RANDOM={prompt}": "RANDOM is a variable that bash itself uses",
    'f() { agent "$1"; }; f {prompt}': "f is a function",
    "echo {prompt} | while read -r x; do agent $x; done": "a pipe passes the value",
    "for x in {prompt}; do agent $x; done": "a loop over the value",
    'echo "{prompt}': 'a closing " is missing',
    "if agent {prompt}; then echo": "elif or else or fi is missing",
    "cat <<EOF | | agent {prompt}\nEOF": "a command is missing before '|'",
    "agent {prompt} )": "a command is missing before ')'",
    "select x in a; do agent {prompt}; done": "select is not supported",
    "echo {other}": "{other} is not a placeholder: use {prompt}, {task_id}, {run_id}, or write {{other}}",
    "awk '{print}' <<< {prompt}": "{print} is not a placeholder",
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
        server.submitted(task_id, prompt)
    for task_id, prompt in prompts.items():
        found = server.ended(task_id)
        assert (found["status"], found["stdout"]) == ("success", prompt)
    assert not list(tmp_path.rglob("PWNED"))
