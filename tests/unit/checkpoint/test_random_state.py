# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The random state of a worker goes through a checkpoint and draws on."""

import json
import random

import numpy as np
import pytest

from keras_parallax.checkpoint import random_state
from keras_parallax.compat import keras_api


def drawn():
    return [random.random(), random.gauss(0, 1), np.random.random_sample(), np.random.normal()]


def test_both_generators_draw_on_where_they_were_saved():
    # Both keep the second of two normal numbers for the next call.
    random.gauss(0, 1), np.random.normal()
    saved = json.dumps(random_state.current())
    expected = drawn()
    drawn()
    random_state.restore(json.loads(saved))
    assert drawn() == expected


@pytest.mark.parametrize('length, is_used', [(5, True), (4, False), (6, False)])
def test_an_order_is_used_for_as_many_samples_only(length, is_used, monkeypatch):
    order, saved = np.arange(5), np.arange(length)[::-1]
    monkeypatch.setattr(keras_api, 'order_of_samples', lambda: order)
    random_state.restore_order(saved)
    assert list(order) == (list(saved) if is_used else [0, 1, 2, 3, 4])


def test_without_samples_in_an_order_nothing_is_restored(monkeypatch):
    monkeypatch.setattr(keras_api, 'order_of_samples', lambda: None)
    random_state.restore_order(np.arange(3))
