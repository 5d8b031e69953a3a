#!/usr/bin/env bash
# Builds .venv: Python 3.6, TensorFlow 1.11, Keras 2.2.4, Horovod 0.19.5 on Gloo and this project.
#
#   scripts/make_env.sh              returns at once when the environment is already up to date
#   scripts/make_env.sh --install    also installs the project again (about 2 s)
#   scripts/make_env.sh --cluster    also sees to the system packages of tests/cluster
set -euo pipefail
cd "$(dirname "$0")/.."
PATH="$PATH:/usr/sbin:/sbin" # where `ip` and `sshd` are, though not on every user's PATH
export PIP_DISABLE_PIP_VERSION_CHECK=1

install=no cluster=no
for argument in "$@"; do
    case $argument in
        --install) install=yes ;;
        --cluster) cluster=yes ;;
        *) echo "usage: $0 [--install] [--cluster]" >&2; exit 2 ;;
    esac
done

say() { echo "env: $*"; }

# The checkout's path counts too: the scripts in .venv/bin carry it.
stamp=.venv/stamp
wanted=$({ pwd; cat setup.py requirements/lock.txt scripts/make_env.sh; } | sha256sum)
if [ -e $stamp ] && [ "$(cat $stamp)" = "$wanted" ]; then build=no; else build=yes; fi

# --- Python 3.6, before anything is installed ------------------------------------------------

find_python36() {
    local candidate candidates
    shopt -s nullglob
    mapfile -t candidates < <(type -ap python3.6)
    candidates+=("${PYENV_ROOT:-${HOME:-}/.pyenv}"/versions/3.6.*/bin/python)
    for candidate in "${candidates[@]}"; do
        # Run it: a pyenv shim is there even when no version is selected. And .venv, when it is
        # activated, must not become its own base.
        if "$candidate" -c 'import sys, venv, ensurepip
sys.exit(sys.version_info[:2] != (3, 6) or sys.prefix != sys.base_prefix)' 2>/dev/null; then
            echo "$candidate"
            return
        fi
    done
    echo "Python 3.6 was not found: get it with 'pyenv install 3.6.15', for example." >&2
    return 1
}

if [ $build = yes ]; then python36=$(find_python36); fi

# --- System packages -------------------------------------------------------------------------

packages=()
need() { command -v "$1" >/dev/null || packages+=("$2"); }

if [ $build = yes ]; then
    need clang clang
    need make make
    need cmake cmake
    # clang has no C++ library of its own; g++ brings libstdc++ with its headers. So compile.
    echo '#include <string>' | clang++ -x c++ -fsyntax-only - 2>/dev/null || packages+=(g++)
fi
if [ $cluster = yes ]; then
    need ip iproute2
    need tc iproute2
    need nft nftables
    need sshd openssh-server
    need ssh openssh-client
    need hostname hostname
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

horovod_works() {
    .venv/bin/python -c "
import horovod, horovod.tensorflow
assert 'horovod==' + horovod.__version__ == '$horovod'
assert horovod.tensorflow.gloo_built(), 'Horovod was built without Gloo'"
}

# Why clang: Horovod 0.19.5 refuses g++ 5 and newer for TensorFlow 1.11, unless CXX names a
# compiler; and named, g++ 12 stops in Gloo, at the flexible array that newer kernel headers have
# in ethtool_link_settings.
#
# Why not pip's cache: a wheel there may come from other switches or another TensorFlow. That is
# what --no-binary is for. Why `pip wheel` first: where that fails, `pip install` tries all over.
#
# Gloo asks for a CMake of 2.8, which CMake 4 refuses without CMAKE_POLICY_VERSION_MINIMUM.
build_horovod() {
    local log=.venv/horovod-build.log
    rm -rf .venv/wheels
    if ! CC=clang CXX=clang++ CMAKE_POLICY_VERSION_MINIMUM=3.5 \
        HOROVOD_WITH_TENSORFLOW=1 HOROVOD_WITHOUT_PYTORCH=1 HOROVOD_WITHOUT_MXNET=1 \
        HOROVOD_WITH_GLOO=1 HOROVOD_WITHOUT_MPI=1 \
        .venv/bin/pip wheel --no-build-isolation --no-deps --no-binary horovod \
        --wheel-dir .venv/wheels "$horovod" >$log 2>&1; then
        tail -n 40 $log >&2
        echo "Horovod did not build; the lines above end the log in $PWD/$log." >&2
        exit 1
    fi
    # Found by name, so that `pip freeze` gives a pin and not a path.
    .venv/bin/pip install -qq --no-deps --force-reinstall --only-binary horovod \
        --no-index --find-links .venv/wheels "$horovod"
}

if [ $build = yes ]; then
    horovod=$(grep '^horovod==' requirements/lock.txt)
    rm -f $stamp

    # An environment that was made here is brought up to date; one that was moved here is not:
    # its scripts still name the old place.
    if grep -qsF "$PWD/.venv/bin/python" .venv/bin/pip && .venv/bin/python -c '' 2>/dev/null; then
        say "bringing .venv up to date"
    else
        say ".venv from $("$python36" --version)"
        "$python36" -m venv --clear .venv
    fi

    # First and alone: pip 18.1, which 3.6.15 comes with, misreads newer index metadata.
    say "pip, setuptools, wheel"
    .venv/bin/python -m pip install -qq pip==21.3.1
    # TensorFlow 1.11 wants setuptools no newer than 39.1.0.
    .venv/bin/pip install -qq setuptools==39.1.0 wheel==0.37.1

    say "TensorFlow, Keras and the rest of requirements/lock.txt"
    grep -v '^horovod==' requirements/lock.txt >.venv/lock-but-horovod.txt
    .venv/bin/pip install -qq --no-deps -r .venv/lock-but-horovod.txt

    # Compiled against the TensorFlow that is installed by now, hence last.
    if ! horovod_works 2>/dev/null; then
        say "Horovod, compiled by clang (about a minute)"
        build_horovod
        horovod_works
    fi
    .venv/bin/pip check
fi

# --- The project -----------------------------------------------------------------------------

# Not editable: tests are to run against what a user would get. setuptools reuses build/, with
# modules that are long gone from the sources, so it has to go, before and after.
if [ $build = yes ] || [ $install = yes ]; then
    say "keras-parallax"
    rm -rf build keras_parallax.egg-info
    .venv/bin/pip install -qq --no-deps --no-build-isolation --force-reinstall .
    rm -rf build keras_parallax.egg-info
fi
if [ $build = yes ]; then
    echo "$wanted" >$stamp
fi
