# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Slots of TensorFlow's optimizers go by name of slot and of variable."""

import former_files
import h5py
import numpy as np
import pytest

from keras_parallax.checkpoint import resume, save, tensorflow_slots
from keras_parallax.errors import CheckpointError


@pytest.fixture
def path(tmpdir):
    """A checkpoint of a model that TensorFlow's Adam has trained."""
    _, model = former_files.build('tf.train')
    model.train_on_batch(*former_files.batch(0, 1))
    path = str(tmpdir.join('saved.h5'))
    save.save(model, path)
    return path


def test_every_variable_has_every_slot(path):
    with h5py.File(path, 'r') as file:
        group = file[tensorflow_slots.GROUP]
        for slot in ('m', 'v'):
            assert group[slot]['table/embeddings'].shape == (11, 3)
            assert group[slot]['out/kernel'].shape == (6, 1)
            assert np.any(group[slot]['out/bias'][:])


def test_slots_that_the_model_does_not_have_alike_are_refused_by_name(path):
    with h5py.File(path, 'a') as file:
        del file[tensorflow_slots.GROUP + '/v/out/bias']
        file[tensorflow_slots.GROUP + '/z/out/bias'] = [0.0]
    _, model = former_files.build('tf.train')
    with pytest.raises(CheckpointError, match='in the slots v/out/bias, z/out/bias'):
        resume.resume(model, path)


def test_a_file_without_slots_leaves_them_as_they_are(path):
    with h5py.File(path, 'a') as file:
        del file[tensorflow_slots.GROUP]
    _, model = former_files.build('tf.train')
    with pytest.warns(UserWarning, match='holds no state of an optimizer'):
        resume.resume(model, path)
