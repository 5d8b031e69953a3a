"""`kp.callbacks.ModelCheckpoint` in one process: what it keeps, and what it refuses."""

import os

import cases
import horovod.keras as hvd
import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_parallax as kp


@pytest.fixture
def model():
    keras.backend.clear_session()
    with kp.ParallaxStrategy() as strategy:
        made = cases.CASES['adam'].model(keras)
        made.compile(kp.ParallaxOptimizer('adam'), 'mse')
    made.strategy = strategy
    yield made
    keras.backend.clear_session()


def fit(model, *callbacks, epochs=4):
    ids, targets = cases.ids_and_targets(np.random.RandomState(0), 12)
    model.fit(ids, targets, 6, epochs, verbose=0, callbacks=list(callbacks))


@pytest.mark.parametrize('sharded', [False, True], ids=['single', 'sharded'])
def test_the_newest_checkpoints_are_kept_and_the_files_of_others(model, sharded, tmpdir):
    tmpdir.join('model-notes').write('of the user')
    # Left by a process that was killed while it saved.
    tmpdir.join('.model-03.1234.part').write('half')
    pattern = str(tmpdir.join('model-{epoch:02d}'))
    callback = kp.callbacks.ModelCheckpoint(pattern, sharded=sharded, max_to_keep=2)
    assert kp.latest_checkpoint(pattern) is None
    fit(model, callback)
    assert sorted(os.listdir(str(tmpdir))) == ['model-03', 'model-04', 'model-notes']
    assert kp.latest_checkpoint(pattern) == str(tmpdir.join('model-04'))
    # Those of an earlier process count, too.
    fit(model, kp.callbacks.ModelCheckpoint(pattern, sharded=sharded, max_to_keep=1), epochs=1)
    assert sorted(os.listdir(str(tmpdir))) == ['model-01', 'model-notes']
    assert model.strategy.resume(model, str(tmpdir.join('model-01'))) == 1


def test_a_damaged_checkpoint_is_not_the_latest(model, tmpdir):
    pattern = str(tmpdir.join('{epoch}.h5'))
    fit(model, kp.callbacks.ModelCheckpoint(pattern), epochs=2)
    newest = tmpdir.join('2.h5')
    newest.write(newest.read('rb')[:1000], 'wb')
    assert kp.latest_checkpoint(pattern) == str(tmpdir.join('1.h5'))


def test_only_an_improved_model_is_saved(model, tmpdir):
    callback = kp.callbacks.ModelCheckpoint(
        str(tmpdir.join('{epoch}.h5')), 'loss', save_best_only=True, mode='max'
    )
    fit(model, callback)
    assert os.listdir(str(tmpdir)) == ['1.h5']
    assert callback.best > 0


def test_weights_alone_are_saved_when_asked(model, tmpdir):
    path = str(tmpdir.join('model.h5'))
    fit(model, kp.callbacks.ModelCheckpoint(path, save_weights_only=True), epochs=1)
    weights = model.get_weights()
    model.set_weights([0 * weight for weight in weights])
    model.load_weights(path)
    for one, other in zip(model.get_weights(), weights):
        np.testing.assert_array_equal(one, other)
    with pytest.warns(UserWarning, match='no state of an optimizer'):
        model.strategy.resume(model, path)


def test_an_optimizer_whose_state_keras_cannot_save_is_refused_at_the_start(model, tmpdir):
    with model.strategy:
        optimizer = kp.ParallaxOptimizer(tf.train.AdamOptimizer(), keras='keras')
        model.compile(optimizer, 'mse')
    with pytest.raises(kp.PlanError, match='AdamOptimizer'):
        fit(model, kp.callbacks.ModelCheckpoint(str(tmpdir.join('model.h5'))))
    assert not os.listdir(str(tmpdir))


def test_a_save_that_fails_raises_or_warns_as_asked(model, tmpdir):
    path = str(tmpdir.join('no', 'such', 'folder', 'model.h5'))
    with pytest.raises(kp.CheckpointError, match='could not be written'):
        fit(model, kp.callbacks.ModelCheckpoint(path))
    with pytest.warns(UserWarning, match='No checkpoint after epoch 2'):
        fit(model, kp.callbacks.ModelCheckpoint(path, on_save_error='warn'), epochs=2)


@pytest.mark.parametrize('argument', [{'on_save_error': 'ignore'}, {'max_to_keep': 0}])
def test_arguments_that_mean_nothing_are_refused(argument):
    with pytest.raises(ValueError, match='%s must be' % list(argument)[0]):
        kp.callbacks.ModelCheckpoint('model.h5', **argument)


def test_variables_of_one_process_that_are_larger_than_a_block_are_moved_in_blocks(
    model, monkeypatch, tmpdir
):
    """As if blocks were tiny: whatever is not a scalar goes block by block."""
    fit(model, epochs=1)
    weights, slots = model.get_weights(), model.optimizer.get_weights()
    model.save(str(tmpdir.join('plain.h5')))
    monkeypatch.setattr('keras_parallax.saving.BLOCK_BYTES', 8)
    path = str(tmpdir.join('model.h5'))
    kp.save_model(model, path, block_bytes=100)
    loaded = keras.models.load_model(path)
    for one, other in zip(loaded.get_weights() + loaded.optimizer.get_weights(), weights + slots):
        np.testing.assert_array_equal(one, other)
    model.set_weights([0 * weight for weight in weights])
    model.optimizer.set_weights([0 * slot for slot in slots])
    assert model.strategy.resume(model, path) == 0
    for one, other in zip(model.get_weights() + model.optimizer.get_weights(), weights + slots):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize('case', ['sgd', 'adam'])
def test_without_a_strategy_keras_saves_and_loads_the_optimizers_state(case, tmpdir):
    hvd.init()
    keras.backend.clear_session()
    model, path = cases.CASES[case].model(keras), str(tmpdir.join('model.h5'))
    wrapped = kp.ParallaxOptimizer(cases.CASES[case].optimizer(keras), sparse_update='lazy')
    model.compile(wrapped, 'mse')
    fit(model, epochs=2)
    slots = model.optimizer.get_weights()
    model.save(path)
    loaded = keras.models.load_model(path).optimizer.get_weights()
    model.optimizer.set_weights([0 * slot for slot in slots])
    assert not any(slot.any() for slot in model.optimizer.get_weights())
    model.optimizer.set_weights(loaded)
    for one, other in zip(model.optimizer.get_weights(), slots):
        np.testing.assert_array_equal(one, other)
    keras.backend.clear_session()
