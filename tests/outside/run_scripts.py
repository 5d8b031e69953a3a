# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Runs scripts that know nothing of keras-parallax, plainly or as workers of a job.

Usage: run_scripts.py plain|backwards|parallax FOLDER SCRIPT[,ARGUMENT...]...

`backwards` is `plain` with the samples of each batch in the reverse order.

With `parallax` each script runs inside `with kp.ParallaxStrategy():`, all of it, which is what the
guide asks for; nothing else is added. What each trained goes to `FOLDER/NAME.MODE-RANK.npz`, NAME
being the script's and its arguments', and an error to `FOLDER/NAME.MODE-RANK.error`.
"""

import os
import random
import sys
import zlib

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]

import numpy as np  # noqa: E402
import recorder  # noqa: E402
import script_runs  # noqa: E402
import tensorflow  # noqa: E402
from frameworks import KERAS_PACKAGES, TF2, keras_module, tf  # noqa: E402

PACKAGES = tuple(map(keras_module, KERAS_PACKAGES))


def without_chance():
    """Has two runs of a script draw the same numbers.

    Nothing is dropped out: masks of half a batch are not halves of a batch's masks. An operation
    that has no seed gets one from the scope that it is in, and not from its number, which depends
    on what else is in the graph. And made files of data pass for the real ones.
    """
    import matplotlib

    matplotlib.use('Agg')

    def kept(x, *args, **kwargs):
        return tf.identity(x)

    from tensorflow.python.framework import random_seed
    from tensorflow.python.ops import nn

    # TensorFlow 2 has a module for each of its interfaces, and its Keras takes the last one's.
    modules = [tf.nn, nn] + ([tensorflow.nn, tensorflow.compat.v2.nn] if TF2 else [])
    for module in [package.backend for package in PACKAGES] + modules:
        module.dropout = kept
    seed_of = random_seed.get_seed

    def by_scope(seed):
        if seed is not None:
            return seed_of(seed)
        return 1, zlib.crc32((tf.get_default_graph().get_name_scope() or '').encode())

    random_seed.get_seed = by_scope
    for package in PACKAGES:
        of_files = sys.modules[package.utils.get_file.__module__]
        of_files.validate_file = lambda *args, **kwargs: True


def run(script, arguments, place, strategy):
    """Runs one script; returns the `Recorder` of what it trained."""
    for package in PACKAGES:
        package.backend.clear_session()
    random.seed(0)
    np.random.seed(0)
    if strategy is None:
        with recorder.Recorder(PACKAGES, place, gates=True) as record:
            script_runs.execute(script, arguments)
    else:
        with strategy(), recorder.Recorder(PACKAGES, place, gates=False) as record:
            script_runs.execute(script, arguments)
    return record


if __name__ == '__main__':
    without_chance()
    script_runs.main(run, sys.argv[1], sys.argv[2], sys.argv[3:])
