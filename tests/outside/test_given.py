# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Scripts of a folder that is given, against their plain runs: `make test-outside OUTSIDE=DIR`.

Every Python file of the folder that trains is run, with the made data of `made_data.py` and of
`keras3_made_data.py`, and with what else lies beside it. What plain Keras cannot run is skipped,
with its error.
"""

import functools
import glob
import importlib
import os
import re

import compare
import pytest
import script_runs
from frameworks import TF1_15, TF2

FOLDER = os.environ.get('OUTSIDE')
SCRIPTS = sorted(glob.glob(os.path.join(os.path.abspath(FOLDER), '*.py'))) if FOLDER else []
#: A script that takes longer than that is not compared.
LIMIT_SECONDS = 180
#: The same where XLA, or `tf.function`, compiles every step.
KERAS_3_LIMIT_SECONDS = 600

KERAS_3 = TF2 and not TF1_15 and importlib.import_module('keras').__version__ >= '3'
BACKENDS = 'tensorflow', 'jax'


def uses_keras_3(text):
    """Whether the text of a script imports Keras 3, which is what `keras` is here."""
    return KERAS_3 and bool(re.search(r'^ *(import|from) keras(_rs|_hub)?\b', text, re.MULTILINE))


def backends_of(text):
    """The backends that a script may have; most set none."""
    wanted = re.findall(r"""KERAS_BACKEND["'](?:\]|,) *=? *["'](\w+)""", text)
    return [name for name in BACKENDS if name in wanted or not wanted]


def text_of(script):
    with open(script) as file:
        return file.read()


OF_KERAS_3 = [script for script in SCRIPTS if uses_keras_3(text_of(script))]
OF_GRAPHS = [script for script in SCRIPTS if script not in OF_KERAS_3]


def last_line(error):
    return str(error).strip().splitlines()[-1]


def name_of(script):
    # Without a folder there is no script, and pytest 7.0 asks for the name of that.
    return script_runs.name_of(script) if isinstance(script, str) else None


def compare_runs(run, folder, script, limit):
    """Fails if a script does not train on one worker, and on two, as it does plainly.

    Args:
        run: a function `(mode, ranks, folder, lines, limit) -> Outcome`.
        folder: where results go.
        script: its path.
        limit: seconds for the plain run.
    """
    name = script_runs.name_of(script)
    run('plain', 0, folder, [script], limit)
    try:
        compare.results(str(folder), name, 'plain', 1)
    except AssertionError as error:
        pytest.skip('without us: ' + last_line(error))
    tolerance = compare.TOLERANCE
    for ranks in (1, 2):
        job = run('parallax', ranks, folder, [script], 2 * limit)
        try:
            *differences, reasons = compare.difference(str(folder), name, ranks)
        except AssertionError as error:
            sentences = re.findall(r'^keras_parallax\.errors\.\w+: .*', str(error), re.MULTILINE)
            if sentences:
                pytest.xfail('refused: ' + sentences[-1])
            raise AssertionError('%s\n%s' % (error, job.output[-3000:])) from None
        if max(differences) > tolerance and (ranks == 1 or not reasons):
            # How far plain Keras is from itself when it sums in another order.
            run('backwards', 0, folder, [script], limit)
            *own, _ = compare.difference(str(folder), name, 1, 'backwards')
            tolerance = max(tolerance, 10 * max(own))
        print('%s at %d: losses %.0e, weights %.0e' % ((name, ranks) + tuple(differences)), reasons)
        print(compare.tables(str(folder), name, ranks))
        if ranks == 1 or not reasons:
            assert max(differences) < tolerance, (ranks, differences)


@pytest.mark.parametrize('script', OF_GRAPHS, ids=name_of)
def test_a_given_script_trains_as_it_does_plainly(run_scripts, tmp_path, script):
    compare_runs(run_scripts, tmp_path, script, LIMIT_SECONDS)


@pytest.mark.parametrize('backend', BACKENDS)
@pytest.mark.parametrize('script', OF_KERAS_3, ids=name_of)
def test_a_given_script_of_keras_3_trains_as_it_does_plainly(
    run_keras3_scripts, tmp_path, script, backend
):
    if backend not in backends_of(text_of(script)):
        pytest.skip('the script is for another backend')
    run = functools.partial(run_keras3_scripts, backend)
    compare_runs(run, tmp_path, script, KERAS_3_LIMIT_SECONDS)


@pytest.mark.skipif(not KERAS_3, reason='Keras 3 is not installed')
def test_a_script_that_imports_keras_is_run_with_keras_3():
    assert uses_keras_3('import os\nimport keras\n')
    assert uses_keras_3('from keras.layers import Dense\n')
    assert uses_keras_3('import keras_rs\n')
    assert not uses_keras_3('import tensorflow as tf\nfrom tensorflow.keras import layers\n')
    assert not uses_keras_3('import keras_radam\n')


def test_a_script_that_sets_a_backend_is_run_with_that_one_alone():
    assert backends_of('os.environ["KERAS_BACKEND"] = "jax"\n') == ['jax']
    assert backends_of("os.environ.setdefault('KERAS_BACKEND', 'tensorflow')") == ['tensorflow']
    assert backends_of('import keras\n') == ['tensorflow', 'jax']
    assert backends_of('os.environ["KERAS_BACKEND"] = "torch"\n') == []
