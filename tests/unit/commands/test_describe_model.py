# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""A model is described from any of its sources, and what is none is refused with a sentence."""

import os

import cases
import former_files
import pytest
from frameworks import KERAS_PACKAGES

import keras_parallax as kp
from keras_parallax.commands.describe_model import describe
from keras_parallax.engine.updates import table_updates
from keras_parallax.errors import PlanError

PACKAGES = pytest.mark.parametrize('package', KERAS_PACKAGES)


def path_of(package, name='model.h5'):
    return os.path.join(former_files.FOLDER, package, name)


def as_text(package):
    keras = cases.keras_module(package)
    keras.backend.clear_session()
    return cases.CASES['adam'].model(keras).to_json()


@PACKAGES
def test_a_file_of_a_former_version_is_described_with_its_optimizer(package):
    description = describe(path_of(package))
    assert [(use.name, use.shape, use.lookups) for use in description.uses] == [
        ('table/embeddings', (11, 3), 1),
        ('out/kernel', (6, 1), 0),
        ('out/bias', (1,), 0),
    ]
    slots = {name: update.slots for name, update in description.updates.items()}
    assert slots == {'table/embeddings': 2, 'out/kernel': 2, 'out/bias': 2}


@PACKAGES
def test_an_optimizer_that_is_named_counts_more_than_the_saved_one(package):
    description = describe(path_of(package), optimizer='adagrad')
    assert description.updates['table/embeddings'].slots == 1
    lazy = describe(path_of(package), sparse_update=table_updates.LAZY)
    assert not lazy.updates['table/embeddings'].whole


def test_optimizers_and_layers_of_ours_are_known(tmpdir):
    package, path = KERAS_PACKAGES[0], str(tmpdir.join('model.h5'))
    keras = cases.keras_module(package)
    keras.backend.clear_session()
    bag = kp.layers.EmbeddingBag(8, 4, input_length=3, keras=package, name='bag')
    model = keras.models.Sequential([bag, keras.layers.Dense(1)])
    model.compile(kp.optimizers.LazyAdam(keras=package), 'mse')
    model.save(path)
    assert describe(path).updates['bag/embeddings'].slots == 2
    named = describe(path, optimizer='RowwiseAdagrad')
    assert named.updates['bag/embeddings'].slots == 1 / 4


@PACKAGES
def test_a_text_has_no_optimizer(package, tmpdir):
    path = tmpdir.join('model.json')
    path.write(as_text(package))
    description = describe(str(path))
    assert description.uses[0].name == 'table/embeddings' and description.updates == {}


@pytest.mark.parametrize('source, message', [
    ('none.h5', 'There is no file none.h5'),
    ('none.json', 'There is no file none.json'),
    ('model', "module:function, but 'model' was given"),
    ('no_such_module:build', 'Module no_such_module could not be imported'),
    ('os:no_such_function', 'Module os has no function no_such_function'),
    ('os:getcwd', 'which is no Keras model'),
    (path_of('keras', 'weights.h5'), 'it has weights only; save it with model.save'),
])  # fmt: skip
def test_what_is_no_model_is_refused_with_a_sentence(source, message):
    with pytest.raises(PlanError) as caught:
        describe(source)
    assert message in str(caught.value)
