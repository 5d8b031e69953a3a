# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The momenta of Nadam, whose product only its own updates write."""

from types import SimpleNamespace

import numpy as np
import pytest

from keras_parallax.engine.updates.optimizers import nadam

OPTIONS = SimpleNamespace(beta_1=0.9, beta_2=0.99, epsilon=1e-3)


def momentum(step):
    return 0.9 * (1 - 0.5 * 0.96**step)


@pytest.mark.parametrize('steps', [[1, 2, 3], [3, 1, 2, 3], [3]])
def test_a_step_has_the_product_of_all_momenta_up_to_it_in_whatever_order_steps_are_asked_for(
    steps,
):
    hyperparameters = nadam.KNOWN.keras3['Nadam'](OPTIONS).hyperparameters
    for step in steps:
        of = hyperparameters(0.5, step)
        product = np.prod([momentum(number) for number in range(1, step + 1)])
        ahead = momentum(step + 1)
        expected = [1 - momentum(step), ahead, 1 - product, 1 - product * ahead, 1 - 0.99**step]
        np.testing.assert_allclose(list(of)[-5:], expected, rtol=1e-4)


def test_it_moves_all_rows_and_keeps_numbers_besides_slots():
    of_v2 = nadam.KNOWN.optimizer_v2['Nadam'](OPTIONS)
    assert of_v2.moves_all_rows and of_v2.keeps_numbers
    assert nadam.KNOWN.keras['Nadam'].keeps_numbers
    assert not nadam.KNOWN.keras['Nadam'].exact_if(OPTIONS)
    assert nadam.KNOWN.keras3['Nadam'](OPTIONS).moves_all_rows


def test_that_of_tensorflow_is_not_known_for_it_fails():
    assert nadam.KNOWN.tensorflow == {}
