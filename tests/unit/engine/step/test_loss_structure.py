# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The operations of a term show whether it is a mean or a sum, where they can."""

import cases
import pytest
from frameworks import KERAS_PACKAGES, tf

from keras_parallax.engine.step.loss_structure import kind_by_structure
from keras_parallax.planning.loss_kinds import MEAN, SUM

#: Functions of two outputs of layers, of a weight, and the kinds that show.
TERMS = {
    'a mean of outputs': (lambda a, b, w: tf.reduce_mean(a + b), MEAN),
    'a sum of outputs': (lambda a, b, w: tf.reduce_sum(tf.square(a - b)), SUM),
    'a mean of sums over features': (
        lambda a, b, w: tf.reduce_mean(tf.reduce_sum(a * b, axis=-1)),
        MEAN,
    ),
    'a mean with a weight': (lambda a, b, w: tf.reduce_mean(tf.exp(a) * w), MEAN),
    'a mean of what is divided by a sum over samples': (
        lambda a, b, w: tf.reduce_mean(a / tf.reduce_sum(a)),
        None,
    ),
    'a root of a mean': (lambda a, b, w: tf.sqrt(tf.reduce_mean(tf.square(a))), None),
    'a mean over pairs of samples': (
        lambda a, b, w: tf.reduce_mean(tf.matmul(a, b, transpose_b=True)),
        None,
    ),
    'a mean of a sum over samples': (
        lambda a, b, w: tf.reduce_mean(tf.reduce_sum(a, axis=0)),
        None,
    ),
    'a mean over pairs by broadcasting': (
        lambda a, b, w: tf.reduce_mean(tf.reduce_sum(a, axis=1) - a),
        None,
    ),
}


@pytest.mark.parametrize('package', KERAS_PACKAGES)
@pytest.mark.parametrize('name', sorted(TERMS))
def test_operations_show_a_mean_or_a_sum_of_what_is_computed_by_sample(package, name):
    keras = cases.keras_module(package)
    keras.backend.clear_session()
    given = keras.layers.Input((3,))
    outputs = [keras.layers.Dense(2)(given) for _ in range(2)]
    weight = keras.backend.variable([1.0, 2.0])
    function, kind = TERMS[name]
    assert kind_by_structure(function(*outputs, weight), {given.op}) == kind
