# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What training without a barrier refuses."""

from types import SimpleNamespace

import pytest
from any_keras import keras

from keras_parallax.engine.step.asynchronous import check_clipping
from keras_parallax.errors import PlanError


def test_a_norm_of_all_gradients_is_refused_where_ranks_hold_dense_variables():
    clipped = keras.optimizers.SGD(clipnorm=1.0)
    with pytest.raises(PlanError, match='clipvalue'):
        check_clipping(clipped, together=True, dense=['kernel'])
    check_clipping(clipped, together=True, dense=[])
    check_clipping(clipped, together=False, dense=['kernel'])
    check_clipping(keras.optimizers.SGD(clipvalue=1.0), together=True, dense=['kernel'])
    # As the optimizers of Keras 2.4 and later have it.
    with pytest.raises(PlanError, match='global_clipnorm with sync=False'):
        check_clipping(SimpleNamespace(global_clipnorm=1.0), together=False, dense=['kernel'])
