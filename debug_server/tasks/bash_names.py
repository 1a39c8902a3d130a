"""The names that bash reserves: builtins, keywords, variables."""

from __future__ import annotations


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


BUILTINS = _names(
    ". : [ alias bg bind break builtin caller cd command compgen complete compopt continue declare dirs disown echo "
    "enable eval exec exit export false fc fg getopts hash help history jobs kill let local logout mapfile popd printf "
    "pushd pwd read readarray readonly return set shift shopt source suspend test times trap true type typeset ulimit "
    "umask unalias unset wait"
)
KEYWORDS = _names("if then else elif fi case esac for select while until do done in function time { } ! [[ ]] coproc")
# Of the manual's "Shell Variables"; some evaluate what is assigned (RANDOM, PS4), others decide what runs (PATH, IFS).
VARIABLES = _names(
    "_ BASH BASHOPTS BASHPID BASH_ALIASES BASH_ARGC BASH_ARGV BASH_ARGV0 BASH_CMDS BASH_COMMAND BASH_COMPAT BASH_ENV "
    "BASH_EXECUTION_STRING BASH_LINENO BASH_LOADABLES_PATH BASH_MONOSECONDS BASH_REMATCH BASH_SOURCE BASH_SUBSHELL "
    "BASH_TRAPSIG BASH_VERSINFO BASH_VERSION BASH_XTRACEFD CDPATH CHILD_MAX COLUMNS COMPREPLY COMP_CWORD COMP_KEY "
    "COMP_LINE COMP_POINT COMP_TYPE COMP_WORDBREAKS COMP_WORDS COPROC DIRSTACK EMACS ENV EPOCHREALTIME EPOCHSECONDS "
    "EUID EXECIGNORE FCEDIT FIGNORE FUNCNAME FUNCNEST GLOBIGNORE GLOBSORT GROUPS HISTCMD HISTCONTROL HISTFILE "
    "HISTFILESIZE HISTIGNORE HISTSIZE HISTTIMEFORMAT HOME HOSTFILE HOSTNAME HOSTTYPE IFS IGNOREEOF INPUTRC "
    "INSIDE_EMACS LANG LC_ALL LC_COLLATE LC_CTYPE LC_MESSAGES LC_NUMERIC LC_TIME LINENO LINES MACHTYPE MAIL MAILCHECK "
    "MAILPATH MAPFILE OLDPWD OPTARG OPTERR OPTIND OSTYPE PATH PIPESTATUS POSIXLY_CORRECT PPID PROMPT_COMMAND "
    "PROMPT_DIRTRIM PS0 PS1 PS2 PS3 PS4 PWD RANDOM READLINE_ARGUMENT READLINE_LINE READLINE_MARK READLINE_POINT REPLY "
    "SECONDS SHELL SHELLOPTS SHLVL SRANDOM TERM TEXTDOMAIN TEXTDOMAINDIR TIMEFORMAT TMOUT TMPDIR UID auto_resume "
    "histchars"
)
# Integers whatever is assigned: bash evaluates that as arithmetic.
INTEGERS = _names("BASHPID EPOCHSECONDS EUID HISTCMD LINENO OPTIND PPID RANDOM SECONDS SHLVL SRANDOM UID")
DECLARING = _names("declare export local readonly typeset")
# Builtins that evaluate none of their arguments as code, as arithmetic or as the name of a variable.
PASSING = _names(
    ": bg break cd continue disown echo exit false fg jobs kill popd pushd pwd return set shift shopt times true type "
    "ulimit umask wait"
)
