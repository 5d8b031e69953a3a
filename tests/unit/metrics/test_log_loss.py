# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Log loss, normalized entropy and calibration, in one process."""

import cases
import numpy as np
import pytest
import true_metrics
from frameworks import KERAS_PACKAGES

import keras_parallax as kp

RANDOM = np.random.RandomState(0)
LABELS = (RANDOM.rand(300) < 0.3).astype('float32')
PREDICTIONS = np.clip(0.25 * LABELS + 0.7 * RANDOM.rand(300), 0.01, 0.99).astype('float32')
WEIGHTS = RANDOM.randint(0, 4, 300).astype('float32')
METRICS = {
    'log_loss': kp.metrics.LogLoss,
    'normalized_entropy': kp.metrics.NormalizedEntropy,
    'calibration': kp.metrics.Calibration,
}
every_metric = pytest.mark.parametrize('metric', METRICS)


def evaluated(package, labels, predictions, sample_weight=None, **metrics):
    """What a metric is of labels and predictions, and its name, by a model that hands these on."""
    keras = cases.keras_module(package)
    keras.backend.clear_session()
    with kp.ParallaxStrategy():
        layer = keras.layers.Dense(
            1, use_bias=False, kernel_initializer='identity', input_shape=(1,)
        )
        model = keras.models.Sequential([layer])
        model.compile('sgd', 'mse', **metrics)
    arguments = {'sample_weight': sample_weight, 'verbose': 0, 'batch_size': 64}
    return model.evaluate(predictions[:, None], labels, **arguments)[1], model.metrics_names[1]


@every_metric
@pytest.mark.parametrize('package', KERAS_PACKAGES)
def test_it_is_as_defined(package, metric):
    value, name = evaluated(package, LABELS, PREDICTIONS, metrics=[METRICS[metric]()])
    expected = getattr(true_metrics, metric)(LABELS, PREDICTIONS)
    assert (name, value) == (metric, pytest.approx(expected, rel=1e-5))


@every_metric
def test_tf_keras_weighs_samples(metric):
    metrics = {'weighted_metrics': [METRICS[metric]()]}
    value, _ = evaluated('tf.keras', LABELS, PREDICTIONS, WEIGHTS, **metrics)
    expected = getattr(true_metrics, metric)(LABELS, PREDICTIONS, WEIGHTS)
    assert value == pytest.approx(expected, rel=1e-5)


@every_metric
def test_bad_values_are_refused_with_a_sentence(metric):
    with pytest.raises(kp.DataError, match='metric %s takes labels that are 0 or 1' % metric):
        evaluated(KERAS_PACKAGES[0], LABELS + 1, PREDICTIONS, metrics=[METRICS[metric]()])


def test_certain_predictions_that_are_wrong_cost_what_keras_says():
    value, _ = evaluated(KERAS_PACKAGES[0], np.ones(9), np.zeros(9), metrics=[kp.metrics.LogLoss()])
    assert value == pytest.approx(-np.log(1e-7), rel=1e-5)


def test_labels_of_one_kind_have_no_entropy_and_none_positive_no_calibration():
    for metric in (kp.metrics.NormalizedEntropy(), kp.metrics.Calibration()):
        value, _ = evaluated(KERAS_PACKAGES[0], 0 * LABELS, PREDICTIONS, metrics=[metric])
        assert not np.isfinite(value)
