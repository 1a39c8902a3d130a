#!/bin/bash
# Verify: shellcheck over the repository's shell scripts, then the repository's own checks. Runs in its root.
set -uo pipefail
failed=0

say() { printf 'verify: %s\n' "$*"; }

# Regular files only: a link could lead out of the repository.
is_shell_script() {
    [ -f "$1" ] && [ ! -L "$1" ] || return 1
    case "$1" in *.sh | *.bash) return 0 ;; esac
    local first=""
    IFS= read -r -n 64 first <"$1" 2>/dev/null || [ -n "$first" ] || return 1
    [[ "$first" =~ ^\#!.*[/[:space:]](sh|bash|dash|ksh)([[:space:]]|$) ]]
}

# git must not run what the repository's configuration names: as in runners/kit/git.py it works through a temporary
# folder with links to the repository's parts and only the format of the repository's configuration.
list_tracked() {
    local common name value
    unset "${!GIT_@}"
    export GIT_CEILING_DIRECTORIES="${PWD%/*}"
    common=$(git rev-parse --path-format=absolute --git-common-dir) || return
    for name in objects refs packed-refs info; do ln -s -- "$common/$name" "$view/$name"; done
    for name in core.repositoryformatversion core.ignorecase extensions.objectformat extensions.refstorage; do
        value=$(git config "$name") && git config --file "$view/config" "$name" "$value"
    done
    GIT_DIR=$(git rev-parse --absolute-git-dir) GIT_COMMON_DIR=$view GIT_WORK_TREE=. GIT_CONFIG_NOSYSTEM=1 \
        git -c core.fsmonitor=false ls-files -z --cached --others --exclude-standard
}

list_files() {
    if [ -e .git ] && command -v git >/dev/null; then
        list_tracked
    else
        find . -name .git -prune -o -type f -print0
    fi
}

view=$(mktemp -d) || exit 1
trap 'rm -rf -- "$view"' EXIT

scripts=()
while IFS= read -r -d '' path; do
    case "$path" in ./* | /*) ;; *) path="./$path" ;; esac
    if is_shell_script "$path" 2>/dev/null; then scripts+=("$path"); fi
done < <(list_files)

if [ "${#scripts[@]}" -eq 0 ]; then
    say "no shell scripts"
elif command -v shellcheck >/dev/null; then
    # xargs splits what does not fit on one command line.
    if printf '%s\0' "${scripts[@]}" | xargs -0 shellcheck --; then
        say "shellcheck found no problems in ${#scripts[@]} scripts"
    else
        say "shellcheck found problems in ${#scripts[@]} scripts" >&2
        failed=1
    fi
else
    say "shellcheck is not installed; ${#scripts[@]} scripts are only parsed"
    for path in "${scripts[@]}"; do
        bash -n -- "$path" || failed=1
    done
fi

# The repository's own checks: the first of these that exists.
if [ -f scripts/check.sh ] && [ ! -L scripts/check.sh ]; then
    own=(bash scripts/check.sh)
elif [ -f Makefile ] && grep -Eq '^check[[:space:]]*:' Makefile && command -v make >/dev/null; then
    own=(make --no-print-directory check)
else
    own=()
fi
if [ "${#own[@]}" -eq 0 ]; then
    say "the repository has no checks of its own (scripts/check.sh, or a target check in Makefile)"
elif "${own[@]}" </dev/null; then
    say "${own[*]}: ok"
else
    say "${own[*]} ended with status $?" >&2
    failed=1
fi
exit "$failed"
