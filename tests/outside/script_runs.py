# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""How a script is run, whatever Keras it uses: in a copy of its folder, plainly or as a worker."""

import os
import runpy
import shutil
import sys
import tempfile
import traceback

import recording
import shares


def name_of(line):
    """The name of a run's files, for a script and its arguments."""
    return '_'.join([os.path.basename(line.split(',')[0])[:-3]] + line.split(',')[1:])


def execute(script, arguments, prepare=lambda folder: None):
    """Runs a script in a copy of its folder until it ends or has trained enough.

    Args:
        script: its absolute path.
        arguments: its arguments.
        prepare: is called with the copy before the script runs.
    """
    sys.argv = [script] + arguments
    folder = os.path.dirname(script)
    workplace = os.path.join(tempfile.mkdtemp(), 'here')
    shutil.copytree(folder, workplace)
    prepare(workplace)
    os.chdir(workplace)
    sys.path.insert(0, folder)
    try:
        runpy.run_path(script, run_name='__main__')
    except recording.Enough:
        pass
    except SystemExit as stop:
        if stop.code not in (None, 0):
            raise
    finally:
        sys.path.remove(folder)
        os.chdir('/')
        shutil.rmtree(os.path.dirname(workplace))


def main(run, mode, results, lines):
    """Runs scripts one after the other and writes what each trained, or its error.

    Args:
        run: a function `(script, arguments, place, strategy)`, which returns a recorder.
        mode: `plain`, `backwards` or `parallax`.
        results: the folder to write to.
        lines: for each script its path and its arguments, separated by commas.
    """
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
