# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Saving by the clock of rank 0, with clocks that the test moves on."""

import pytest

from keras_parallax.callbacks.save_clock import SaveClock


class Job:
    """Ranks with a clock each, that train batches together."""

    def __init__(self, seconds, ranks=2):
        self.times, self.looks, self.saves, self.batch = [0.0] * ranks, [], [], 0
        self._clocks = [
            SaveClock(seconds, lambda rank=rank: self.times[rank]) for rank in range(ranks)
        ]
        for clock in self._clocks:
            clock.begin()

    def train(self, batches, seconds):
        """Trains batches of so many seconds; the clock of rank 1 is three times as fast."""
        for _ in range(batches):
            self.batch += 1
            self.times = [time + seconds * (1 + 2 * rank) for rank, time in enumerate(self.times)]
            self._asked = []
            due = [clock.is_due(self._gather) for clock in self._clocks]
            assert len(self._asked) in (0, len(self._clocks)) and len(set(due)) == 1
            self.looks += [self.batch] * bool(self._asked)
            if due[0]:
                self.saves.append(self.batch)
                for clock in self._clocks:
                    clock.restart()

    def _gather(self, value):
        # Rank 0 is the first to ask.
        self._asked.append(value)
        return self._asked[:1]


@pytest.mark.parametrize('seconds, expected', [
    (10.0, [40, 80, 120, 160, 200]), (10.1, [41, 82, 123, 164]), (0.1, list(range(1, 201))),
])  # fmt: skip
def test_all_save_after_the_first_batch_at_which_the_time_is_over_for_rank_0(seconds, expected):
    job = Job(seconds)
    job.train(200, 0.25)
    assert job.saves == expected


def test_the_clock_is_looked_at_seldom():
    job = Job(600.0)
    job.train(120001, 0.0078125)
    assert job.saves == [76800] and len(job.looks) < 40


def test_a_slow_first_batch_delays_no_save():
    job = Job(100.0)
    job.train(1, 30.0)
    job.train(200, 1.0)
    assert job.saves == [71, 171]


def test_batches_that_get_slower_delay_a_save_by_no_more_than_half_the_batches_that_were_left():
    job = Job(100.0)
    job.train(50, 1.0)
    looked = job.looks[-1]
    job.train(200, 4.0)
    assert 63 <= job.saves[0] <= looked + (100 - looked) // 2 + 2


def test_a_clock_that_stands_still_is_no_error():
    job = Job(1.0)
    job.train(3, 0.0)
    assert job.saves == []


def test_beginning_once_more_does_not_set_the_clock_back():
    time = [0.0]
    clock = SaveClock(10.0, lambda: time[0])
    for time[0] in (0.0, 6.0, 12.0):
        clock.begin()
    assert clock.is_due(lambda value: [value])
