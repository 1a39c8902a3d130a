"""No template that is accepted lets bash evaluate a task's values: thousands of them, run by the real bash."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from debug_server.errors import ConfigurationError
from debug_server.tasks.bash_names import BUILTINS, KEYWORDS, VARIABLES
from debug_server.tasks.template import render
from tests.tasks.hostile_templates import MARK, PROMPTS, templates

# Runs scripts with values and reports those that evaluated them, or whose `agent` did not receive the prompt. A forked
# shell's eval does what `bash -c` does without the time of a new program; `agent` is a program for exec, env and find.
_DRIVER = f"""
export OUT=$PWD/argv HOST_RUNNER_PROMPT HOST_RUNNER_TASK_ID='{PROMPTS[2]}' HOST_RUNNER_RUN_ID=7
agent() {{ printf '%s\\0' "$@" >>"$OUT"; }}
while IFS= read -r -d '' script && IFS= read -r -d '' HOST_RUNNER_PROMPT && IFS= read -r -d '' reaches; do
    ( eval "$script" ) </dev/null >/dev/null 2>&1
    if [ -e {MARK} ]; then
        rm {MARK}
        printf 'evaluated\\0%s\\0%s\\0' "$script" "$HOST_RUNNER_PROMPT"
    elif [ "$reaches" ]; then
        whole=
        : >>argv
        while IFS= read -r -d '' argument; do [[ $argument == *"$HOST_RUNNER_PROMPT"* ]] && whole=1; done <argv
        [ "$whole" ] || printf 'changed\\0%s\\0%s\\0' "$script" "$HOST_RUNNER_PROMPT"
        : >argv
    fi
done
"""
_AGENT = """#!/bin/sh
printf '%s\\0' "$@" >>"$OUT"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A working directory, with ``agent`` on the path."""
    for name in ("bin", "work"):
        (tmp_path / name).mkdir()
    (tmp_path / "bin" / "agent").write_text(_AGENT)
    (tmp_path / "bin" / "agent").chmod(0o755)
    return tmp_path


def failures(
    scripts: list[str], folder: Path, *, reaches: bool, prompts: Sequence[str] = PROMPTS
) -> list[tuple[str, ...]]:
    """What went wrong: evaluated or changed, the script, the prompt."""
    flag = "1" if reaches else ""
    said = "".join(f"{script}\0{prompt}\0{flag}\0" for script in scripts for prompt in prompts)
    env = {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "HOME": str(folder), "LC_ALL": "C.UTF-8"}
    done = subprocess.run(
        ["bash", "-c", _DRIVER], input=said.encode(), env=env, cwd=folder / "work", capture_output=True, check=False
    )
    assert done.stderr == b""
    found = done.stdout.decode().split("\0")[:-1]
    return [tuple(found[at : at + 3]) for at in range(0, len(found), 3)]


def accepted(template: str) -> str | None:
    """Its script, unless it is refused."""
    try:
        return render(template)
    except ConfigurationError:
        return None


def test_no_accepted_template_is_evaluated(folder: Path) -> None:
    """Every hostile template is refused, or its values are not evaluated."""
    hostile = templates()
    scripts = [script for template in hostile if (script := accepted(template)) is not None]
    assert len(hostile) > 2000 and 20 < len(scripts) < 600
    assert failures(scripts, folder, reaches=False) == []


def test_an_evaluation_would_be_seen(folder: Path) -> None:
    """The driver above finds what it looks for."""
    for script in (
        'eval "$HOST_RUNNER_PROMPT"',
        'printf -v "$HOST_RUNNER_PROMPT" x',
        'a=(["$HOST_RUNNER_PROMPT"]=1)',
        "bash <<EOF\necho $HOST_RUNNER_PROMPT\nEOF\n",
        '[ "$HOST_RUNNER_PROMPT" "$HOST_RUNNER_TASK_ID" ]',
        'agent "$HOST_RUNNER_PROMPT"; echo $((_))',
    ):
        assert "evaluated" in {found[0] for found in failures([script], folder, reaches=False)}, script
    assert "changed" in {found[0] for found in failures(["agent $HOST_RUNNER_PROMPT"], folder, reaches=True)}


ORDINARY = (
    "agent {prompt}",
    'agent "{prompt}"',
    "agent '{prompt}'",
    r"agent $'\t{prompt}\n'",
    'agent --id {task_id} "{prompt}"',
    "agent --id={task_id} --prompt={prompt}",
    'agent "task {task_id} of {run_id}: {prompt}"',
    'cd . && agent --id {task_id} "{prompt}"',
    "mkdir -p out/x; agent {prompt} > out/x/log 2>&1",
    ">agent.log agent {prompt}; <agent.log agent {prompt}",
    "agent {prompt} >agent.log 2>>agent.err </dev/null",
    "FOO=1 BAR='a b' agent {prompt}",
    'TASK={task_id} agent "{prompt}"',
    "exec agent {prompt}",
    "command agent {prompt}",
    "env A=1 agent {prompt}",
    "nice -n 1 timeout 50 agent {prompt}",
    "agent \\\n  --id {task_id} \\\n  {prompt}",
    "set -eu\n# say {prompt}\nagent {prompt} # {task_id}\n\necho done\n",
    "printf '%s' {prompt} | agent {prompt}",
    "printf '%s\\n' \"{prompt}\" >prompt.txt && agent {prompt}",
    "echo {prompt} | tee copy | agent {prompt} || true",
    "if command -v agent >/dev/null; then agent {prompt}; else exit 1; fi",
    "for try in 1 2 3; do agent {prompt} && break; sleep 1; done",
    "for _ in 1 2; do agent {prompt}; done",
    "for ((i = 0; i < 2; i++)); do agent {prompt}; done",
    "until agent {prompt}; do sleep 1; done",
    "(cd . && agent {prompt})",
    "{ agent {prompt}; echo after; } > log",
    "case {task_id} in 4*) agent one {prompt};; *) agent two {prompt} ;; esac",
    'x={prompt}; agent "$x" "${x}"',
    'export x="{prompt}"; agent "$x"',
    'x=$(printf %s {prompt}); [ -n "$x" ] && agent {prompt}',
    'agent "$(printf %s. {prompt})"',
    "run() { agent {prompt}; }; run",
    "function run { agent {prompt}\n}\nrun",
    "[ -n {prompt} ] && agent {prompt}",
    'if [ "{prompt}" = stop ]; then exit 0; fi; agent {prompt}',
    "[[ -n $HOME && a == [a-z] ]] && agent {prompt}",
    'agent {prompt} "${HOME:-none}" "$((1 + 1))" $(date) `date`',
    "agent {prompt} <<< {prompt}",
    "agent {prompt} <<EOF\nplain 'text\nEOF",
    "cat <<'A' <<-B >/dev/null\nx\nA\n\ty\n\tB\nagent {prompt}",
    "agent <(printf %s {prompt}) {prompt}",
    "time agent {prompt}",
    "! agent {prompt}",
    "trap 'echo end' EXIT; agent {prompt} & wait",
    "a=(1 2 'b c'); agent \"${a[@]}\" {prompt}",
    "bash -c 'agent \"$1\"' _ {prompt}",
    "find . -maxdepth 0 -exec agent {} {prompt} \\;",
    'printf "task {task_id}\\n"; agent {prompt}',
    'printf -- "{prompt}"; agent {prompt}',
    "agent '{\"a\": 1}' {{word}} {prompt}",
    '"$HOME/bin/agent" {prompt}; $HOME/bin/agent {prompt}; ~/bin/agent {prompt}',
    "mkdir m && true; mkdir t; agent {prompt} >{task_id}.log 2>/dev/null; true # {task_id}",
    "n=0; until agent {prompt} || [ $n -ge 1 ]; do n=$((n + 1)); done",
    'n=0; while ((n < 2)); do ((n++)); [[ "$n" -lt 3 ]] && agent {prompt}; done',
    "for i in {1..2}; do agent {prompt} $((i * 2)); done; for i in 1 2; do ((i)); done",
    'agent {prompt}; status=$?; [[ $status -eq 0 ]] || exit "$status"',
    "agent {prompt} & pid=$!; trap 'kill \"$pid\"' TERM; wait $pid; exit $?",
    'tmp=$(mktemp -d); trap \'rm -rf "$tmp"\' EXIT; agent {prompt} > "$tmp/out"',
    'while read -r line; do agent "$line" {prompt}; done <<< a',
    'name=${HOME##*/}; agent "${name%x}" "${name:0:2}" "${#name}" "${name^}" "${name//a/b}" {prompt}',
    'a=(x y); for b in "${a[@]}"; do agent "$b" "${a[0]}" "${#a[@]}" {prompt}; done; a[2]=z',
    'f() { local where=$1; shift; cd "$where" || return 1; agent {prompt} "$@"; }; f . x',
    "sleep $((RANDOM % 1)); end=$((SECONDS + 5)); agent {prompt}",
    'set -o pipefail; export LANG=C A="$HOME"; readonly B=$HOME; agent {prompt}; unset A',
    'if [ -f "$HOME/activate" ]; then . "$HOME/activate"; source ./x; fi; agent {prompt}',
    "cat <<EOF >/dev/null\n$HOME and ${HOME}\nEOF\nagent {prompt}",
    'printf "task $HOME\\n"; agent {prompt} "${1:-none}" "$#"; [ "$HOME" = x ] || true',
    'echo {prompt}; while [ ! -e "$PWD/go-{task_id}" ]; do agent {prompt}; break; done',
)


def test_ordinary_templates_pass_the_prompt_on_unchanged(folder: Path) -> None:
    """Whatever is in it, the prompt is a part of one argument."""
    assert len(ORDINARY) > 50
    scripts = [render(template) for template in ORDINARY]
    everything = "".join(PROMPTS) + "é😀 * ? ~ !x \\ \t ${HOME} $HOME \r<<EOF"
    assert failures(scripts, folder, reaches=True, prompts=[everything, PROMPTS[5]]) == []


@pytest.mark.parametrize(
    "template",
    [
        "python3 -c {prompt}",
        "bash -c {prompt}",
        'bash -lc "echo {prompt}"',
        "ssh host {prompt}",
        "sudo -u agent sh -c '{prompt}'",
        "xargs -I x {prompt} agent",
        "echo {prompt} | bash",
        "bash <<< {prompt}",
    ],
)
def test_what_a_program_does_with_its_argument_is_not_judged(template: str) -> None:
    """The operator has named the program."""
    assert "HOST_RUNNER_PROMPT" in render(template)


@pytest.mark.parametrize(
    ("builtin", "known"), [("compgen -b", BUILTINS), ("compgen -k", KEYWORDS), ("compgen -v", VARIABLES)]
)
def test_the_names_of_the_installed_bash_are_known(builtin: str, known: frozenset[str]) -> None:
    """A newer bash with a name of its own must be looked at."""
    done = subprocess.run(["bash", "--norc", "-c", builtin], env={}, capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) <= known
