# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What a file of Keras says of itself, and which files are none."""

import os

import former_files
import h5py
import pytest
from frameworks import KERAS_PACKAGES

from keras_parallax.checkpoint import keras_file_read
from keras_parallax.errors import CheckpointError

PACKAGES = pytest.mark.parametrize('package', KERAS_PACKAGES)


def path_of(package, name):
    return os.path.join(former_files.FOLDER, package, name)


@PACKAGES
def test_a_file_tells_its_package_its_model_and_how_that_was_compiled(package):
    with keras_file_read.opened(path_of(package, 'model.h5')) as file:
        name, model, training = keras_file_read.read_configs(file)
    assert name == package
    assert [layer['config']['name'] for layer in model['config']['layers']][0] == 'table'
    assert training['optimizer_config']['class_name'] == 'Adam'


@PACKAGES
def test_a_file_of_weights_tells_its_package_alone(package):
    with keras_file_read.opened(path_of(package, 'weights.h5')) as file:
        assert keras_file_read.read_configs(file) == (package, None, None)


def test_a_file_of_somebody_else_s_is_taken_for_one_of_keras(tmpdir):
    with h5py.File(str(tmpdir.join('other.h5')), 'w') as file:
        assert keras_file_read.read_configs(file) == ('keras', None, None)


@pytest.mark.parametrize('name', ['model.h5', 'weights.h5'])
def test_weights_are_found_in_either_kind_of_file(name):
    with keras_file_read.opened(path_of('keras', name)) as file:
        assert set(keras_file_read.weights_group(file)) == {'table', 'flat', 'out'}


def test_a_file_that_is_cut_short_is_refused_by_name(tmpdir):
    path = tmpdir.join('cut.h5')
    with open(path_of('keras', 'model.h5'), 'rb') as file:
        path.write_binary(file.read()[:5000])
    with pytest.raises(CheckpointError, match='cut.h5 cannot be read: it is cut short, damaged'):
        with keras_file_read.opened(str(path)):
            pass


def test_a_file_that_is_not_there_is_a_checkpoint_error_and_what_plain_keras_raises(tmpdir):
    path = str(tmpdir.join('none.h5'))
    with pytest.raises(CheckpointError, match='no file .*none.h5.*latest_checkpoint') as told:
        keras_file_read.opened(path)
    assert isinstance(told.value, FileNotFoundError)


def test_a_folder_without_a_manifest_is_told_as_one(tmpdir):
    with pytest.raises(CheckpointError, match='is a folder without the manifest'):
        keras_file_read.opened(str(tmpdir))
