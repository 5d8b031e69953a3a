# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Which slots of shards an optimizer has already."""

from typing import Any, List, NamedTuple

from any_keras import keras
from frameworks import TF2, tf

import keras_parallax as kp
from keras_parallax.engine.step.build import last_step_of
from keras_parallax.engine.updates.kept_slots import KeptSlots, MadeSlots, kept_slots_of
from keras_parallax.engine.updates.optimizer_adapter import adapter_of


class Sharded(NamedTuple):
    variable: str
    shards: List[Any]


class Step(NamedTuple):
    optimizer: Any

    @property
    def spec(self):
        return self


def kept_of(optimizer, graph):
    return kept_slots_of(adapter_of(optimizer).keeper, graph)


def test_slots_are_kept_beside_others_for_the_shards_that_a_table_has_now():
    kept, table = KeptSlots({}), Sharded('words', [object(), object()])
    assert not kept.has(table) and kept.of(table) == {}
    MadeSlots(kept, table, {'m': ['m of 0', 'm of 1']}, []).keep()
    MadeSlots(kept, table, {'v': ['v of 0', 'v of 1']}, []).keep()
    assert kept.of(table) == {'m': ['m of 0', 'm of 1'], 'v': ['v of 0', 'v of 1']}
    assert not kept.has(table._replace(shards=[object(), object()]))
    assert not kept.has(Sharded('items', table.shards))


def test_wrappers_of_one_optimizer_have_the_same_slots_in_each_graph():
    tensorflows, first, second = tf.train.AdagradOptimizer(0.1), {}, {}
    one, other = (kp.ParallaxOptimizer(tensorflows) for _ in range(2))
    assert kept_of(one, first) is kept_of(other, first)
    assert kept_of(one, first) is not kept_of(one, second)
    assert kept_of(one, first) is not kept_of(tf.train.AdagradOptimizer(0.1), first)


def test_an_optimizer_of_keras_keeps_slots_where_it_makes_none_anew_for_each_step():
    table = Sharded('words', [object()])
    kept = kept_of(keras.optimizers.Adam(), {})
    kept.keep(table, {'m': ['m of 0']})
    assert kept.has(table) == TF2


def test_the_last_step_of_an_optimizer_is_found_whoever_wraps_it():
    own, tensorflows = keras.optimizers.SGD(), tf.train.AdamOptimizer()
    others = own, own, tensorflows, keras.optimizers.SGD()
    steps = [Step(kp.ParallaxOptimizer(optimizer)) for optimizer in others]
    assert last_step_of(steps[0].optimizer, steps) is steps[1]
    assert last_step_of(kp.ParallaxOptimizer(tensorflows), steps) is steps[2]
    assert last_step_of(kp.ParallaxOptimizer(keras.optimizers.SGD()), steps) is None
