# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Saves of what has changed, in one process: whatever wrote a row, none of them is missed."""

import os
import resource
import shutil
import tempfile
import warnings

import increments
import numpy as np
import pytest
from any_keras import keras
from frameworks import KERAS_PACKAGES, tf

import keras_parallax as kp
from keras_parallax.checkpoint import keras_file_write, save_parts
from keras_parallax.checkpoint import manifest as manifest_module
from keras_parallax.checkpoint.delta_chain import Limits
from keras_parallax.checkpoint.increments import increments_of
from keras_parallax.errors import CheckpointError

ROWS, WIDTH, LENGTH = increments.ROWS, increments.WIDTH, increments.LENGTH


def build(optimizer='adagrad'):
    strategy, model = increments.build(optimizer)
    model.strategy = strategy
    return model


@pytest.fixture
def model():
    yield build()
    keras.backend.clear_session()


def batch(number):
    random = np.random.RandomState(number)
    return random.randint(0, ROWS, (8, LENGTH)), random.rand(8, 1)


class Saves:
    """Saves a model's changes, and sees that they are what a full save has."""

    def __init__(self, model, folder, **limits):
        self.model, self.folder, self._limits = model, folder, Limits(**limits)
        self.changes, self.full = os.path.join(folder, 'changes'), os.path.join(folder, 'full')

    def save(self, path=None):
        changes = increments_of(keras_file_write.scope_of_model(self.model), 'path', self._limits)
        save_parts.save_parts(self.model, path or self.changes, increments=changes)
        save_parts.save_parts(self.model, self.full)
        found, expected = increments.contents(path or self.changes), increments.contents(self.full)
        assert sorted(found) == sorted(expected) and len(found) > 4
        for name in expected:
            np.testing.assert_array_equal(found[name], expected[name], name)


def train(model, folder):
    model.train_on_batch(*batch(1))
    return len(np.unique(batch(1)[0]))


def set_weights(model, folder):
    model.set_weights([weight + 1 for weight in model.get_weights()])


def load_weights(model, folder):
    path = os.path.join(folder, 'weights.h5')
    model.save_weights(path)
    model.train_on_batch(*batch(2))
    model.load_weights(path)


def scatter(model, folder):
    table = model.layers[0].weights[0]
    with table.graph.as_default():
        write = tf.scatter_update(table, [3, 5, 5], np.ones([3, WIDTH], np.float32))
    keras.backend.get_session().run(write)
    return 2


def a_callback_that_normalizes(model, folder):
    table = model.layers[0].weights[0]
    update = keras.backend.update(table, keras.backend.l2_normalize(table, 1))
    # Keras 2 on TensorFlow 2 makes no function that returns nothing.
    total = keras.backend.sum(model.layers[-1].weights[-1])
    keras.backend.function([], [total], updates=[update])([])


def set_a_slot(model, folder):
    slots = model.optimizer.weights
    (slot,) = [slot for slot in slots if slot.shape.as_list() == [ROWS, WIDTH]]
    keras.backend.set_value(slot, np.full([ROWS, WIDTH], 7, np.float32))
    return 0


def restore_by_a_saver(model, folder):
    table = model.layers[0].weights[0]
    saver, session = tf.train.Saver([table]), keras.backend.get_session()
    path = saver.save(session, os.path.join(folder, 'saver'))
    model.train_on_batch(*batch(3))
    saver.restore(session, path)


def fail(model, folder):
    ids, targets = batch(4)
    ids[-1, -1] = ROWS
    with pytest.raises(kp.ParallaxError):
        model.train_on_batch(ids, targets)


def read(model, folder):
    """What writes no row: predictions, evaluations, a learning rate, weights that are read."""
    model.predict(batch(5)[0])
    model.evaluate(*batch(5), verbose=0)
    keras.backend.set_value(model.optimizer.lr, 0.02)
    model.get_weights()
    return 0


#: After each that may have written all rows comes one of which the rows are known.
ACTS = [
    train, set_weights, read, load_weights, scatter, a_callback_that_normalizes, set_a_slot,
    restore_by_a_saver, read, fail, train,
]  # fmt: skip


def test_whatever_writes_a_row_has_it_saved(model, tmpdir):
    saves = Saves(model, str(tmpdir), bytes=10**9)
    model.train_on_batch(*batch(0))
    saves.save()
    for act in ACTS:
        rows = act(model, str(tmpdir))
        saves.save()
        assert increments.rows_of_table(saves.changes) == rows, act.__name__


def fit(model, path, epochs, initial_epoch=0, **arguments):
    x, y = np.concatenate([batch(n)[0] for n in range(4)]), np.random.RandomState(0).rand(32, 1)
    checkpoint = kp.callbacks.ModelCheckpoint(path, incremental=True, **arguments)
    model.fit(
        x, y, 8, epochs, initial_epoch=initial_epoch, shuffle=False, verbose=0,
        callbacks=[checkpoint],
    )  # fmt: skip


def deltas_of(path):
    return len(manifest_module.read_manifest(path).deltas)


@pytest.mark.parametrize('optimizer, deltas', [('adagrad', [0, 1, 2, 3]), ('adam', [0] * 4)])
def test_training_goes_on_from_a_delta_with_every_bit(optimizer, deltas, tmpdir):
    path = str(tmpdir.join('model-{epoch}'))
    model = build(optimizer)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter('always')
        fit(model, path, 3)
        saved = increments.state(model)
        # Another callback of the same path goes on with its chain.
        fit(model, path, 4, 3)
    unbroken = increments.state(model)
    told = [str(one.message) for one in caught if 'saves all rows again' in str(one.message)]
    # Adam moves every row, so that there is nothing to spare.
    assert len(told) == (optimizer == 'adam') and all('table/embeddings' in one for one in told)
    assert [deltas_of(path.format(epoch=epoch)) for epoch in (1, 2, 3, 4)] == deltas
    model = build(optimizer)
    assert model.strategy.resume(model, path.format(epoch=3)) == 3
    for found, expected in zip(increments.state(model), saved):
        np.testing.assert_array_equal(found, expected)
    fit(model, path, 4, 3)
    for found, expected in zip(increments.state(model), unbroken):
        np.testing.assert_array_equal(found, expected)
    # What a job has written since it began is all that it knows of.
    assert deltas_of(path.format(epoch=4)) == 0


def test_a_folder_needs_no_other_and_a_base_comes_where_there_is_none(model, tmpdir):
    path, newest = str(tmpdir.join('model-{epoch}')), str(tmpdir.join('model-3'))
    fit(model, path, 3, max_to_keep=1)
    assert os.listdir(str(tmpdir)) == ['model-3'] and deltas_of(newest) == 2
    fit(model, path, 6, 3, max_deltas=3)
    assert [deltas_of(path.format(epoch=epoch)) for epoch in (3, 4, 5, 6)] == [2, 3, 0, 1]
    shutil.rmtree(path.format(epoch=6))
    fit(model, path, 7, 6)
    assert deltas_of(path.format(epoch=7)) == 0


def test_where_no_link_can_be_made_all_rows_are_saved_and_it_is_said(model, tmpdir):
    elsewhere = tempfile.mkdtemp(dir='/dev/shm')
    assert os.stat(elsewhere).st_dev != os.stat(str(tmpdir)).st_dev
    try:
        os.symlink(elsewhere, str(tmpdir.join('2')))
        with pytest.warns(UserWarning, match='no hard links.*without fields'):
            fit(model, str(tmpdir.join('{epoch}')), 2)
        assert deltas_of(elsewhere) == 0
    finally:
        shutil.rmtree(elsewhere)


def test_a_save_that_fails_leaves_the_one_before_and_the_next_has_all_rows(model, tmpdir):
    saves = Saves(model, str(tmpdir))
    for _ in range(2):
        train(model, str(tmpdir))
        saves.save()
    before = increments.contents(saves.changes)
    train(model, str(tmpdir))
    names = sorted(os.listdir(saves.changes))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (30000, limits[1]))
    try:
        with pytest.raises(CheckpointError, match='Rank 0 could not save to .*File too large'):
            saves.save()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert sorted(os.listdir(saves.changes)) == names
    after = increments.contents(saves.changes)
    for name in before:
        np.testing.assert_array_equal(after[name], before[name])
    saves.save()
    assert deltas_of(saves.changes) == 0


def test_a_model_that_is_compiled_anew_begins_with_a_base(model, tmpdir):
    saves = Saves(model, str(tmpdir))
    for deltas in (0, 1):
        train(model, str(tmpdir))
        saves.save()
        assert deltas_of(saves.changes) == deltas
    with model.strategy:
        model.compile(kp.ParallaxOptimizer('adagrad', keras=KERAS_PACKAGES[0]), 'mse')
    for deltas in (0, 1):
        train(model, str(tmpdir))
        saves.save()
        assert deltas_of(saves.changes) == deltas


def test_what_means_nothing_is_refused():
    for name, value in [('max_deltas', 0), ('max_delta_bytes', 0.5), ('max_deltas', True)]:
        with pytest.raises(ValueError, match=name):
            kp.callbacks.ModelCheckpoint('model', incremental=True, **{name: value})


def test_a_path_that_cannot_be_written_is_named(model, tmpdir):
    tmpdir.join('file').write('of the user')
    with pytest.raises(CheckpointError, match='Rank 0 could not save to .*file/model.*Not a dir'):
        fit(model, str(tmpdir.join('file', 'model')), 1)
