# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The updates of a step, and what every worker must hold the same values of."""

import numpy as np
import pytest
import shards
from any_keras import keras
from frameworks import KERAS_PACKAGES, TF2, tf

import keras_parallax as kp
from keras_parallax.engine.step.train_step import step_of
from keras_parallax.engine.tables.exchanged import OwnedShard
from keras_parallax.engine.tables.table import Table
from keras_parallax.engine.updates.gradient_pairs import TablesOfRank
from keras_parallax.engine.updates.part_updates import PartUpdate
from keras_parallax.engine.updates.step_updates import build_updates
from keras_parallax.engine.updates.table_updates import method_of_table


@pytest.fixture(autouse=True)
def graph():
    keras.backend.clear_session()
    yield
    keras.backend.clear_session()


class Updates:
    """The updates of a model whose table and dense variables have gradients of 1."""

    def __init__(self, optimizer, **wrap):
        with kp.ParallaxStrategy():
            layers = [
                keras.layers.Embedding(7, 2, input_length=3, name='words'),
                keras.layers.Flatten(),
                keras.layers.Dense(1, name='out'),
            ]
            self.model = keras.models.Sequential(layers)
            self.model.compile(
                kp.ParallaxOptimizer(optimizer, keras=KERAS_PACKAGES[0], **wrap), 'mse'
            )
        self.model.train_on_batch(np.zeros([2, 3]), np.ones([2, 1]))
        spec = self.spec = step_of(self.model).spec
        (self.variable, *dense) = spec.variables
        table = Table(self.variable, shards.planned('words/embeddings', (7, 2), ()))
        rows = tf.IndexedSlices(tf.ones([1, 2]), tf.constant([4]), tf.constant([7, 2]))
        self.method = method_of_table(
            spec.optimizer,
            spec.settings.tables,
            spec.settings.sparse_update,
            table.name,
            penalized=False,
            constrained=None,
        )
        of_rank = TablesOfRank(
            {self.variable: table},
            {table: self.method},
            [PartUpdate(OwnedShard(table, self.variable, 0), rows)],
            'step',
            0,
            1,
            True,
            spec.kept_slots,
        )
        gradients = {variable: tf.ones_like(variable) for variable in dense}
        self.dense = dense
        self.applied = build_updates(
            spec.optimizer,
            spec.keras_updates,
            spec.variables,
            gradients,
            of_rank,
            spec.loss,
            lambda by: (gradients, of_rank.parts),
        )

    def run(self):
        """By how much the variables have changed when the updates have run."""
        session = keras.backend.get_session()
        before = session.run(self.spec.variables)
        session.run(self.applied.operations)
        return [new - old for new, old in zip(session.run(self.spec.variables), before)]


def test_dense_variables_and_touched_rows_move_and_the_step_is_counted():
    updates = Updates(keras.optimizers.SGD(0.5))
    count = keras.backend.get_value(updates.model.optimizer.iterations)
    table, *dense = updates.run()
    np.testing.assert_allclose(table, np.where(np.arange(7) == 4, -0.5, 0)[:, None] + np.zeros(2))
    for change in dense:
        np.testing.assert_allclose(change, -0.5, rtol=1e-5)
    assert keras.backend.get_value(updates.model.optimizer.iterations) == count + 1


def test_every_worker_holds_the_same_weights_counters_and_slots():
    updates = Updates(keras.optimizers.Adam(0.5))
    synced, state = updates.applied.synced, updates.applied.state
    assert updates.model.optimizer.iterations in synced.values()
    for variable in updates.dense:
        slots = state.slots[variable]
        assert len(slots) >= 2
        for number, slot in enumerate(slots):
            assert synced['%s.slot_%d' % (variable.name, number)] is slot
        assert synced[variable.name] is variable
    # One process has no shards, and nothing on a server.
    assert updates.applied.storage == updates.applied.held == []


@pytest.mark.skipif(TF2, reason='Keras moves rows itself')
def test_a_table_that_a_rule_moves_has_its_slots_in_the_state_and_no_update_of_its_own():
    updates = Updates(keras.optimizers.Adam(0.5), sparse_update='lazy')
    assert updates.method.rule is not None
    slots = updates.applied.state.slots[updates.variable]
    assert [slot.shape.as_list() for slot in slots] == [[7, 2]] * 2
    own = set(updates.applied.own)
    by_row = [one for one in updates.applied.operations if one not in own]
    assert by_row and updates.applied.operations[: len(by_row)] == by_row
