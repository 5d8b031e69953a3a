#!/usr/bin/env bash
# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
# cmake, except that it builds nothing of Horovod that TensorFlow does not load, and no debug information.
#
# Horovod 0.28.1 compiles Gloo once for each of two standards of C++, and TensorFlow is linked with one.
# Half of the time of a build went there (tests/unit/installing/test_horovod_build.py).
set -euo pipefail

if [ "$1" = --build ] && grep -qs '^tensorflow:' "$2/Makefile"; then
    exec cmake "$1" "$2" --target tensorflow "${@:3}"
elif [ "$1" = --build ]; then # Horovod 0.19.5, where this builds Gloo, and only that
    exec cmake "$@"
fi
exec cmake "$@" -DCMAKE_C_FLAGS_RELWITHDEBINFO='-O2 -DNDEBUG' \
    -DCMAKE_CXX_FLAGS_RELWITHDEBINFO='-O2 -DNDEBUG'
