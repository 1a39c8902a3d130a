"""Templates that would make bash evaluate a task's values, by combination; and values that show it by making a file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product

from debug_server.tasks.bash_names import BUILTINS

MARK = "EVALUATED"
PROMPTS = (
    f"$(touch {MARK})",
    f"`touch {MARK}`",
    f"a[$(touch {MARK})]",
    f"x; touch {MARK}",
    f"touch {MARK}",
    f"-va[$(touch {MARK})]",
    f"x\ntouch {MARK}\n#",
    f"'; touch {MARK}; '",
    f'"; touch {MARK}; "',
    f") touch {MARK};; esac; (",
    f"a[$(touch {MARK})]=1",
    f"EOF\ntouch {MARK}\n",
    "-v",
    "%n",
)
QUOTED = (
    "{prompt}",
    '"{prompt}"',
    "'{prompt}'",
    "$'{prompt}'",
    "x={prompt}",
    '"{prompt} {task_id}"',
    "{prompt} {task_id}",
)
WRAPPERS = (
    "%s",
    "( %s )",
    "{ %s\n}",
    "if true; then %s\nfi",
    "true && %s",
    "case a in a) %s\n;; esac",
    "f() { %s\n}; f",
    'agent "$(%s\n)"',
    "for i in 1; do %s\ndone",
    "%s\nagent {prompt}",
)
OPTIONS = ("", "-v ", "-- ", "-n ", "-a ", "-p ", "-i ", "x ", "-eq ", "%s ", "%n ", "-x -v ")
EVALS = (
    *("\\eval", "'eval'", '"ev"al', "$'eval'", "$'\\x65val'", '$"eval"', "ev{al,}", "{eval,}", "e\\val", "ev\\\nal"),
    *(
        "command eval",
        "builtin eval",
        "command -p eval",
        "exec eval",
        "! eval",
        "time eval",
        "time -p eval",
        "x=1 eval",
    ),
    *(
        ">f eval",
        "2>&1 eval",
        "e=eval; $e",
        'e=eval; "$e"',
        "e=eval; ${e}",
        "${e:-eval}",
        "$(echo eval)",
        "`echo eval`",
    ),
    *(
        "e='eval a'; $e/b",
        "coproc eval",
        "coproc",
        "then eval",
        "\\\n eval",
        "eval #\n eval",
        "a[1]=2 eval",
        "a=(1) eval",
    ),
    *("command command eval", "builtin command eval", "exec -a x eval", "let", "a=1 . /dev/stdin <<<", "{e,}val"),
    *("[ev]al", "printf {-v,x}", "printf -va", "printf $o", "[ $o", "[ -v", "test -R", "[ x -o -v", "test x -a -v"),
)
PLACES = (
    *("echo $((%s))", "echo $((a[%s]))", "((%s))", "((a[%s]++))", "echo $[%s]", "a[%s]=1", "a=([%s]=1)", "a=(%s)"),
    *("a+=([%s]=1)", "declare -A a=([%s]=1)", "declare a[%s]=1", "echo ${x:%s}", "echo ${x:-%s}", 'echo "${x/%s/y}"'),
    *("echo ${a[%s]}", "echo ${!%s}", "[[ %s -eq 1 ]]", "[[ -v %s ]]", "[[ a =~ %s ]]", "[[ a == %s ]]"),
    *("for ((i=%s; i<1; i++)); do :; done", 'for i in %s; do eval "$i"; done', "for i in %s; do $i; done"),
    *("select i in %s; do :; done", "case x in %s) :;; esac", "echo `echo %s`", 'echo "`eval %s`"', "%s", "%s agent"),
    *("bash <<EOF\n%s\nEOF", "bash <<'EOF'\n%s\nEOF", "bash <<-EOF\n\t%s\n\tEOF", 'eval "$(cat <<EOF\n%s\nEOF\n)"'),
    *(". /dev/stdin <<< %s", ". /dev/stdin <<EOF\n%s\nEOF", "source <(echo %s)", 'eval "$(echo %s)"', "$(echo %s)"),
    *('echo %s | eval "$(cat)"', 'echo %s | while read l; do eval "$l"; done', 'echo %s | { read l; eval "$l"; }'),
    *(
        "echo %s | . /dev/stdin",
        "echo %s | ( . /dev/stdin )",
        "{ echo %s; } | . /dev/stdin",
        "echo %s | cat | . /dev/stdin",
    ),
    *("while read l; do $l; done <<< %s", "while read l; do $l; done < <(echo %s)", "{ . /dev/stdin; } <<< %s"),
    *('x=%s; eval "$x"', "x=%s; $x", "x=%s; ((x))", "x=%s; echo $((x))", "x=%s; a[x]=1", "x=%s; a[$x]=1", "x=%s; ${x}"),
    *(
        "x=%s; [[ $x -eq 1 ]]",
        "x=%s; [ -v $x ]",
        "x=%s; echo ${a[x]}",
        "x=%s; y=$x; eval $y",
        'x=$(echo %s); eval "$x"',
    ),
    *(
        "x=%s; for i in $x; do $i; done",
        "x=%s; declare -n r=x; eval $r",
        "x=%s; printf -v $x y",
        "x=%s; bash <<< ${x@P}",
    ),
    *('export x=%s; eval "$x"', "x=%s eval '$x'", "x=%s; trap $x EXIT", "declare -i x; x=%s", "typeset -i x=1; x+=%s"),
    *(
        "RANDOM=%s",
        "SECONDS=%s",
        "OPTIND=%s",
        "LINENO=%s",
        "PS4=%s; set -x; :",
        "PATH=%s agent",
        "IFS=%s",
        "BASH_ENV=%s",
    ),
    *("export RANDOM=%s", "export PS4=%s; set -x; :", "read x <<< %s; eval $x", "mapfile -t x <<< %s; eval $x"),
    *('f() { eval "$1"; }; f %s', 'f() { eval "$(cat)"; }; echo %s | f', 'echo() { eval "$1"; }; echo %s'),
    *("function f { $1; }; f %s", "function f() { (($1)); }; f %s", 'f() { echo %s; }; eval "$(f)"'),
    *("f() { echo %s; }; f | . /dev/stdin", "shopt -s expand_aliases\nalias agent=eval\nagent %s"),
    *(
        'agent %s; eval "$_"',
        "agent %s; $_",
        "agent %s; echo $((_))",
        "agent %s; a[_]=1",
        'set -- %s; eval "$1"',
        "echo $(\\\n(agent+%s))",
    ),
    *(
        "(\\\n(agent+%s))",
        'echo "$\\\n((agent+%s))"',
        "cat <\\\n<EOF\n%s\nEOF",
        "echo $(( $(echo %s) ))",
        "a=([$(echo %s)]=1)",
    ),
    *('echo "${x:-\'}" %s "\'}"', "cat <<E\\\nOF\n%s\nEOF", "cat <<A 'x\nA\n' %s\nA", "echo ${x:-$(eval %s)}"),
    *(
        "exec %s",
        "command %s",
        "builtin %s",
        "exec -a %s agent",
        "! %s",
        "time %s",
        "nohup_() { %s; }; nohup_",
        "trap %s 0",
    ),
    *("hash -p %s agent", "enable -f %s x", "wait -p %s", "getopts %s x", "bind -x %s", "complete -C %s x", "unset %s"),
    *("f() { local x=%s; eval $x; }; f", "f() { local -i x=%s; }; f", "exec 3<<< %s; . /dev/fd/3", "exec < <(echo %s)"),
)

# The value is in the variable x, and bash comes to it by the name, which is in y.
NAMING = (
    *("y=x", "y=$(echo x)", "y=$(printf %s x)", "read y <<< x", "read -r y < <(echo x)", "mapfile -t y <<< x"),
    *("printf -v y x", "declare y=x", "export y=x", "a=(x); y=${a[0]}", "y=; y+=x", ": ${y:=x}", "y=ab; y=${y/ab/x}"),
    *("for y in x; do :; done", "set -- x; y=$1", "z=x; y=$z", "y=0; y=x", "y=$((1))x", "eval y=x", "y[0]=x"),
    *("y=HOST_RUNNER_PROMPT", "y=HOST_RUNNER_TASK_ID", "y=HOST_RUNNER_${z:-PROMPT}", "for y in ${!HOST*}; do :; done"),
    *("select y in x; do break; done <<< 1", "y=`echo x`", "eval 'y=x'", "trap 'y=x' DEBUG; :", "y='a[x]'", "_=x; y=_"),
)
NAMED = (
    *(
        "echo $((y))",
        "echo $(($y))",
        "echo $((${y}))",
        "echo $((1 + y))",
        "echo $[y]",
        "((y))",
        "sleep $((y))",
        "let y",
    ),
    *(
        "let z=y",
        "[[ y -eq 1 ]]",
        "[[ $y -eq 1 ]]",
        '[[ 1 -lt "$y" ]]',
        "[[ -v a[y] ]]",
        "[[ -v $y ]]",
        "[ -v 'a[y]' ]",
    ),
    *("echo ${a[y]}", "echo ${a[$y]}", "echo ${!y}", "echo ${HOME:y}", "echo ${HOME:0:$y}", "a[y]=1", "a=([y]=1)"),
    *(
        "declare -i z=y",
        "declare -i z; z=y",
        "local -i z=y",
        "typeset -i z; z=$y",
        "declare -n r=$y; eval $r",
        "RANDOM=y",
    ),
    *("for ((i = y; i < 1; i++)); do :; done", "for i in $y; do echo $((i)); done", "z=y; echo $((z))", "z=$y; ((z))"),
    *("f() { echo $(($1)); }; f y", "f() { echo $(($1)); }; f $y", "f() { local z=$1; ((z)); }; f $y", "OPTIND=y"),
    *(
        "eval echo '$(('$y'))'",
        "eval 'echo $((y))'",
        "trap 'echo $((y))' EXIT",
        "trap -- '((y))' EXIT",
        "$y",
        "e=eval; $e y",
    ),
    *(
        "cat <<EOF\n$((y))\nEOF",
        "cat <<EOF\n${a[y]}\nEOF",
        "echo `echo $((y))`",
        'echo "`echo $((y))`"',
        "echo ${z:-$((y))}",
    ),
    *("printf -v 'a[y]' x", "unset 'a[y]'", "read 'a[y]' <<< 1", "declare 'a[y]=1'", "test -v 'a[y]'", "echo ${y@P}"),
    *(
        "shopt -s expand_aliases\nalias g='echo $((y))'\ng",
        "exec {a[y]}>f",
        "PS4='$((y))'; set -x; :",
        "echo $(( $(echo y) ))",
    ),
    *("mapfile -t -C ': $((y));' -c 1 z <<< 1", "echo $((RANDOM + y))", "echo ${#a[y]}", "z=${y}; echo ${a[z]}"),
    *("read -r REPLY <<< $y; echo $((REPLY))", "[[ -n y && ( y -eq 1 ) ]]", "[ $y -eq 1 ]", "o=-v; [ $o 'a[y]' ]"),
    *('env | while read l; do eval "$l"; done', 'env | while read l; do echo "$((l))"; done', "coproc echo $((y))"),
    *(
        "for v in ${!HOST*}; do echo $((v)); done",
        "echo $((HOST_RUNNER_PROMPT))",
        "((HOST_RUNNER_TASK_ID))",
        "echo $((_))",
    ),
)


def templates() -> list[str]:
    """Over four thousand, some of which bash would refuse itself."""
    return list(dict.fromkeys(_combined()))


def _combined() -> Iterator[str]:
    builtins = sorted(BUILTINS)
    for name, words in [*product(builtins, (f"{item}{{prompt}}" for item in OPTIONS)), *product(builtins, QUOTED)]:
        yield f"{name} {words}" + (" ]" if name == "[" else "")
    for name, quoted in product(EVALS, QUOTED):
        yield f"{name} {quoted}"
    for place, quoted in product(PLACES, QUOTED):
        yield place % quoted
    for place, wrapper in product(PLACES, WRAPPERS):
        yield wrapper % (place % "{prompt}")
    for naming, named in product(NAMING, NAMED):
        yield f"x={{prompt}}\n{naming}\n{named}"
        own = re.sub(r"\bx\b", "HOST_RUNNER_PROMPT", naming)
        yield f"agent {{prompt}}\n{own}\n{named}"
