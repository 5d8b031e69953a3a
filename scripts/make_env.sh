#!/usr/bin/env bash
# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
# Builds the environment of a stack: Python, TensorFlow, Keras, Horovod on Gloo, and this project.
#
#   scripts/make_env.sh              returns at once when the environment is already up to date
#   scripts/make_env.sh --install    also installs the project again (about 2 s)
#   scripts/make_env.sh --cluster    also sees to the system packages of tests/cluster
#   scripts/make_env.sh --browser    also sees to Chromium, which looks at the page of a plan
#   STACK=tf2.15 scripts/make_env.sh names a stack of requirements/stacks.txt
#   MPI=1 scripts/make_env.sh        builds Horovod on MPI as well, in an environment beside the other
set -euo pipefail
cd "$(dirname "$0")/.."
PATH="$PATH:/usr/sbin:/sbin" # where `ip` and `sshd` are, though not on every user's PATH
export PIP_DISABLE_PIP_VERSION_CHECK=1

install=no cluster=no browser=no
for argument in "$@"; do
    case $argument in
        --install) install=yes ;;
        --cluster) cluster=yes ;;
        --browser) browser=yes ;;
        *) echo "usage: $0 [--install] [--cluster] [--browser]" >&2; exit 2 ;;
    esac
done

say() { echo "env: $*"; }

if [ -n "${MPI:-}" ]; then export HOROVOD_WITH_MPI=1; fi

# --- The stack, before anything is installed -------------------------------------------------

chosen=$(scripts/choose_stack.sh)
{ read -r stack; read -r env; read -r python; read -r lacking; read -r why; } <<<"$chosen"
say "$stack, $why; STACK=NAME names another"
row=$(grep "^$stack " requirements/stacks.txt)
IFS='|' read -r _ _ tools <<<"$row"
read -r pip setuptools wheel <<<"$tools"
lock=requirements/lock-$stack.txt

# The checkout's path counts too: the scripts in the environment carry it.
stamp=$env/stamp
wanted=$({ pwd; echo "$row"; cat setup.py "$lock" scripts/make_env.sh; } | sha256sum)
if [ -e "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ]; then build=no; else build=yes; fi

# --- System packages -------------------------------------------------------------------------

packages=()
need() { command -v "$1" >/dev/null || packages+=("$2"); }

if [ $build = yes ]; then
    for_horovod=$("$python" keras_parallax/installing/system_packages.py)
    read -ra packages <<<"$lacking $for_horovod"
fi
if [ $cluster = yes ]; then
    need ip iproute2
    need tc iproute2
    need nft nftables
    need sshd openssh-server
    need ssh openssh-client
    need hostname hostname
fi
if [ $browser = yes ] && ! command -v google-chrome >/dev/null; then
    need chromium chromium
fi
if [ ${#packages[@]} -gt 0 ]; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        say "system packages: ${packages[*]}"
        export DEBIAN_FRONTEND=noninteractive
        apt-get update -qq
        apt-get install -y -qq --no-install-recommends "${packages[@]}" >/dev/null
    else
        echo "System packages are missing; on Debian or Ubuntu: sudo apt-get update && sudo apt-get install -y --no-install-recommends ${packages[*]}" >&2
        exit 1
    fi
fi

# --- Third-party packages --------------------------------------------------------------------

if [ $build = yes ]; then
    rm -f "$stamp"

    # An environment that was made here is brought up to date; one that was moved here is not:
    # its scripts still name the old place.
    if grep -qsF "$PWD/$env/bin/python" "$env/bin/pip" && "$env/bin/python" -c '' 2>/dev/null; then
        say "bringing $env up to date"
    else
        say "$env from $("$python" --version)"
        "$python" -m venv --clear "$env"
    fi

    say "pip, setuptools, wheel"
    "$env/bin/python" -m pip install -qq "pip==$pip"
    "$env/bin/pip" install -qq "setuptools==$setuptools" "wheel==$wheel"

    say "TensorFlow, Keras and the rest of $lock"
    grep -v '^horovod==' "$lock" >"$env/lock-but-horovod.txt"
    "$env/bin/pip" install -qq --no-deps -r "$env/lock-but-horovod.txt"

    # Compiled against the TensorFlow that is installed by now, hence last.
    "$env/bin/python" keras_parallax_command.py install-horovod
fi

# --- The project -----------------------------------------------------------------------------

# Not editable: tests are to run against what a user would get. setuptools reuses build/, with
# modules that are long gone from the sources, so it has to go, before and after.
if [ $build = yes ] || [ $install = yes ]; then
    say "keras-parallax"
    rm -rf build keras_parallax.egg-info
    "$env/bin/pip" install -qq --no-deps --no-build-isolation --force-reinstall .
    rm -rf build keras_parallax.egg-info
fi
if [ $build = yes ]; then
    # The project's own requirements among them.
    "$env/bin/pip" check
    echo "$wanted" >"$stamp"
fi
