# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Models of Keras 3 go on from checkpoints of Keras 2, on TensorFlow 1.11 and 2.21."""

import json
import shutil

import cases
import frameworks
import h5py
import launch
import numpy as np
import other_keras_files
import pytest

from keras_parallax.checkpoint import save

keras = pytest.importorskip('keras', minversion='3', reason='models of Keras 3 need Keras 3')
if not frameworks.TF2 or frameworks.TF1_15:
    pytest.skip('models of Keras 3 need TensorFlow 2', allow_module_level=True)

#: In parts of the largest number of each weight.
BOUND = 1e-5
#: Keras 3 adds epsilon to sums that begin at 0 before it takes the root.
BOUND_OF_ROOTS = 1e-4


def write_files(folder):
    """Writes what the jobs read: batches, and checkpoints that cannot be gone on from."""
    case, steps = cases.CASES['adam'], other_keras_files.STEPS
    batches = cases.batches(case, 2, steps, 2 * steps)
    ids, targets = zip(*batches)
    np.savez(str(folder / 'batches.npz'), ids=ids, targets=targets)
    sgd = other_keras_files.path('tf1.11', 'sgd')
    edit(sgd, folder / 'decay.h5', lambda state: state['hyperparameters'].update(decay=0.5))
    write_plain(sgd, folder / 'plain-decay.h5', decay=0.5)
    edit(sgd, folder / 'within.h5', lambda state: state.update(fit={'batch': 2}))
    keras_2 = frameworks.keras_module('tf.keras')
    keras_2.backend.clear_session()
    lstm = keras_2.layers.LSTM(2, recurrent_activation='hard_sigmoid')
    table = keras_2.layers.Embedding(6, 2, input_length=5, name='table')
    model = keras_2.models.Sequential([table, lstm])
    model.compile('sgd', 'mse')
    model.save(str(folder / 'gates.h5'))


def write_plain(source, path, **options):
    """Writes a copy of a checkpoint as plain Keras would, of an optimizer with other options."""
    shutil.copy(source, str(path))
    with h5py.File(str(path), 'a') as file:
        del file[save.OURS]
        training = json.loads(file.attrs['training_config'])
        training['optimizer_config']['config'].update(options)
        file.attrs['training_config'] = json.dumps(training)


def edit(source, path, change):
    """Writes a copy of a checkpoint whose state is another."""
    shutil.copy(source, str(path))
    with h5py.File(str(path), 'a') as file:
        state = save.read_state(file)
        change(state)
        del file[save.OURS]
        save.write_state(file, state)


@pytest.fixture(scope='module', params=('tensorflow', 'jax'))
def found(request, tmp_path_factory):
    """What `keras3_former_worker.py` finds on each of two workers."""
    if request.param == 'jax':
        pytest.importorskip('jax')
    folder = tmp_path_factory.mktemp(request.param)
    write_files(folder)
    outcome = launch.run(2, 'parallel/keras3_former_worker.py', request.param, folder)
    assert outcome.code == 0, outcome.output
    return [json.loads((folder / ('%d.json' % rank)).read_text()) for rank in range(2)]


@pytest.mark.parametrize('name', other_keras_files.MOVE_ALIKE)
@pytest.mark.parametrize('stack', ['tf1.11', 'tf2.21'])
def test_training_goes_on_as_the_job_that_saved_did(found, stack, name):
    for of_rank in found:
        one = of_rank['goes on']['%s %s' % (stack, name)]
        assert (one['epoch'], one['steps']) == (2, other_keras_files.STEPS)
        assert one['rate'] == pytest.approx(other_keras_files.RATE)
        assert one['weights'] == 0
        has_small_sums = (stack, name) == ('tf1.11', 'adagrad')
        assert one['after'] < (BOUND_OF_ROOTS if has_small_sums else BOUND)


@pytest.mark.parametrize('form', ['saved-02.h5', 'parts-02'])
@pytest.mark.parametrize('kind', ['keras', 'tf.keras'])
def test_weights_and_slots_are_those_that_were_saved(found, kind, form):
    for of_rank in found:
        one = of_rank['loaded']['%s %s' % (kind, form)]
        assert one['epoch'] == 2
        assert one['steps'][0] == one['steps'][1]
        assert (one['weights'], one['slots']) == (0, 0)


@pytest.mark.parametrize('kind', ['keras', 'tf.keras'])
def test_load_weights_reads_a_file_of_weights(found, kind):
    for of_rank in found:
        assert of_rank['loaded'][kind + ' weights.h5'] == {'weights': 0}


def test_an_hdf5_file_of_keras_3_has_its_slots_too(found):
    for of_rank in found:
        expected = {'weights': 0, 'slots': 0, 'another optimizer': 'CheckpointError'}
        assert of_rank['of Keras 3'] == expected


def test_what_would_go_on_with_other_numbers_is_refused(found):
    for of_rank in found:
        assert set(of_rank['refused'].values()) == {'CheckpointError'}
