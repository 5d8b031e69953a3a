# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Ids without numbers train where workers apply their gradients as they come."""

import os

import dynamic_async
import launch
import numpy as np
import pytest


@pytest.fixture(scope='module')
def found(tmp_path_factory):
    """What has come of each run, a dict."""
    folder = str(tmp_path_factory.mktemp('dynamic_async'))
    outcome = launch.run(2, 'parallel/dynamic_async_worker.py', folder)
    assert outcome.code == 0, outcome.output[-5000:]
    return {name: np.load(os.path.join(folder, name + '.npz')) for name in dynamic_async.RUNS}


@pytest.mark.parametrize('run', ['hybrid', 'ps'])
def test_each_id_has_one_row_that_has_got_each_push_once(found, run):
    shown, uses = dynamic_async.moves(found[run]), dynamic_async.uses()
    assert set(shown) == set(np.flatnonzero(uses))
    assert np.sum(found[run]['ids'] != dynamic_async.dynamic.NO_ID) == len(shown)
    for number, moves in shown.items():
        np.testing.assert_allclose(moves, uses[number], rtol=0, atol=0.01)


def test_an_id_that_is_admitted_gets_its_own_pushes_and_no_others(found):
    shown, uses = dynamic_async.moves(found['admitted']), dynamic_async.uses()
    assert len(shown) > 20
    for number, moves in shown.items():
        np.testing.assert_allclose(moves, np.round(moves[0]), rtol=0, atol=0.02)
        assert 0 <= np.round(moves[0]) < uses[number]
