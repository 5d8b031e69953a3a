# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The density of tables, measured over the first steps."""

import pytest
from frameworks import tf

from keras_parallax.engine.job import devices
from keras_parallax.engine.step import density


@pytest.fixture(autouse=True)
def in_a_local_session(monkeypatch):
    monkeypatch.setattr(devices, 'WORKER_JOB', 'localhost')
    with tf.Graph().as_default(), tf.Session():
        yield


class OneTable:
    by_row, rows = True, 100

    def __init__(self, name, by_row=True):
        self.name, self.by_row = name, by_row


def test_a_density_is_the_mean_over_steps_and_ranks():
    session, words = tf.get_default_session(), tf.placeholder(tf.int32, [])
    touched = {'words': words, 'items': tf.constant(2)}
    meter = density.DensityMeter(touched, {'words': 100, 'items': 8}, rank=0)
    session.run(meter.variable.initializer)
    ended = []
    for step in range(density.MEASURED_STEPS):
        session.run(meter.operation, {words: step})
        ended.append(meter.after_step())
    assert ended == [False] * (density.MEASURED_STEPS - 1) + [True]
    another = {'words': 0.255, 'items': 3}
    measured = meter.density(session, lambda own: [own, another])
    # A mean over workers is no larger than the whole table.
    assert measured == {'words': pytest.approx((0.045 + 0.255) / 2), 'items': 1.0}


def test_it_measures_once():
    meter = density.DensityMeter({'words': tf.constant(1)}, {'words': 100}, rank=0)
    ends = [meter.after_step() for _ in range(3 * density.MEASURED_STEPS)]
    assert ends.count(True) == 1


def test_what_is_known_or_not_by_row_is_not_measured():
    tables = [OneTable('words'), OneTable('items'), OneTable('kernel', by_row=False)]
    touched = {'words': tf.constant(1), 'items': tf.constant(1)}
    meter = density.meter_of(tables, {'words': 0.5}, touched, rank=0)
    session = tf.get_default_session()
    session.run(meter.variable.initializer)
    meter.after_step()
    assert meter.density(session, lambda own: [own]) == {'items': 0.0}
    assert density.meter_of(tables, {'words': 0.5, 'items': 0.1}, touched, rank=0) is None
