# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What a checkpoint has beside Keras's file, in both forms, saved by one process."""

import os

import former_files
import h5py
import numpy as np
import pytest
from frameworks import TF2

from keras_parallax.checkpoint import manifest, save, save_parts


@pytest.fixture(params=former_files.KINDS)
def model(request):
    _, model = former_files.build(request.param)
    model.train_on_batch(*former_files.batch(0, 1))
    return model


def file_of(path):
    if manifest.is_sharded(path):
        path = os.path.join(path, manifest.read_manifest(path).model)
    return h5py.File(path, 'r')


@pytest.mark.parametrize('save_to', [save.save, save_parts.save_parts])
def test_a_checkpoint_tells_what_the_callback_has_told_it(save_to, model, tmpdir):
    path = str(tmpdir.join('saved'))
    save_to(model, path, 5, best={'loss': 0.5}, written={'name': 'saved'})
    with file_of(path) as file:
        state = save.read_state(file)
    assert (state['epoch'], state['best'], state['written']) == (
        5, {'loss': 0.5}, {'name': 'saved'},
    )  # fmt: skip
    assert state['hyperparameters']['iterations'] == 1
    assert state['optimizer'].startswith('Adam')


def test_rates_counters_and_powers_are_numbers_of_the_optimizer(model):
    names = set(save.scalars(model.optimizer))
    rate = ['learning_rate', '_iterations'] if TF2 else ['lr']
    own = {'iterations', 'beta_1', 'beta_2', 'decay', *rate}
    tensorflows = {'iterations', 'optimizer.beta1_power', 'optimizer.beta2_power'}
    assert names in (own, tensorflows)


def test_a_file_of_plain_keras_has_no_state_of_ours(model, tmpdir):
    path = str(tmpdir.join('model.h5'))
    model.save(path)
    with h5py.File(path, 'r') as file:
        assert save.read_state(file) == {}


def test_the_older_parts_go_when_the_new_ones_are_complete(model, tmpdir):
    path = str(tmpdir.join('parts'))
    save_parts.save_parts(model, path, 1)
    first = set(os.listdir(path))
    save_parts.save_parts(model, path, 2)
    second = set(os.listdir(path))
    assert first & second == {manifest.MANIFEST}
    named = {part.name for part in manifest.read_manifest(path).parts}
    assert second == named | {manifest.MANIFEST}


def test_weights_alone_have_no_slots(model, tmpdir):
    path = str(tmpdir.join('weights.h5'))
    save.save(model, path, include_optimizer=False)
    with h5py.File(path, 'r') as file:
        names = []
        file.visit(names.append)
        table = file['model_weights/table/table/embeddings:0'][:]
    assert not [name for name in names if 'optimizer_weights' in name or '/slots' in name]
    np.testing.assert_array_equal(table, model.get_weights()[0])
