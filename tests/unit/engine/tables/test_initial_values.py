# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Where start values come from, and how the blocks of several tables share runs."""

import numpy as np
import pytest
from frameworks import tf

from keras_parallax.engine.tables import initial_values
from keras_parallax.engine.tables.initializer_graphs import InitializerGraph


def test_values_that_rank_0_holds_are_copied_and_others_are_made_by_its_initializer():
    with tf.Graph().as_default():
        held, new = [tf.Variable(tf.random_uniform([4, 2])) for _ in range(2)]
        told = []

        def gather(value):
            told.append(value)
            return [value, None]

        sources = initial_values.value_sources({held: np.True_, new: np.False_}, 0, gather)
    assert sources[held] == (True, None)
    assert sources[new].held is False and sources[new].initializer.in_blocks
    # Another worker follows rank 0, as it gets it: by JSON, which makes lists of tuples.
    fields = [None, list(told[0][1])]
    with tf.Graph().as_default():
        variables = [tf.Variable(tf.zeros([4, 2])) for _ in range(2)]
        own = dict.fromkeys(variables, True)
        sources = initial_values.value_sources(own, 1, lambda value: [fields, value])
    assert [sources[variable].held for variable in variables] == [True, True]
    assert [sources[variable].initializer for variable in variables] == [
        None,
        InitializerGraph(*told[0][1]),
    ]


@pytest.mark.parametrize(
    'sizes, limit, expected',
    [
        ([], 10, []),
        ([(1, 4), (1, 4), (1, 4)], 8, [['0.0', '1.0'], ['2.0']]),
        ([(3, 4)], 100, [['0.0'], ['0.1'], ['0.2']]),
        ([(2, 50), (1, 4)], 8, [['0.0'], ['0.1'], ['1.0']]),
        ([(0, 4), (1, 4)], 8, [['1.0']]),
    ],
)
def test_small_blocks_share_a_run_and_those_of_a_table_follow_each_other(sizes, limit, expected):
    fills = [
        initial_values.FillPlan(
            None, None, ['%d.%d' % (table, block) for block in range(count)], size, None
        )
        for table, (count, size) in enumerate(sizes)
    ]
    runs = initial_values.rounds(fills, limit)
    assert [[first for _, first in run] for run in runs] == expected
