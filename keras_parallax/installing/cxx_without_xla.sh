#!/usr/bin/env bash
# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
# A C++ compiler that compiles Horovod without its XLA operations. KERAS_PARALLAX_CXX names the compiler.
#
# Their file includes headers of XLA that TensorFlow's wheels have not had since 2.19, and Horovod
# 0.28.1 has no switch to leave it out. Without graphics cards there is nothing else in the file; with
# them, it serves an allreduce inside a function compiled by XLA, which nothing here uses.
set -euo pipefail

arguments=()
for argument in "$@"; do
    case $argument in
        */horovod/tensorflow/xla_mpi_ops.cc)
            if ! grep -q HVD_REGISTER_XLA_OP "$argument"; then
                echo "$0: $argument is not the file of Horovod 0.28.1 that this script replaces." >&2
                exit 1
            fi
            # horovod_build.py looks for this line.
            echo "XLA operations are left out" >&2
            arguments+=(-x c++ /dev/null)
            ;;
        *) arguments+=("$argument") ;;
    esac
done
exec "${KERAS_PARALLAX_CXX:-g++}" "${arguments[@]}"
