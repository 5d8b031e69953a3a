"""How Keras's files are written: names told apart, layers found once, complete or not there."""

import os

import cases
import pytest
from frameworks import KERAS_PACKAGES

from keras_parallax.checkpoint import keras_file_write
from keras_parallax.errors import CheckpointError


@pytest.fixture(params=KERAS_PACKAGES)
def package(request):
    module = cases.keras_module(request.param)
    module.backend.clear_session()
    return module


def test_equal_names_are_told_apart():
    names = ['a', 'b', 'a', 'a', 'a_1', 'b']
    assert keras_file_write.unique_names(names) == ['a', 'b', 'a_1', 'a_2', 'a_1_1', 'b_1']


def test_a_layer_in_models_and_wrappers_is_found_once(package):
    from keras_parallax.compat import keras_api

    layers, models = package.layers, package.models
    shared = layers.Dense(3, name='shared')
    inner = models.Sequential([layers.TimeDistributed(shared, input_shape=(2, 3))], name='inner')
    first, second = layers.Input((2, 3)), layers.Input((2, 3))
    model = models.Model([first, second], layers.add([inner(first), inner(second)]))
    found = keras_file_write.layers_in(keras_api.package_of(model), model)
    assert [layer.name for layer in found].count('shared') == 1
    assert len({id(layer) for layer in found}) == len(found)


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
