# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Calls of Python from what JAX compiles."""

import numpy as np
import pytest

jax = pytest.importorskip('jax')
pytest.importorskip('keras', minversion='3')

from keras_parallax.compat import jax_calls  # noqa: E402

FORM = [((2,), np.float32)]


def test_a_compiled_step_calls_each_time_and_goes_on_with_what_is_returned():
    seen = []

    def act(array, number):
        seen.append((array.copy(), int(number)))
        return [array * 2]

    @jax.jit
    def step(array, number):
        (doubled,) = jax_calls.call(act, [array + 1, number], FORM)
        return doubled + 1

    for number in range(3):
        found = step(np.array([1, 2], np.float32), number)
        assert found.tolist() == [5, 7]
    assert [number for _, number in seen] == [0, 1, 2]
    assert all(array.tolist() == [2, 3] for array, _ in seen)


def test_outside_a_step_the_call_is_made_at_once():
    found = jax_calls.call(lambda array: [array[::-1]], [np.array([1, 2], np.float32)], FORM)
    assert [one.tolist() for one in found] == [[2, 1]]


def test_two_equal_calls_of_a_step_are_two_calls():
    calls = []

    def act(array):
        calls.append(None)
        return [array + len(calls)]

    @jax.jit
    def step(array):
        return [jax_calls.call(act, [array], FORM)[0] for _ in range(2)]

    found = step(np.zeros(2, np.float32))
    assert sorted(one.tolist() for one in found) == [[1, 1], [2, 2]]


def test_jax_knows_of_no_effects_for_which_it_would_dispatch_each_step_in_python():
    @jax.jit
    def step(array):
        return jax_calls.call(lambda one: [one + 1], [array], FORM)[0]

    assert not step.trace(np.zeros(2, np.float32)).jaxpr.effects


def test_an_exception_ends_the_step():
    def act(array):
        raise ValueError('of ours')

    with pytest.raises(Exception, match='of ours'):
        jax.block_until_ready(jax.jit(lambda of: jax_calls.call(act, [of], FORM))(np.zeros(2)))
