# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""When what an export predicts counts as what its model does."""

import cases
import numpy as np
import pytest
from frameworks import KERAS_PACKAGES

from keras_parallax.checkpoint import saved_model_check

BIG = np.array([1000.0, 0.0], np.float32)


@pytest.mark.parametrize('expected, other, differing', [
    ([BIG], [BIG + 0.5], None),
    ([BIG], [BIG + 5], (0, 5)),
    ([BIG.astype(np.float16)], [BIG.astype(np.float16) + 5], None),
    ([BIG, BIG], [BIG, -BIG], (1, 2000)),
    ([np.array([1, 2])], [np.array([1, 3])], (0, 1)),
    ([np.zeros(3)], [np.zeros(2)], (0, np.inf)),
    ([np.array([np.nan, 1.0])], [np.array([np.nan, 1.0])], None),
    ([np.array([np.nan, 1.0])], [np.array([0.0, 1.0])], (0, 0)),
    ([np.array([np.inf])], [np.array([np.inf])], None),
])  # fmt: skip
def test_outputs_differ_beyond_what_rounding_does(expected, other, differing):
    assert saved_model_check._differing(expected, other) == differing


@pytest.mark.parametrize('package', KERAS_PACKAGES)
def test_ids_must_be_valid_in_the_smallest_table_that_is_looked_up(package):
    keras = cases.keras_module(package)
    keras.backend.clear_session()
    ids = keras.layers.Input((2,))
    tables = [keras.layers.Embedding(rows, 3)(ids) for rows in (9, 5, 7)]
    model = keras.models.Model(ids, keras.layers.add(tables))
    assert saved_model_check.fewest_rows(model) == 5
    dense = keras.models.Sequential([keras.layers.Dense(2, input_shape=(3,))])
    assert saved_model_check.fewest_rows(dense) is None
