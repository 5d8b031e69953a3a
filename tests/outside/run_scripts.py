"""Runs scripts that know nothing of keras-parallax, plainly or as workers of a job.

Usage: run_scripts.py plain|backwards|parallax FOLDER SCRIPT[,ARGUMENT...]...

`backwards` is `plain` with the samples of each batch in the reverse order.

With `parallax` each script runs inside `with kp.ParallaxStrategy():`, all of it, which is what the
guide asks for; nothing else is added. What each trained goes to `FOLDER/NAME.MODE-RANK.npz`, NAME
being the script's and its arguments', and an error to `FOLDER/NAME.MODE-RANK.error`.
"""

import os
import random
import runpy
import shutil
import sys
import tempfile
import traceback
import zlib

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]

import numpy as np  # noqa: E402
import recorder  # noqa: E402
import shares  # noqa: E402
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
    sys.argv = [script] + arguments
    folder = os.path.dirname(script)
    workplace = os.path.join(tempfile.mkdtemp(), 'here')
    shutil.copytree(folder, workplace)
    os.chdir(workplace)
    sys.path.insert(0, folder)
    try:
        if strategy is None:
            with recorder.Recorder(PACKAGES, place, gates=True) as record:
                execute(script)
        else:
            with strategy(), recorder.Recorder(PACKAGES, place, gates=False) as record:
                execute(script)
        return record
    finally:
        sys.path.remove(folder)
        os.chdir('/')
        shutil.rmtree(os.path.dirname(workplace))


def execute(script):
    try:
        runpy.run_path(script, run_name='__main__')
    except recorder.Enough:
        pass
    except SystemExit as stop:
        if stop.code not in (None, 0):
            raise


def name_of(line):
    """The name of a run's files, for a script and its arguments."""
    return '_'.join([os.path.basename(line.split(',')[0])[:-3]] + line.split(',')[1:])


def main(mode, results, lines):
    without_chance()
    strategy, place = None, shares.Place(backwards=mode == 'backwards')
    if mode == 'parallax':
        import keras_parallax as kp

        strategy = kp.ParallaxStrategy
        size = int(os.environ.get('HOROVOD_SIZE', 1))
        place = shares.Place(int(os.environ.get('HOROVOD_RANK', 0)), size)
    for line in lines:
        script, *arguments = line.split(',')
        path = os.path.join(results, '%s.%s%d-%d' % (name_of(line), mode, place.ranks, place.rank))
        try:
            run(os.path.abspath(script), arguments, place, strategy).save(path + '.npz')
        except Exception:
            with open(path + '.error', 'w') as file:
                file.write(traceback.format_exc())
            if place.ranks > 1:
                raise  # Others wait for this worker.
            traceback.print_exc()


if __name__ == '__main__':
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
