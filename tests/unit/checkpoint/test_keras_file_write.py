# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""How Keras's files are written: names told apart, complete or not there."""

import os

import pytest

from keras_parallax.checkpoint import keras_file_write
from keras_parallax.errors import CheckpointError


def test_equal_names_are_told_apart():
    names = ['a', 'b', 'a', 'a', 'a_1', 'b']
    assert keras_file_write.unique_names(names) == ['a', 'b', 'a_1', 'a_2', 'a_1_1', 'b_1']


def test_a_file_is_there_when_it_is_complete(tmpdir):
    path = str(tmpdir.join('model.h5'))
    with keras_file_write.created(path) as file:
        file.create_dataset('rows', data=[1, 2])
        assert not os.path.exists(path)
    assert os.listdir(str(tmpdir)) == ['model.h5']


def test_a_file_that_cannot_be_written_is_named(tmpdir):
    tmpdir.join('folder').write('no folder')
    path = str(tmpdir.join('folder', 'model.h5'))
    with pytest.raises(CheckpointError, match='model.h5 could not be written'):
        with keras_file_write.created(path):
            pass
