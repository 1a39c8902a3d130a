#!/bin/bash
# Model: builds a local model from each Modelfile in the repository's root. Modelfile.NAME makes the model NAME; a plain
# Modelfile makes one named after the repository.
set -uo pipefail

say() { printf 'model: %s\n' "$*"; }

name_of() {
    local name
    case "$1" in
        Modelfile) name=${DISPATCH_REPO:-${PWD##*/}} ;;
        *) name=${1#Modelfile} && name=${name#[.-]} ;;
    esac
    name=${name,,}
    [[ "$name" =~ ^[a-z0-9][a-z0-9._-]{0,99}$ ]] && printf '%s' "$name"
}

files=()
for path in Modelfile*; do
    if [ -f "$path" ] && [ ! -L "$path" ]; then files+=("$path"); fi
done
if [ "${#files[@]}" -eq 0 ]; then
    say "no Modelfile here; nothing to build"
    exit 0
fi
if ! command -v ollama >/dev/null; then
    say "ollama is not installed; ${#files[@]} models were not built"
    exit 0
fi

# One build of a file at a time; the lock is on the file and ends with this process. It is not the lock of the folder:
# a build takes minutes, and the other runners of the repository do not wait for it.
failed=0
for path in "${files[@]}"; do
    if ! name=$(name_of "$path"); then
        printf 'model: %q gives no model name: use only lower-case letters, digits, ., _ and -\n' "$path" >&2
        failed=1
    elif ! { exec 9<"$path" && flock --wait 30 9; }; then
        say "$path has been in use by another build for 30 s; try again" >&2
        failed=1
    elif ollama create "$name" -f "$path" </dev/null 9<&-; then
        say "$name built from $path"
    else
        say "ollama ended with status $? for $path" >&2
        failed=1
    fi
done
exit "$failed"
