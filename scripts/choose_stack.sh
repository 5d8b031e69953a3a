#!/usr/bin/env bash
# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
# Chooses a stack of requirements/stacks.txt: the one that STACK names, or the first whose Python is
# there; with MPI=1, one whose Horovod has MPI. Prints five lines: the stack's name, the folder of
# its environment, its Python, Debian's packages that this Python lacks, and why it was chosen.
set -euo pipefail
cd "$(dirname "$0")/.."
shopt -s nullglob

# Candidates are run, not just found: a pyenv shim is there even when no version is selected. A
# virtual environment must not become the base of another. Debian's Python comes without ensurepip.
probe='
import sys, venv
if sys.prefix != sys.base_prefix:
    sys.exit(1)
try:
    import ensurepip
except ImportError:
    print("bare %s" % sys.executable)
else:
    print("whole %s" % sys.executable)'

# Sets `python` to a Python of a version ($1) which is whole or bare ($2).
find_python() {
    local candidates candidate answer
    mapfile -t candidates < <(type -ap "python$1")
    candidates+=("${PYENV_ROOT:-${HOME:-}/.pyenv}/versions/$1".*/bin/python)
    for candidate in "${candidates[@]}"; do
        answer=$("$candidate" -c "$probe" 2>/dev/null) || continue
        python=${answer#* }
        # A Python of another make than Debian's is not mended by Debian's packages.
        case $answer in
            "$2 /usr/bin/"* | "whole "*) [ "${answer%% *}" = "$2" ] && return ;;
        esac
    done
    return 1
}

names=() missing=()
while IFS='|' read -r name versions _; do
    name=${name// /}
    names+=("$name")
    if [ -n "${STACK:-}" ] && [ "$name" != "$STACK" ]; then continue; fi
    for state in whole bare; do
        for version in $versions; do
            find_python "$version" $state || continue
            environment=.venv-$name
            if [ "$name" = tf1.11 ]; then environment=.venv; fi
            if [ -n "${MPI:-}" ]; then environment+=-mpi; fi
            packages=
            if [ $state = bare ]; then packages=python$version-venv; fi
            if [ -n "${STACK:-}" ]; then
                why="as STACK says, with Python $version ($python)"
            elif [ ${#missing[@]} = 0 ]; then
                why="because there is a Python $version ($python)"
            else
                absent=$(printf '%s\n' "${missing[@]}" | sort -uV | paste -sd ' ' | sed 's/ /, /g')
                why="because there is no Python ${absent}, but a Python $version ($python)"
            fi
            printf '%s\n' "$name" "$environment" "$python" "$packages" "$why"
            exit
        done
    done
    read -ra versions <<<"$versions"
    missing+=("${versions[@]}")
done < <(grep -v '^#' requirements/stacks.txt)

if [ ${#missing[@]} = 0 ]; then
    echo "There is no stack ${STACK}; there are: ${names[*]}." >&2
else
    debian=
    if [ -z "${STACK:-}" ]; then debian="'apt-get install python3 python3-venv' or "; fi
    echo "No Python was found for ${STACK:-any stack} (looked for $(printf '%s\n' "${missing[@]}" |
        sort -uV | paste -sd ' ' | sed 's/ /, /g')): get one, for example with" \
        "${debian}'pyenv install ${missing[0]}'." >&2
fi
exit 1
