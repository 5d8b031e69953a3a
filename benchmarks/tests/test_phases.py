# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""How a job goes through its phases, without a cluster."""

import threading

import pytest
from measuring import phases


@pytest.mark.parametrize(
    'slowest, warmup, steps', [(0.01, 5, 30), (2.0, 5, 15), (60.0, 2, 5)], ids=str
)
def test_the_slowest_rank_settles_how_many_steps_a_phase_has(slowest, warmup, steps):
    began, seen = [], []

    def step(inputs, target):
        seen.append(inputs)
        return float(target)

    batches = iter([(number, -number) for number in range(100)])
    trained = phases.train(
        step,
        lambda: next(batches),
        lambda value: [value, slowest],
        5,
        30,
        lambda: began.append(len(seen)),
    )
    assert (trained.warmup, trained.steps) == (warmup, steps) and began == [warmup]
    assert seen == list(range(warmup + steps)) and len(trained.seconds) == warmup + steps
    assert trained.losses == [-number for number in seen]


def test_rank_0_waits_for_the_links_in_each_phase(tmp_path):
    path = str(tmp_path / 'seen')
    for phase in range(2):
        assert not phases.is_ready(path, phase)
        rank = threading.Thread(target=phases.wait_for_links, args=(path, phase))
        rank.start()
        while not phases.is_ready(path, phase):
            assert rank.is_alive()
        phases.begin(path, phase)
        rank.join()


def test_a_phase_counts_when_every_rank_has_left_what_it_saw(tmp_path):
    path = str(tmp_path / 'seen')
    for rank in (1, 0):
        assert phases.read(path, 0, 2) is None
        phases.write(path, 0, rank, {'rank': rank})
    assert phases.read(path, 0, 2) == [{'rank': 0}, {'rank': 1}]
    assert phases.read(path, 1, 2) is None
