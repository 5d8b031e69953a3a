# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""ResNet-50 or Inception-v3, which tells what images show, trained by several workers.

Run two workers on this machine:

    keras-parallax run -np 2 examples/resnet50.py

This is a plain Keras script but for the lines marked ``# kp:``. The networks are
Keras's own. None of their variables is sparse, so all gradients go through
Horovod's allreduce.
"""

import functools
import glob
import os

import click
import mnist
import numpy as np
import shapes
from graphs import keras, tf

import keras_parallax as kp  # kp: the plugin

#: From names to networks, and the least height and width that each takes.
NETWORKS = {
    'resnet50': (keras.applications.resnet50.ResNet50, 32),
    'inception_v3': (keras.applications.inception_v3.InceptionV3, 75),
}
#: Folders of images to train on, and to judge by.
PARTS = ('train', 'val')


def build_model(network='resnet50', side=224, classes=1000, bn_momentum=0.99):
    """Builds a network with start weights of its own, whose output is how likely each class is.

    Args:
        network: One of `NETWORKS`.
        side: Height and width of the images.
        classes: Number of classes.
        bn_momentum: How much batch normalization keeps of its means and variances in a step.
    """
    layers = keras.layers
    images = layers.Input((side, side, 3), name='images')
    body = NETWORKS[network][0](include_top=False, weights=None, input_tensor=images, pooling='avg')
    likely = layers.Dense(classes, activation='softmax', name='classes')(body.output)
    config = keras.models.Model(images, likely).get_config()
    for layer in config['layers']:
        if layer['class_name'].startswith('BatchNorm'):
            layer['config']['momentum'] = bn_momentum
    return keras.models.Model.from_config(config)


class Images(keras.utils.Sequence):
    """Batches of images with their classes, each of the same size; what fills none is left out.

    Args:
        load: Function of an image that returns its bytes, [side, side, 3].
        images: What `load` takes.
        labels: The number of each one's class.
        classes: How many classes there are.
        batch_size: Images per batch.
    """

    def __init__(self, load, images, labels, classes, batch_size):
        self.load, self.images, self.batch_size = load, images, batch_size
        self.labels = keras.utils.to_categorical(labels, classes)
        # Alike on all workers. Images of a class lie side by side in a folder.
        self.order = np.random.RandomState(0).permutation(len(images))

    def __len__(self):
        return len(self.images) // self.batch_size

    def __getitem__(self, index):
        numbers = self.order[index * self.batch_size :][: self.batch_size]
        batch = np.stack([self.load(self.images[number]) for number in numbers])
        return batch.astype('float32') / 127.5 - 1, self.labels[numbers]


def read_folder(folder, side, batch_size):
    """Returns the `Images` of a folder, which has a folder for each class.

    Classes have the numbers that `flow_from_directory` of Keras gives them: by name.

    Args:
        folder: Path of the folder.
        side: Height and width that images are brought to.
        batch_size: Images per batch.
    """
    classes = sorted(entry.name for entry in os.scandir(folder) if entry.is_dir())
    paths, labels = [], []
    for label, name in enumerate(classes):
        found = sorted(glob.glob(os.path.join(glob.escape(folder), name, '*.*')))
        paths += found
        labels += [label] * len(found)
    image = keras.preprocessing.image

    def load(path):
        return image.img_to_array(image.load_img(path, target_size=(side, side)))

    return Images(load, paths, labels, len(classes), batch_size)


def draw(count, side, batch_size, seed):
    """Returns drawn `Images`; arguments are as above, and as `shapes.draw` takes them."""
    images, labels = shapes.draw(count, side, seed)
    return Images(np.asarray, images, labels, len(shapes.KINDS), batch_size)


_COUNT = click.IntRange(min=1)
_option = functools.partial(click.option, show_default=True)


@click.command()
@_option(
    '--data',
    metavar='DIR',
    type=click.Path(exists=True, file_okay=False),
    help='Folder with train/CLASS/ and val/CLASS/, each with images of a class. '
    'Default: shapes that are drawn here.',
)
@_option('--model', 'network', default='resnet50', help='resnet50 or inception_v3.')
@_option('--side', type=_COUNT, help='Height and width of the images.  [default: the least]')
@_option('--train', type=_COUNT, default=256, help='How many images to draw to train on.')
@_option('--held-out', type=_COUNT, default=96, help='How many to draw to judge by.')
@_option('--epochs', type=_COUNT, default=3, help='Passes over the images.')
@_option('--batch-size', type=_COUNT, default=16, help='Images per batch on each worker.')
@_option('--learning-rate', type=float, default=0.001, help="Adam's.")
# Keras's 0.99 is for longer runs: after 100 steps a third is still what it began with.
@_option(
    '--bn-momentum',
    type=click.FloatRange(0, 1),
    default=0.5,
    help='How much batch normalization keeps of its means and variances in a step.',
)
@_option('--seed', type=int, default=1, help='Makes runs repeatable, up to rounding.')
def main(
    data, network, side, train, held_out, epochs, batch_size, learning_rate, bn_momentum, seed
):
    """Trains a network that tells what images show, and reports how many of new ones it gets."""
    if network not in NETWORKS:
        raise click.ClickException(f'--model is one of {", ".join(sorted(NETWORKS))}.')
    least = NETWORKS[network][1]
    side = side or least
    if side < least:
        raise click.ClickException(f'{network} takes a --side of {least} or more.')
    for part in PARTS if data else ():
        if not os.path.isdir(os.path.join(data, part)):
            raise click.ClickException(f'{data} has no folder {part} with a folder for each class.')
    if data:
        trained, judged = [read_folder(os.path.join(data, p), side, batch_size) for p in PARTS]
    else:
        trained, judged = draw(train, side, batch_size, 1), draw(held_out, side, batch_size, 2)
    classes = trained.labels.shape[1]

    np.random.seed(seed)
    with kp.ParallaxStrategy(architecture='allreduce') as strategy:  # kp: no variable is sparse.
        tf.set_random_seed(seed)
        model = build_model(network, side, classes, bn_momentum)
        mnist.compile_model(model, keras.optimizers.Adam(learning_rate))

    share = kp.data.shard(trained)  # kp: this worker's batches, others in each epoch.
    # kp: batch normalization has means and variances of this worker's images.
    callbacks = [
        kp.callbacks.MetricAverageCallback(average_moving_statistics=True),
        kp.callbacks.ProgressBar('images', describe=mnist.describe_epoch),  # kp: one for all.
    ]
    if strategy.is_chief:  # kp: one worker speaks for all.
        source = f'in {data}' if data else 'drawn here'
        print(f'{len(trained.images):,} images, and {len(judged.images):,} held out, {source}.')
        print(mnist.describe(strategy.plan(model)) + '\n')

    model.fit_generator(
        share,
        validation_data=kp.data.shard(judged, shuffle=False),  # kp: this worker's batches.
        epochs=epochs,
        verbose=0,
        callbacks=callbacks,
    )


if __name__ == '__main__':
    main()
