# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Gradients of rows with Keras 3's JAX backend: a step pushes those that it has computed."""

import numpy as np
import pytest

pytest.importorskip('jax')
pytest.importorskip('keras', minversion='3')

from keras_parallax.compat.keras3_jax import _TICKETS, _Notes  # noqa: E402


def note(number):
    return np.array([number]), np.full((1, 2), number, np.float32)


def ids_of(taken):
    return [int(ids[0]) for ids, _ in taken]


def test_the_sum_of_tickets_takes_the_notes_of_its_lookups_and_no_others():
    notes = _Notes()
    tickets = [notes.add(*note(number)) for number in range(5)]
    assert ids_of(notes.take(float(tickets[1] + tickets[3]))) == [1, 3]
    assert ids_of(notes.take(float(tickets[0] + tickets[2] + tickets[4]))) == [0, 2, 4]
    assert notes.take(0.0) == []


def test_a_gradient_that_was_changed_is_refused():
    notes = _Notes()
    tickets = [notes.add(*note(number)) for number in range(3)]
    for changed in (tickets[0] / 2, tickets[0] * 16, -tickets[1], float('nan'), float('inf')):
        with pytest.raises(ValueError):
            notes.take(float(changed))
    assert ids_of(notes.take(float(sum(tickets)))) == [0, 1, 2]


def test_gradients_that_are_never_applied_make_room_for_others():
    notes = _Notes()
    for number in range(_TICKETS + 3):
        last = notes.add(*note(number))
    assert ids_of(notes.take(float(last))) == [_TICKETS + 2]
