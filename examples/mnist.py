"""A small convolutional network that reads digits, trained by several workers.

Run two workers on this machine:

    keras-parallax run -np 2 examples/mnist.py

It is Horovod's first Keras example, ported: a plain Keras script but for the lines
marked ``# kp:``, and without a call of Horovod. `fit` gives
all workers the values of rank 0 and averages metrics; the optimizer averages
gradients. Neither the learning rate nor the number of epochs changes with the
number of workers: they share the pictures of an epoch, and N workers train on
what would be one process's batches of N times as many.

No variable is sparse, so all gradients go through Horovod's allreduce. Left to
itself, the plan comes to that too, but by then each of several workers has
started a server. Asked for by name, it starts none and opens no port for one.
"""

import functools

import click
import digits
import numpy as np
from graphs import keras, tf

import keras_parallax as kp  # kp: the plugin


def build_model(dropout=True):
    """Builds the network, whose output is how likely each digit is.

    Args:
        dropout: Whether a part of what hidden layers find is left out in training.
    """
    layers = keras.layers
    convolution = functools.partial(
        layers.Conv2D, kernel_size=3, activation='relu', data_format='channels_last'
    )
    return keras.models.Sequential(
        [
            convolution(16, input_shape=(digits.SIDE, digits.SIDE, 1), name='lines'),
            convolution(32, name='shapes'),
            layers.MaxPooling2D(2, data_format='channels_last'),
            layers.Dropout(0.25 if dropout else 0),
            layers.Flatten(),
            layers.Dense(64, activation='relu', name='hidden'),
            layers.Dropout(0.5 if dropout else 0),
            layers.Dense(10, activation='softmax', name='digit'),
        ]
    )


def compile_model(model, optimizer):
    """Compiles the network, with the fraction of digits that it gets right as its metric."""
    # By its function: `'accuracy'` has another name in the logs of each Keras.
    accuracy = keras.metrics.categorical_accuracy
    model.compile(optimizer, 'categorical_crossentropy', metrics=[accuracy])


def prepare(images, labels):
    """Returns pictures and digits as the network takes them: from 0 to 1, and one-hot."""
    return images[..., np.newaxis].astype('float32') / 255, keras.utils.to_categorical(labels, 10)


def describe(plan):
    """Returns where the variables are, as text.

    Args:
        plan: What ``strategy.plan(model)`` returns.
    """
    megabytes = sum(variable.bytes for variable in plan.variables) / 1e6
    places = ', '.join(sorted({variable.place for variable in plan.variables}))
    lines = [f'{plan.architecture}: {len(plan.variables)} variables, {megabytes:.2f} MB, {places}.']
    if plan.verdict():  # In one process there is nothing to choose.
        lines += [plan.verdict(), 'Bytes saved: none, as a step sends what Horovod would send.']
    return '\n'.join(lines)


def describe_epoch(logs):
    """Returns how the network does on held-out digits, as text."""
    loss, accuracy = logs['val_loss'], logs['val_categorical_accuracy']
    return f'held-out loss {loss:.4f}, accuracy {accuracy:.2%}'


_COUNT = click.IntRange(min=1)
_option = functools.partial(click.option, show_default=True)


@click.command()
@_option(
    '--data',
    metavar='FILE',
    help="File in the layout of Keras's mnist.npz. "
    f'Default: {digits.KERAS_FILE} if it is there, digits drawn here otherwise.',
)
@_option('--train', type=_COUNT, default=12000, help='Upper limit for the digits to train on.')
@_option('--held-out', type=_COUNT, default=2000, help='Upper limit for those to judge by.')
@_option('--epochs', type=_COUNT, default=3, help='Passes over the digits.')
@_option('--batch-size', type=_COUNT, default=64, help='Digits per batch on each worker.')
@_option('--learning-rate', type=float, default=1.0, help="Adadelta's.")
@_option('--dropout/--no-dropout', default=True, help='Whether training leaves out parts.')
@_option('--seed', type=int, default=1, help='Makes runs repeatable, up to rounding.')
def main(data, train, held_out, epochs, batch_size, learning_rate, dropout, seed):
    """Trains a network that reads digits and reports how many of new ones it gets right."""
    try:
        (x_train, y_train, x_test, y_test), source = digits.read(data, train, held_out)
    except digits.DigitsError as error:
        raise click.ClickException(str(error)) from None
    x_train, y_train = prepare(x_train, y_train)
    x_test, y_test = prepare(x_test, y_test)

    np.random.seed(seed)
    with kp.ParallaxStrategy(architecture='allreduce') as strategy:  # kp: no variable is sparse.
        tf.set_random_seed(seed + strategy.rank)  # kp: + rank, to leave out parts of its own.
        model = build_model(dropout)
        compile_model(model, keras.optimizers.Adadelta(learning_rate))

    # kp: one bar for all workers; Keras's own is none where the output is no terminal.
    callbacks = [kp.callbacks.ProgressBar('digits', describe=describe_epoch)]
    if strategy.is_chief:  # kp: one worker speaks for all.
        print(source)
        print(describe(strategy.plan(model)) + '\n')  # kp: `strategy.summary(model)` tells more.

    model.fit(
        **kp.data.arrays(x_train, y_train),  # kp: this worker's share, another in each epoch.
        validation_data=kp.data.shard((x_test, y_test)),  # kp: this worker's share.
        batch_size=batch_size,
        epochs=epochs,
        verbose=0,
        callbacks=callbacks,
    )

    if strategy.is_chief:  # kp: on all held-out digits.
        loss, accuracy = model.evaluate(x_test, y_test, batch_size=batch_size, verbose=0)
        print(f'Of all held-out digits {accuracy:.2%} are read right, with a loss of {loss:.4f}.')


if __name__ == '__main__':
    main()
