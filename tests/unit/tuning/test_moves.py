# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""When tables may move. On workers they do so in `tests/parallel/test_search.py`."""

from typing import Any, NamedTuple

import pytest

from keras_parallax.errors import PlanError
from keras_parallax.planning.plan_request import Request
from keras_parallax.planning.search_request import Search
from keras_parallax.tuning import moves


class Named(NamedTuple):
    name: str = 'Lamb'


class Spec(NamedTuple):
    request: Request
    has_shards: bool = True
    adapter: Named = Named()


class Operations(NamedTuple):
    state: Any = None
    meter: Any = 'a meter'


@pytest.mark.parametrize(
    'wanted, message',
    [
        (
            Request(partitions=Search()),
            "partitions='search' moves .* slots of Lamb .*`partitions`",
        ),
        (Request(architecture='auto'), "architecture='auto' moves .* slots of Lamb .*`density`"),
    ],
)
def test_an_optimizer_whose_slots_are_not_told_apart_cannot_move_tables(wanted, message):
    with pytest.raises(PlanError, match=message):
        moves.check_moves(Spec(wanted), Operations())
    moves.check_moves(Spec(wanted), Operations(state='known'))
    moves.check_moves(Spec(wanted, has_shards=False), Operations())


def test_what_never_moves_needs_no_slots_that_are_told_apart():
    moves.check_moves(Spec(Request(partitions=3)), Operations())
    # Nothing is measured: all densities are given.
    moves.check_moves(Spec(Request(architecture='auto')), Operations(meter=None))


class Step:
    def __init__(self, scope, *tables, state='known'):
        self.spec, self.scope, self.state, self.operations = self, scope, state, self
        self.tables, self.variables = dict.fromkeys(tables), tables + ('kernel',)
        scope.runs.train_steps.append(self)


class Scope:
    def __init__(self):
        self.runs, self.train_steps = self, []


def test_tables_move_if_their_slots_do_and_no_other_step_trains_them():
    scope = Scope()
    step = Step(scope, 'words', 'items')
    Step(scope, 'users')
    assert moves.may_move(step)
    # Dense variables that both train do not keep tables where they are.
    assert not moves.may_move(step, step.variables)
    assert not moves.may_move(Step(scope, 'tags', state=None))
    Step(scope, 'items')
    assert not moves.may_move(step)
