# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""How full tables are is told of those whose rows ids are given, and of no others."""

import numpy as np
import pytest

from keras_parallax.planning.classify import VariableUse
from keras_parallax.planning.plan import make_plan
from keras_parallax.planning.row_fill import (
    RowFill,
    capacity_for,
    fill_lines,
    full_words,
    with_fills,
)


def test_a_plan_tells_of_each_table_whose_rows_ids_are_given():
    uses = [VariableUse(name, (9, 2), 'float32', lookups=1) for name in ('users', 'words')]
    plan = with_fills(make_plan(uses, 2), {'users': RowFill(8, 3, 1234, 1231, 0)})
    assert plan['words'].fill is None
    assert fill_lines(plan) == [
        'Rows of users: 3 of 8 rows have an id; 1,234 were given, 1,231 taken away, and 0 times an '
        'id found none'
    ]


@pytest.mark.parametrize('ids, shards', [(50, 2), (1000, 8), (100000, 64), (7, 7)])
def test_a_capacity_has_a_row_for_every_id_however_shards_get_them(ids, shards):
    capacity, random = capacity_for(ids, shards), np.random.RandomState(0)
    most = [np.bincount(random.randint(0, shards, ids)).max() for _ in range(50)]
    assert ids <= capacity and max(most) <= capacity // shards
    assert capacity_for(ids, 1) == ids


def test_a_full_table_is_told_by_its_fullest_shard():
    told = full_words([20, 24], [25, 25], 50)
    assert told.startswith('Shard 1 of its 2 has an id for 24 of 25 rows, the table for 44 of 50.')
    assert 'for 50 ids on 2 shards a capacity of %d' % capacity_for(50, 2) in told
    assert full_words([48], [50], 50) == '48 of its 50 rows have an id.'
