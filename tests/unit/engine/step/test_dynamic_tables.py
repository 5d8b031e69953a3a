# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Plans in which workers would number raw ids alone, or rows change under them, are refused."""

from types import SimpleNamespace

import pytest

from keras_parallax.engine.step.dynamic_tables import require_shards
from keras_parallax.errors import PlanError
from keras_parallax.planning.placement import Shard
from keras_parallax.planning.plan import Plan, PlannedVariable
from keras_parallax.planning.plan_request import Request, Timing

SHARDS = (Shard(0, 9),)
SYNC, ASYNC = Timing(), Timing(False, 1)


class OneVariable:
    """A variable, which may have an index."""


def require(
    kind='sparse',
    shards=SHARDS,
    timing=SYNC,
    exchanges=True,
    has_index=True,
    gives=True,
    evicts=False,
):
    variable = OneVariable()
    if has_index:
        eviction = 'lru' if evicts else None
        variable._parallax_index = SimpleNamespace(gives_rows=gives, eviction=eviction)
    planned = PlannedVariable('users/embeddings', (9, 2), 'float32', kind, 'a reason', shards)
    spec = SimpleNamespace(
        variables=[variable],
        request=Request(),
        timing=timing,
        scope=SimpleNamespace(must_exchange=exchanges),
        records={},
    )
    require_shards(spec, Plan((planned,), 1))


@pytest.mark.parametrize(
    'arguments, said',
    [
        ({'timing': ASYNC, 'evicts': True}, 'an eviction, which does not go with sync=False'),
        ({'shards': ()}, r'it would have none \(a reason\)'),
        ({'kind': 'dense'}, r'it would have none \(a reason\)'),
    ],
)
def test_what_such_a_table_cannot_do_is_refused_unless_one_process_trains(arguments, said):
    with pytest.raises(PlanError, match='users/embeddings is the table of a Dynamic.*' + said):
        require(**arguments)
    require(exchanges=False, **arguments)
    require(has_index=False, **arguments)


@pytest.mark.parametrize('exchanges', [False, True])
def test_a_table_that_gives_no_rows_is_not_trained(exchanges):
    with pytest.raises(PlanError, match='called with trainable=False'):
        require(gives=False, exchanges=exchanges)


@pytest.mark.parametrize(
    'arguments',
    [
        {},
        {'timing': ASYNC},
        {'evicts': True},
    ],
)
def test_other_plans_are_followed(arguments):
    require(**arguments)
