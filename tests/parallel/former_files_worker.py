# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Run by `horovodrun`: loads what a former version has saved, and notes what each worker has then.

Usage: former_files_worker.py FOLDER KIND...
"""

import os
import sys

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir))
import former_files  # noqa: E402

from keras_parallax.engine.job import job  # noqa: E402


def main(folder, *kinds):
    for kind in kinds:
        for number, arrays in enumerate(former_files.loaded(kind)):
            rank = job.start().rank
            path = os.path.join(folder, '%s-%d-%d.npz' % (kind, number, rank))
            np.savez(path, *arrays)
            # Nobody trains on before all have read their state.
            job.start().barrier()


main(*sys.argv[1:])
