# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Optimizers that tell a row without a gradient from a row whose gradient is zero, or might.

Each is a function from a Keras package to an optimizer. Plain Keras gives them `IndexedSlices` for
a table that is only looked up: with TensorFlow 2 all of them, with TensorFlow 1.11 those of
`tf.train` and `tf.contrib.opt`, and `kp.optimizers`.
"""

import functools
import importlib

from frameworks import TF1_6, TF2, tf

LENGTH = 5
#: Rows that most batches look up, and rows that some batches do. No batch looks others up.
FEW, MORE = 6, 15


def ids_and_targets(random, size):
    """Ids `[size, LENGTH]`, which leave rows out, and a number for each sample."""
    rows = MORE if random.uniform() < 0.4 else FEW
    return random.randint(0, rows, (size, LENGTH)), random.uniform(-1, 1, (size, 1))


def partly_still(rows, width):
    """A model of one table whose gradient is zero in the last place of each sample."""

    def model(keras):
        still = [[1.0]] * (LENGTH - 1) + [[0.0]]
        return keras.models.Sequential(
            [
                keras.layers.Embedding(rows, width, input_length=LENGTH, name='table'),
                keras.layers.Lambda(lambda x: x * tf.constant(still), output_shape=(LENGTH, width)),
                keras.layers.Flatten(),
                keras.layers.Dense(1, name='out'),
            ]
        )

    return model


def _of_keras(name, **arguments):
    return lambda keras: getattr(keras.optimizers, name)(**arguments)


def _of_tensorflow(name, *arguments, **named):
    return lambda keras: getattr(tf.train, name + 'Optimizer')(*arguments, **named)


def of_contrib(name, *arguments, **named):
    """A function from a Keras package to an optimizer of `tf.contrib.opt`."""

    def optimizer(keras):
        del keras
        contrib = importlib.import_module('tensorflow.contrib.opt')
        return getattr(contrib, name + 'Optimizer')(*arguments, **named)

    return optimizer


def _dual_averaging(keras):
    del keras
    return tf.train.AdagradDAOptimizer(0.1, tf.constant(1, tf.int64))


def _own(keras):
    """A user's subclass of one of TensorFlow's."""
    del keras
    return type('Own', (tf.train.MomentumOptimizer,), {})(0.1, 0.9)


#: The optimizers of Keras, those of TensorFlow 2 without `Adam`, `SGD` and `Adagrad` as they are.
OF_KERAS = {
    'sgd': _of_keras('SGD', lr=0.1),
    'momentum': _of_keras('SGD', lr=0.1, momentum=0.9),
    'nesterov': _of_keras('SGD', lr=0.1, momentum=0.9, nesterov=True),
    'adagrad': _of_keras('Adagrad', lr=0.1),
    'adadelta': _of_keras('Adadelta', lr=1.0),
    'rmsprop': _of_keras('RMSprop', lr=0.01),
    'adam': _of_keras('Adam', lr=0.01),
    'amsgrad': _of_keras('Adam', lr=0.01, amsgrad=True),
    'adamax': _of_keras('Adamax', lr=0.01),
    'nadam': _of_keras('Nadam', lr=0.01),
}
if TF2:
    OF_KERAS.update(
        rmsprop_centered=_of_keras('RMSprop', lr=0.01, centered=True),
        rmsprop_momentum=_of_keras('RMSprop', lr=0.01, momentum=0.9),
        rmsprop_both=_of_keras('RMSprop', lr=0.01, momentum=0.9, centered=True),
        adagrad_from_zero=_of_keras('Adagrad', lr=0.1, initial_accumulator_value=0.0, epsilon=1e-4),
        ftrl=_of_keras('Ftrl', lr=0.1),
        ftrl_l1=_of_keras('Ftrl', lr=0.1, l1_regularization_strength=0.01),
        ftrl_shrinkage=_of_keras('Ftrl', lr=0.1, l2_shrinkage_regularization_strength=0.1),
    )

#: Those of `tf.train` and `tf.contrib.opt`, in Keras's wrapper.
OF_TENSORFLOW = {
    'tf_sgd': _of_tensorflow('GradientDescent', 0.1),
    'tf_momentum': _of_tensorflow('Momentum', 0.1, 0.9),
    'tf_nesterov': _of_tensorflow('Momentum', 0.1, 0.9, use_nesterov=True),
    'tf_adagrad': _of_tensorflow('Adagrad', 0.1),
    'tf_adagrad_da': _dual_averaging,
    'tf_adadelta': _of_tensorflow('Adadelta', 1.0),
    'tf_adam': _of_tensorflow('Adam', 0.01),
    'tf_rmsprop': _of_tensorflow('RMSProp', 0.01),
    'tf_rmsprop_momentum': _of_tensorflow('RMSProp', 0.01, momentum=0.9),
    'tf_rmsprop_centered': _of_tensorflow('RMSProp', 0.01, momentum=0.9, centered=True),
    'tf_ftrl': _of_tensorflow('Ftrl', 0.1),
    'tf_proximal_adagrad': _of_tensorflow(
        'ProximalAdagrad', 0.1, l1_regularization_strength=0.01, l2_regularization_strength=0.1
    ),
    'tf_proximal_sgd': _of_tensorflow(
        'ProximalGradientDescent', 0.1, l2_regularization_strength=0.1
    ),
    'tf_own': _own,
}
#: Those of `tf.contrib.opt`, whose import takes seconds.
OF_CONTRIB = {}
if not TF2 and not TF1_6:
    OF_CONTRIB.update(
        tf_lazy_adam=of_contrib('LazyAdam', 0.01),
        tf_adamax=of_contrib('AdaMax', 0.01),
    )


def of_ours(name, **arguments):
    """A function from a Keras package to an optimizer of `kp.optimizers`."""
    return functools.partial(_of_ours, name, arguments)


def _of_ours(name, arguments, keras):
    import keras_parallax as kp

    # Here, for the cases are also built where it is not installed.
    return getattr(kp.optimizers, name)(keras=name_of(keras), **arguments)


def name_of(keras):
    """The name of a Keras package, as ours takes it."""
    return 'keras' if keras.__name__ == 'keras' else 'tf.keras'


OF_OURS = {
    'lazy_adam': of_ours('LazyAdam', lr=0.01),
    'rowwise_adagrad': of_ours('RowwiseAdagrad', lr=0.1),
}
OPTIMIZERS = dict(OF_KERAS, **OF_TENSORFLOW, **OF_CONTRIB, **OF_OURS)
