# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What Lion keeps and moves."""

from types import SimpleNamespace

import numpy as np
import pytest
from frameworks import tf

from keras_parallax.engine.updates.optimizers import lion


@pytest.mark.parametrize(
    'gradient, mean, direction', [(2.0, 1.0, 1), (-20.0, 1.0, -1), (-2.0, 0.25, 1), (0.0, 0.0, 0)]
)
def test_a_row_moves_by_the_rate_in_the_direction_of_a_mean(gradient, mean, direction):
    with tf.Graph().as_default(), tf.Session() as session:
        decrease, new = lion.formula(
            lion.Hyperparameters(0.5, 0.9, 0.75), tf.constant([gradient]), [tf.constant([mean])]
        )
        found = np.ravel(session.run([decrease] + new))
    expected = [0.5 * direction, 0.75 * mean + 0.25 * gradient]
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_only_keras_3_has_it_and_a_row_without_a_gradient_moves():
    rows = lion.KNOWN.keras3['Lion'](SimpleNamespace(beta_1=0.9, beta_2=0.75))
    assert rows.moves_all_rows and rows.hyperparameters(0.5, 7) == (0.5, 0.9, 0.75)
    assert lion.KNOWN.keras == lion.KNOWN.optimizer_v2 == lion.KNOWN.tensorflow == {}
