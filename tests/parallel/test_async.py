# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Asynchronous training: every push is applied, and training converges."""

import contextlib
import os

import launch
import numpy as np
import pytest
from frameworks import KERAS_PACKAGES
from servers import Server, free_port

TIMINGS = ('hybrid', 'ps', 'bound', 'lockstep', 'accumulated')


@pytest.fixture(
    scope='module',
    params=[('tf.keras', 0)] + [('keras', 2)] * ('keras' in KERAS_PACKAGES),
    ids=['tf.keras', 'keras on two dedicated servers'][: len(KERAS_PACKAGES)],
)
def found(request, tmp_path_factory):
    folder, (package, count) = tmp_path_factory.mktemp('async'), request.param
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(Server(free_port(), folder)) for _ in range(count)]
        addresses = [server.address for server in servers]
        timings = {
            item.callspec.params['timing']
            for item in request.session.items
            if item.module is request.module
        }
        outcome = launch.run(
            2,
            'parallel/async_worker.py',
            package,
            folder,
            *addresses,
            environ={'TIMINGS': ' '.join(timings)},
        )
        assert [server.wait() for server in servers] == [0] * count
    assert outcome.code == 0, outcome.output[-5000:]
    return np.load(os.path.join(str(folder), 'found.npz'))


@pytest.mark.parametrize('timing', TIMINGS)
def test_no_push_is_lost_and_none_is_applied_twice(found, timing):
    before, after, counts = found['counts_' + timing]
    np.testing.assert_allclose(after, before - 0.1 * counts, rtol=1e-4, atol=1e-4)
    assert counts.sum() > 50


@pytest.mark.parametrize('timing', TIMINGS)
def test_a_worker_that_waits_for_nobody_tells_the_density_of_its_own_batches(found, timing):
    measured, own = found['density_' + timing]
    assert measured == pytest.approx(own) and 0 < own < 1


@pytest.mark.parametrize('timing', TIMINGS)
def test_ranks_that_do_not_wait_know_how_far_those_are_that_have_told(found, timing):
    (alone, size), first, second = found['progress_' + timing]
    assert (alone, size) == (1, 2)
    ahead = 5 if timing in ('hybrid', 'ps') else 0
    assert second[0] == first[0] + ahead and list(first) == [first[0], 4 * first[0]]


@pytest.mark.parametrize('timing', TIMINGS)
def test_the_watch_takes_a_step_for_a_sign_that_all_are_well_only_if_it_needs_all(found, timing):
    before, tables_alone, with_a_dense_layer = found['began_' + timing]
    assert tables_alone == before
    # Other architectures have dense variables on servers, where nobody waits either.
    assert (with_a_dense_layer > before) == (timing == 'hybrid')


@pytest.mark.parametrize('timing', TIMINGS)
def test_the_loss_falls(found, timing):
    losses = found['losses_' + timing][0]
    assert losses[-1] < losses[0] / 2
