# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What travels in half precision, as the arguments of an optimizer say."""

import pytest

from keras_parallax.compat.horovod_api import hvd
from keras_parallax.engine.step.optimizer_settings import OptimizerSettings
from keras_parallax.engine.updates.table_optimizers import TableOptimizers

NONE, HALF = hvd.Compression.none, hvd.Compression.fp16


@pytest.mark.parametrize('gradients', [NONE, HALF])
@pytest.mark.parametrize('rows', [NONE, HALF])
def test_gradients_and_pulled_rows_travel_in_half_precision_each_if_it_says_so(gradients, rows):
    settings = OptimizerSettings('name', gradients, rows, 'exact', 'mean', TableOptimizers())
    assert settings.fp16 == (gradients is HALF, rows is HALF)


def test_the_form_of_the_user_is_not_taken_for_half_precision():
    class Own(HALF):
        """A compression of a user's own."""

    settings = OptimizerSettings('name', Own, Own, 'exact', 'mean', TableOptimizers())
    assert settings.fp16 == (False, False)
