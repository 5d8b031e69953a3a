# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The networks of `examples/` for images: what `make demo-resnet50` runs, but a small one."""

import os
import re

import example_runs
import numpy as np
import pytest
import reference
import small_network
from any_keras import keras
from frameworks import tf
from small_network import resnet50

from keras_parallax.data.sample_order import Order

mnist, shapes = map(example_runs.module, ('mnist', 'shapes'))
SIDE, TRAIN, HELD_OUT, EPOCHS, BATCH, RATE, SEED = 32, 320, 64, 6, 8, 0.01, 1
OPTIONS = {
    'model': small_network.NAME, 'train': TRAIN, 'held-out': HELD_OUT, 'epochs': EPOCHS,
    'batch-size': BATCH, 'learning-rate': RATE, 'seed': SEED,
}  # fmt: skip


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    """The images that the example draws, in folders of their classes, as PNG files."""
    folder = tmp_path_factory.mktemp('images')
    for part, count, seed in zip(resnet50.PARTS, (TRAIN, HELD_OUT), (1, 2)):
        for number, (image, label) in enumerate(zip(*shapes.draw(count, SIDE, seed))):
            place = folder / part / shapes.KINDS[label]
            place.mkdir(parents=True, exist_ok=True)
            keras.preprocessing.image.array_to_img(image).save(str(place / ('%d.png' % number)))
    return str(folder)


@pytest.fixture(scope='module')
def shown(folder):
    """What the example prints, as `make demo-resnet50` shows it, on images of a folder."""
    worker = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'resnet50_worker.py')
    options = [word for name, value in OPTIONS.items() for word in ('--' + name, value)]
    return example_runs.output(worker, '--data', folder, *options)


@pytest.fixture(scope='module')
def epochs(shown):
    """After each epoch, its loss and accuracy on held-out images."""
    found = re.findall(r'held-out loss (\d+\.\d+), accuracy (\d+\.\d+)%', shown)
    return [(float(loss), float(percent) / 100) for loss, percent in found]


@pytest.fixture(scope='module')
def plain_epochs(folder):
    """The same of plain Keras in one process, on batches that join those of the workers."""
    images = resnet50.read_folder(os.path.join(folder, 'train'), SIDE, BATCH)
    judged = resnet50.read_folder(os.path.join(folder, 'val'), SIDE, HELD_OUT)[0]
    keras.backend.clear_session()
    np.random.seed(SEED)
    tf.set_random_seed(SEED)
    model = resnet50.build_model(small_network.NAME, SIDE, len(shapes.KINDS))
    mnist.compile_model(model, reference.gated(keras.optimizers.Adam(RATE)))
    model._make_train_function()
    reference.gate_updates(model)
    found = []
    for epoch in range(EPOCHS):
        order = Order(len(images), example_runs.WORKERS, seed=0).of_all(epoch)
        for numbers in order.reshape(-1, example_runs.WORKERS):
            batches = [images[number] for number in numbers]
            model.train_on_batch(*[np.concatenate(parts) for parts in zip(*batches)])
        found.append(tuple(model.evaluate(*judged, verbose=0)))
    return found


def test_it_learns_to_tell_what_images_show(epochs):
    assert len(epochs) == EPOCHS and epochs[-1][1] > 0.4


def test_two_workers_are_where_plain_keras_is_on_joined_batches(epochs, plain_epochs):
    np.testing.assert_allclose(epochs[0], plain_epochs[0], rtol=5e-3, atol=1.5 / HELD_OUT)
    np.testing.assert_allclose(epochs[-1], plain_epochs[-1], rtol=0.1, atol=0.1)


def test_its_plan_is_allreduce_with_each_variable_on_every_rank(shown):
    assert re.search(r'^allreduce: 6 variables, \d+\.\d\d MB, on every rank\.$', shown, re.M)


def test_it_prints_one_bar_and_nothing_of_the_launcher(shown, folder):
    assert example_runs.is_one_screen(shown)
    assert '%d images, and %d held out, in %s.' % (TRAIN, HELD_OUT, folder) in shown


def test_images_of_a_folder_have_the_classes_that_flow_from_directory_gives_them(folder):
    read = resnet50.read_folder(os.path.join(folder, 'val'), SIDE, HELD_OUT)
    flow = keras.preprocessing.image.ImageDataGenerator().flow_from_directory(
        os.path.join(folder, 'val'), (SIDE, SIDE), batch_size=HELD_OUT, shuffle=False
    )
    images, labels = next(flow)
    np.testing.assert_array_equal(read[0][1], labels[read.order])
    np.testing.assert_allclose(read[0][0], images[read.order] / 127.5 - 1, atol=1e-6)


def test_normalization_of_resnet50_follows_as_fast_as_it_is_told():
    keras.backend.clear_session()
    model = resnet50.build_model('resnet50', 32, 10, bn_momentum=0.5)
    assert keras.backend.int_shape(model.output) == (None, 10)
    momenta = [layer.momentum for layer in model.layers if hasattr(layer, 'momentum')]
    assert len(momenta) > 50 and set(momenta) == {0.5}
