# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The slots of tables are those that Keras 3 has, by their names and start values."""

import json
import subprocess
import sys

import frameworks
import pytest

keras = pytest.importorskip('keras', minversion='3', reason='models of Keras 3 need Keras 3')
if not frameworks.TF2 or frameworks.TF1_15:
    pytest.skip('models of Keras 3 need TensorFlow 2', allow_module_level=True)

OPTIMIZERS = (
    'SGD()',
    'SGD(momentum=0.9)',
    'Adagrad(initial_accumulator_value=0.25)',
    'Adam()',
    'Adam(amsgrad=True)',
    'RMSprop()',
    'RMSprop(momentum=0.5)',
    'RMSprop(centered=True)',
    'RMSprop(momentum=0.5, centered=True)',
    'Adadelta()',
    'Adamax()',
    'Nadam()',
    'Lion()',
)

# In a process of its own, for in graph mode, which other tests need, Keras 3 makes no variables.
CODE = """
import json
import sys
import keras
from keras_parallax.engine.updates.optimizers import rows_of_keras3

found = {}
for text in sys.argv[1:]:
    optimizer = eval('keras.optimizers.' + text)
    optimizer.build([keras.Variable(keras.ops.ones([3, 2]), name='table')])
    of_keras = [
        (variable.name[len('table_'):], float(variable.numpy()[2, 1]))
        for variable in optimizer.variables
        if tuple(variable.shape) == (3, 2)
    ]
    found[text] = of_keras, rows_of_keras3(type(optimizer).__name__, optimizer).slots
print(json.dumps(found))
"""


@pytest.fixture(scope='module')
def found():
    """For each optimizer its slots in Keras, and those of its rows: pairs of names and values."""
    command = [sys.executable, '-c', CODE, *OPTIMIZERS]
    output = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout
    return json.loads(output.splitlines()[-1])


@pytest.mark.parametrize('optimizer', OPTIMIZERS)
def test_slots_of_tables_have_the_names_and_start_values_of_keras(found, optimizer):
    of_keras, of_rows = found[optimizer]
    assert sorted(of_rows) == sorted(of_keras)
