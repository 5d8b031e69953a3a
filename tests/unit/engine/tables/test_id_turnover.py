# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Ids get rows and lose them as a model in plain Python says, in any number of shards."""

import contextlib

import numpy as np
import pytest
import turnover
from frameworks import TF2, tf

from keras_parallax.engine.tables import id_part, id_turnover
from keras_parallax.engine.tables.id_index import IdIndex
from keras_parallax.engine.tables.id_part import NO_ID
from keras_parallax.engine.tables.id_policies import Admission, Eviction

STEPS = 60


class Job:
    """A table in one process: a step looks ids up, and then ends.

    Args:
        rows: how many rows ids may have.
        admission, eviction: as `IdIndex` takes them.
    """

    def __init__(self, rows, admission=None, eviction=None):
        whole = rows + (admission is not None)
        self.table = tf.Variable(tf.zeros([whole, 2]), use_resource=TF2)
        self.slot = tf.Variable(tf.fill([whole, 2], 0.5), use_resource=TF2)
        self.beside = {
            name: tf.Variable(
                tf.fill([whole] + shape, tf.constant(begin, tf.int64)), use_resource=TF2
            )
            for name, shape, begin in (
                ('ids', [], NO_ID), ('last_steps', [], -1), ('steps_used', [], 0),
                ('candidates', [2], 0),
            )
        }  # fmt: skip
        self.index = IdIndex(self.table, self.beside, _begin, admission, eviction)
        self.ids, self.training = (
            tf.placeholder(tf.int64, [None]),
            tf.placeholder_with_default(True, []),
        )
        self.rows = self.index.rows_of(self.ids, self.training)
        part = self.index.parts[0]
        known = tf.boolean_mask(self.rows, self.rows >= 0)
        moved = tf.scatter_add(self.slot, known, tf.ones([tf.size(known), 2]))
        self.end = id_turnover.turned_over(self.index, part, [(self.slot, 0.5)], [moved])
        self.numbers = [part.number_of(number) for number in id_part.NUMBERS]
        self.rebuilt = self.index.rebuilt()
        self.session = tf.Session()
        self.session.run(tf.global_variables_initializer())

    def step(self, ids):
        return self.session.run([self.rows, self.end], {self.ids: ids})[0]

    def known(self):
        """The ids that have rows, a dict to their rows, slots, last steps and numbers of steps."""
        given, rows, slots, last, used = self.session.run(
            [
                self.beside['ids'],
                self.table,
                self.slot,
                self.beside['last_steps'],
                self.beside['steps_used'],
            ]
        )
        return {
            id_: (rows[place], slots[place], last[place], used[place])
            for place, id_ in enumerate(given.tolist())
            if id_ != NO_ID
        }


def _begin(ids):
    return tf.stack([tf.to_float(ids), -tf.to_float(ids)], 1)


@contextlib.contextmanager
def job(*arguments, **named):
    with tf.Graph().as_default():
        made = Job(*arguments, **named)
        with made.session:
            yield made


def batches(seed, different, size):
    """Batches of ids, each once: some often, others seldom."""
    random = np.random.RandomState(seed)
    names = np.unique(random.randint(-(2**62), 2**62, different, dtype=np.int64))
    for _ in range(STEPS):
        yield np.unique(names[(random.zipf(1.3, size) - 1) % len(names)])


@pytest.mark.parametrize(
    'admission, eviction',
    [
        ({'min_count': 2}, None),
        ({'min_count': 4}, None),
        ({'probability': 0.3}, None),
        ({'min_count': 3, 'probability': 0.5}, None),
        ({'min_count': 2}, {'policy': 'lru'}),
        ({'min_count': 3}, {'policy': 'lfu', 'max_age_steps': 7}),
        (None, {'policy': 'lru'}),
        (None, {'policy': 'lfu'}),
        (None, {'policy': 'lru', 'max_age_steps': 5}),
    ],
    ids=str,
)
def test_ids_have_rows_as_the_model_in_python_says(admission, eviction):
    rows = 60 if eviction else 500
    expected = turnover.Part(
        rows,
        rows + (admission is not None),
        policy=eviction and eviction['policy'],
        max_age=eviction and eviction.get('max_age_steps'),
        **(admission or {}),
    )
    policies = admission and Admission(**admission), eviction and Eviction(**eviction)
    with job(rows, *policies) as made:
        for ids in batches(1, 400, 25):
            made.step(ids)
            expected.step(ids.tolist())
            found = made.known()
            assert set(found) == set(expected.known)
            if eviction:
                uses = {id_: of_id[2:] for id_, of_id in found.items()}
                if eviction['policy'] == 'lru':
                    assert {id_: use[0] for id_, use in uses.items()} == {
                        id_: use[0] for id_, use in expected.known.items()
                    }
                else:
                    assert uses == expected.known
            for id_, (row, slot, _, _) in found.items():
                np.testing.assert_array_equal(row, np.float32([id_, -id_]))
                # The slot knows of this id's steps alone.
                assert slot[0] % 1 == 0.5
        numbers = made.session.run(made.numbers)
        assert numbers[id_part.EVICTED] == expected.evicted
        assert numbers[id_part.LEFT_OUT] == expected.left_out
        assert numbers[id_part.CLOCK] == STEPS
        assert len(found) > 10 and (not eviction or expected.evicted > 20)
        # What the weights say is enough to go on.
        made.session.run(made.rebuilt)
        ids = np.array(sorted(found))
        place = made.session.run(made.rows, {made.ids: ids, made.training: False})
        np.testing.assert_array_equal(made.session.run(made.beside['ids'])[place], ids)


def test_a_slot_begins_anew_when_another_id_gets_its_row():
    with job(4, eviction=Eviction()) as made:
        for step in range(12):
            made.step([100 + step])
        found = made.known()
        assert len(found) < 5
        assert {slot[0] for _, slot, _, _ in found.values()} == {1.5}


def test_ids_that_have_lost_their_rows_are_forgotten_in_the_end(monkeypatch):
    monkeypatch.setattr(id_turnover, '_FORGOTTEN_TOO_MANY', 10)
    with job(10, eviction=Eviction()) as made:
        size = made.index.parts[0].table.size()
        for step in range(80):
            made.step([step])
            assert made.session.run(size) <= 10 * 2 + 10 + 2
        assert sorted(made.known()) == list(range(80 - len(made.known()), 80))


def test_an_admitted_id_without_a_row_is_told_by_the_next_step():
    # Each is counted in a place of its own.
    ids = [
        next(id_ for id_ in range(99) if turnover.homes([id_], 3)[0] == home) for home in range(3)
    ]
    with job(2, Admission(min_count=2)) as made:
        for _ in range(2):
            assert (made.step(ids) == -1).all()
        assert sorted(made.step(ids)) == [-2, 0, 1]
        # In a prediction it has just no row.
        rows = made.session.run(made.rows, {made.ids: ids, made.training: False})
        assert sorted(rows) == [-1, 0, 1]


def test_new_ids_that_find_no_row_are_counted_and_get_one_later():
    with job(5, eviction=Eviction()) as made:
        made.step([1, 2, 3])
        assert (made.step([4, 5, 6]) >= 0).sum() == 2
        assert made.session.run(made.numbers)[id_part.LEFT_OUT] == 1
        assert (made.step([4, 5, 6]) >= 0).all()
