# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Runs scripts of Keras 3 that know nothing of keras-parallax, as `run_scripts.py` runs others.

Usage: run_keras3_scripts.py plain|backwards|parallax FOLDER SCRIPT[,ARGUMENT...]...

The backend is that of `KERAS_BACKEND`, whatever a script sets. With `MOVING_STATISTICS=1` batch
normalization trains with its moving statistics, so that scripts that have it can be compared.
"""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]

import keras  # noqa: E402
import keras3_made_data  # noqa: E402
import keras3_recorder  # noqa: E402
import script_runs  # noqa: E402
import tensorflow as tf  # noqa: E402


def without_chance():
    """Has two runs of a script train on the same numbers: no dropout, no shuffling, made data."""
    import matplotlib

    matplotlib.use('Agg')

    def kept(inputs, *args, **kwargs):
        return inputs

    sys.modules['keras.src.backend'].random.dropout = kept
    tf.data.Dataset.shuffle = kept
    keras.config.disable_interactive_logging()
    # It needs a package that draws graphs.
    keras.utils.plot_model = lambda *args, **kwargs: None
    keras3_made_data.install()
    if keras3_recorder.MOVING_STATISTICS:
        normalize = keras.layers.BatchNormalization.call
        keras.layers.BatchNormalization.call = lambda layer, inputs, training=None, mask=None: (
            normalize(layer, inputs, training=False, mask=mask)
        )


def run(script, arguments, place, strategy):
    """Runs one script; returns the `Recorder` of what it trained."""
    keras.utils.clear_session()
    if strategy is None:
        keras.utils.set_random_seed(0)
        with keras3_recorder.Recorder(place, plain=True) as record:
            script_runs.execute(script, arguments, keras3_made_data.write_texts)
        return record
    with strategy(), keras3_recorder.Recorder(place, plain=False) as record:
        keras.utils.set_random_seed(0)
        script_runs.execute(script, arguments, keras3_made_data.write_texts)
        return record


if __name__ == '__main__':
    without_chance()
    script_runs.main(run, sys.argv[1], sys.argv[2], sys.argv[3:])
