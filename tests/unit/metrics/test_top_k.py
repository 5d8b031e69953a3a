# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Precision and recall of the items with the highest predictions, in one process."""

import cases
import numpy as np
import pytest
import true_metrics
from frameworks import KERAS_PACKAGES

import keras_parallax as kp

RANDOM = np.random.RandomState(0)
LABELS = (RANDOM.rand(100, 6) < 0.3).astype('float32')
#: Some are equal.
SCORES = RANDOM.randint(-9, 9, [100, 6]).astype('float32')
METRICS = {'precision_at_k': kp.metrics.PrecisionAtK, 'recall_at_k': kp.metrics.RecallAtK}
every_metric = pytest.mark.parametrize('metric', METRICS)


def evaluated(package, metrics, labels=LABELS, scores=SCORES):
    """What a metric is of a model that hands its inputs on."""
    keras = cases.keras_module(package)
    keras.backend.clear_session()
    with kp.ParallaxStrategy():
        layer = keras.layers.Dense(
            6, use_bias=False, kernel_initializer='identity', input_shape=(6,)
        )
        model = keras.models.Sequential([layer])
        model.compile('sgd', 'mse', metrics=metrics)
    return model.evaluate(scores, labels, verbose=0, batch_size=32)[1]


@every_metric
@pytest.mark.parametrize('package', KERAS_PACKAGES)
@pytest.mark.parametrize('k', [1, 3, 6])
def test_it_is_as_defined(package, metric, k):
    value = evaluated(package, [METRICS[metric](k)])
    assert value == pytest.approx(getattr(true_metrics, metric)(LABELS, SCORES, k), rel=1e-5)


def test_samples_without_right_items_have_no_recall():
    assert np.isnan(evaluated(KERAS_PACKAGES[0], [kp.metrics.RecallAtK(2)], 0 * LABELS))


@every_metric
def test_bad_input_is_refused_with_a_sentence(metric):
    package, make = KERAS_PACKAGES[0], METRICS[metric]
    with pytest.raises(kp.DataError, match='metric %s takes labels that are 0 or 1' % metric):
        evaluated(package, [make(2)], LABELS + 1)
    with pytest.raises(kp.DataError, match='metric %s takes no prediction that is NaN' % metric):
        evaluated(package, [make(2)], LABELS, SCORES * np.nan)
    with pytest.raises(kp.PlanError, match='at least 7 predictions for each sample'):
        evaluated(package, [make(7)])
    with pytest.raises(kp.PlanError, match='a k of at least 1, but got 0'):
        make(0)
