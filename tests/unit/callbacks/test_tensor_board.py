# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""TensorBoard's files. `tests/parallel/test_behaviour.py` compares them with plain Keras's."""

import glob
import os

import cases
import numpy as np
import pytest
from frameworks import KERAS_PACKAGES, tf

import keras_parallax as kp
from keras_parallax.callbacks import sampled_model

PACKAGES = pytest.mark.parametrize('package', KERAS_PACKAGES)
IDS = np.arange(8).reshape(4, 2)


def model_of(package):
    keras = cases.keras_module(package)
    keras.backend.clear_session()
    layers = [
        keras.layers.Embedding(30, 4, input_length=2, name='words'),
        keras.layers.Flatten(),
        keras.layers.Dense(1),
    ]
    model = keras.models.Sequential(layers)
    model.compile('sgd', 'mse')
    return model


def fit(model, board, epochs=1):
    targets = np.ones([4, 1])
    model.fit(
        IDS,
        targets,
        batch_size=2,
        epochs=epochs,
        verbose=0,
        callbacks=[board],
        validation_data=(IDS, targets),
    )


def written(folder):
    """Pairs of a tag and the kind of its value, in a folder's files of events."""
    return {
        (value.tag, value.WhichOneof('value'))
        for path in glob.glob(os.path.join(str(folder), 'events.out.*'))
        for event in tf.train.summary_iterator(path)
        for value in event.summary.value
    }


def table(path):
    return np.loadtxt(str(path), delimiter='\t')


@PACKAGES
def test_what_cannot_be_written_is_warned_of_and_training_goes_on(package, tmpdir):
    file = tmpdir.join('file')
    file.write('no folder')
    model = model_of(package)
    before = model.get_weights()[0]
    board = kp.callbacks.TensorBoard(str(file.join('logs')), histogram_freq=1, embeddings_freq=1)
    with pytest.warns(UserWarning, match='TensorBoard could not write to .*logs: .* goes on'):
        fit(model, board)
    assert not np.array_equal(model.get_weights()[0], before)


@pytest.mark.parametrize('rows', [0, -1, 1.5, True])
def test_what_is_no_number_of_rows_is_refused(rows):
    with pytest.raises(ValueError, match='sampled_rows must be'):
        kp.callbacks.TensorBoard(sampled_rows=rows)


@PACKAGES
def test_embeddings_of_data_are_what_the_layer_makes_of_it(package, tmpdir):
    model = model_of(package)
    board = kp.callbacks.TensorBoard(
        str(tmpdir), embeddings_freq=1, embeddings_data=IDS, embeddings_metadata='names.tsv'
    )
    fit(model, board)
    expected = model.get_weights()[0][IDS].reshape(4, 8)
    np.testing.assert_allclose(table(tmpdir.join('embedding-0.tsv')), expected, rtol=1e-5)
    config = tmpdir.join('projector_config.pbtxt').read()
    assert 'metadata_path: "names.tsv"' in config and 'tensor_name: "words"' in config


@PACKAGES
def test_chosen_layers_alone_are_shown_with_the_lines_of_their_rows(package, tmpdir):
    model = model_of(package)
    lines = ['name\tlength'] + ['word %d\t%d' % (row, row) for row in range(30)]
    tmpdir.join('names.tsv').write('\n'.join(lines))
    board = kp.callbacks.TensorBoard(
        str(tmpdir),
        embeddings_freq=2,
        embeddings_layer_names=['words'],
        embeddings_metadata={'words': 'names.tsv'},
        sampled_rows=3,
    )
    fit(model, board)
    ids = sampled_model.sampled_ids(30, 3)
    shown = tmpdir.join('embedding-0-labels.tsv').read().splitlines()
    assert shown == [lines[0]] + ['word %d\t%d' % (row, row) for row in ids]


def test_labels_of_one_column_have_no_title(tmpdir):
    model = model_of(KERAS_PACKAGES[-1])
    tmpdir.join('names.tsv').write(''.join('word %d\n' % row for row in range(30)))
    board = kp.callbacks.TensorBoard(
        str(tmpdir), embeddings_freq=1, embeddings_metadata='names.tsv', sampled_rows=30
    )
    fit(model, board)
    shown = tmpdir.join('embedding-0-labels.tsv').read().splitlines()
    assert shown == ['word %d' % row for row in range(30)]


@PACKAGES
def test_lacking_labels_are_warned_of_and_training_goes_on(package, tmpdir):
    board = kp.callbacks.TensorBoard(
        str(tmpdir), embeddings_freq=1, embeddings_metadata='missing.tsv'
    )
    with pytest.warns(UserWarning, match='could not write embeddings .*missing.tsv'):
        fit(model_of(package), board)


@PACKAGES
@pytest.mark.parametrize('often,batches', [('epoch', 0), ('batch', 4), (4, 2)])
def test_batches_are_written_as_often_as_asked(package, tmpdir, often, batches):
    board = kp.callbacks.TensorBoard(str(tmpdir), write_graph=False, update_freq=often)
    fit(model_of(package), board, epochs=2)
    tags = [
        value.tag
        for path in glob.glob(str(tmpdir.join('events.out.*')))
        for event in tf.train.summary_iterator(path)
        for value in event.summary.value
    ]
    # Keras 2.2.4 has one tag for batches and epochs, and writes it for either.
    ends = 0 if any(tag == 'epoch_loss' for tag in tags) else 2
    assert sum(tag in ('loss', 'batch_loss') for tag in tags) - ends == batches


@PACKAGES
def test_a_second_fit_goes_on_with_the_same_tags(package, tmpdir):
    model = model_of(package)
    board = kp.callbacks.TensorBoard(str(tmpdir), histogram_freq=1)
    fit(model, board)
    once = written(tmpdir)
    fit(model, board)
    assert written(tmpdir) == once


@PACKAGES
def test_counts_are_numbers_of_the_callback_that_a_checkpoint_has(package, tmpdir):
    boards = [kp.callbacks.TensorBoard(str(tmpdir), update_freq='batch') for _ in range(2)]
    model = model_of(package)
    fit(model, boards[0])
    counts = {name: value for name, value in vars(boards[0]).items() if 'seen' in name}
    assert counts
    vars(boards[1]).update(counts)
    fit(model, boards[1])
    for name, value in counts.items():
        assert getattr(boards[1], name) == 2 * value
