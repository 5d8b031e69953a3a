# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""A checkpoint of TensorFlow 1.11 goes on with TensorFlow 2, and the other way round."""

import h5py
import numpy as np
import other_keras_files as files
import pytest
from frameworks import keras_module

import keras_parallax as kp
from keras_parallax.checkpoint import other_keras, save


def arrays(file, group):
    return [file[group][str(number)][()] for number in range(len(file[group]))]


def slots_of(shapes_and_values):
    """What of an optimizer's weights is used: matrices and vectors of more than one number."""
    return [value for value in shapes_and_values if np.size(value) > 1]


@pytest.mark.parametrize('name', files.OPTIMIZERS)
def test_a_checkpoint_of_the_other_generation_goes_on(name):
    path = files.path(files.OTHER, name)
    strategy, model = files.built(name)
    assert strategy.resume(model, path) == 2
    backend, optimizer = keras_module('tf.keras').backend, model.optimizer
    assert backend.get_value(optimizer.iterations) == files.STEPS
    assert backend.get_value(optimizer.lr) == np.float32(files.RATE)
    with h5py.File(path, 'r') as file:
        for found, saved in zip(model.get_weights(), arrays(file, 'saved')):
            np.testing.assert_array_equal(found, saved)
        names = file['optimizer_weights'].attrs['weight_names']
        saved = slots_of([file['optimizer_weights'][name][()] for name in names])
        goes_on = arrays(file, 'goes_on')
    # The slots that Keras 2.2.4 keeps for SGD without momentum are not used.
    found = slots_of(optimizer.get_weights()) if name != 'sgd' else []
    assert len(found) == {'adam': 8, 'adagrad': 4, 'sgd': 0, 'nadam': 8}[name]
    for one, other in zip(found, saved):
        np.testing.assert_array_equal(one, other)
    if name in files.MOVE_ALIKE:
        files.train(model, files.STEPS, 2 * files.STEPS)
        for one, other in zip(model.get_weights(), goes_on):
            np.testing.assert_allclose(one, other, rtol=0, atol=1e-5 * np.abs(other).max())


def test_a_checkpoint_of_the_other_generation_and_another_model_is_refused():
    strategy, _ = files.built('adam')
    keras = keras_module('tf.keras')
    with strategy:
        model = keras.models.Sequential([keras.layers.Dense(1, input_shape=(2,))])
        model.compile('adam', 'mse')
    with pytest.raises(kp.CheckpointError):
        strategy.resume(model, files.path(files.OTHER, 'adam'))


def with_gates(name):
    """A strategy and a model whose `LSTM`, in a wrapper, has such gates."""
    keras = keras_module('tf.keras')
    keras.backend.clear_session()
    with kp.ParallaxStrategy() as strategy:
        lstm = keras.layers.LSTM(3, recurrent_activation=name)
        wrapped = keras.layers.Bidirectional(lstm, input_shape=(5, 2))
        model = keras.models.Sequential([wrapped, keras.layers.Dense(1)])
        model.compile('sgd', 'mse')
    return strategy, model


def test_a_model_does_not_go_on_with_gates_that_it_did_not_have(tmp_path):
    _, model = with_gates('hard_sigmoid')
    model.train_on_batch(np.ones((4, 5, 2)), np.ones((4, 1)))
    path = str(tmp_path / 'model.h5')
    save.save(model, path, 1)
    strategy, model = with_gates('hard_sigmoid')
    assert strategy.resume(model, path) == 1
    strategy, model = with_gates('sigmoid')
    weights = model.get_weights()
    with pytest.raises(kp.CheckpointError, match="recurrent_activation='hard_sigmoid'"):
        strategy.resume(model, path)
    for one, other in zip(model.get_weights(), weights):
        np.testing.assert_array_equal(one, other)


def test_gates_of_layers_that_are_no_longer_as_many_are_not_compared():
    one = {'name': 'lstm', 'recurrent_activation': 'hard_sigmoid'}
    other = dict(one, recurrent_activation='sigmoid')
    other_keras.check_gates('model.h5', {'layers': [one]}, {'layers': [other, other]})
    with pytest.raises(kp.CheckpointError):
        other_keras.check_gates('model.h5', {'layers': [one]}, {'layers': [other]})


SLOT, OTHER = (5, 3), (3,)


@pytest.mark.parametrize(
    'expected, given, places',
    [
        # Adam of Keras 2.15 and of 2.2.4, each from the other.
        (
            [(), SLOT, OTHER, SLOT, OTHER],
            [(), SLOT, OTHER, SLOT, OTHER, (1,), (1,)],
            [0, 1, 2, 3, 4],
        ),
        ([(), SLOT, SLOT, (1,)], [(), SLOT, SLOT], [0, 1, 2, None]),
        # Adagrad; Nadam, of which Keras 2.15 counts more among the weights.
        ([(), SLOT], [SLOT], [None, 0]),
        ([SLOT], [(), SLOT], [1]),
        ([(), (), SLOT, SLOT], [(), SLOT, SLOT], [0, None, 1, 2]),
        ([(), SLOT, SLOT], [(), (), SLOT, SLOT], [0, 2, 3]),
        # SGD, which lists the last step in Keras 2.2.4, also without momentum.
        ([()], [(), SLOT, OTHER], [0]),
        ([(), SLOT, OTHER], [()], [0, None, None]),
        # Of another model, and with another slot.
        ([(), SLOT], [(), OTHER], None),
        ([(), SLOT, SLOT], [(), SLOT], None),
        ([(), SLOT], [(), SLOT, SLOT], None),
    ],
)
def test_each_weight_of_an_optimizer_is_found_where_the_other_generation_lists_it(
    expected, given, places
):
    assert other_keras.places(expected, given) == places


def test_numbers_are_known_by_the_names_of_either_generation():
    values = {'lr': 0.1, 'iterations': 4, 'm_schedule': 0.5}
    assert other_keras.named(values, ['learning_rate', 'iterations']) == {
        'learning_rate': 0.1,
        'iterations': 4,
    }
    assert other_keras.named({'learning_rate': 0.1}, ['lr']) == {'lr': 0.1}
    assert other_keras.named({'lr': 0.1}, ['lr', 'decay']) == {'lr': 0.1}


def test_generations_are_told_by_the_version():
    versions = ['', '2.1.6-tf', '2.2.4', '2.3.1', '2.2.4-tf', '2.4.0', '2.15.0', '2.21.0']
    assert list(map(other_keras.takes_rows, versions)) == [False] * 4 + [True] * 4
