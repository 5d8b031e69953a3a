"""When tables may move. That they do so rightly is shown by `tests/parallel/test_search.py`."""

from typing import Any, NamedTuple

import pytest

from keras_parallax.errors import PlanError
from keras_parallax.planning.request import SEARCH, Request
from keras_parallax.step import resharding


class Named(NamedTuple):
    name: str = 'Lamb'


class Spec(NamedTuple):
    asked: Request
    has_shards: bool = True
    adapter: Named = Named()


class Operations(NamedTuple):
    state: Any = None
    meter: Any = 'a meter'


@pytest.mark.parametrize(
    'asked, message',
    [
        (Request(partitions=SEARCH), "partitions='search' moves .* slots of Lamb .*`partitions`"),
        (Request(architecture='auto'), "architecture='auto' moves .* slots of Lamb .*`density`"),
    ],
)
def test_an_optimizer_whose_slots_are_not_told_apart_cannot_move_tables(asked, message):
    with pytest.raises(PlanError, match=message):
        resharding.check_moves(Spec(asked), Operations())
    resharding.check_moves(Spec(asked), Operations(state='known'))
    resharding.check_moves(Spec(asked, has_shards=False), Operations())


def test_what_never_moves_needs_no_slots_that_are_told_apart():
    resharding.check_moves(Spec(Request(partitions=3)), Operations())
    # Nothing is measured: all densities are given.
    resharding.check_moves(Spec(Request(architecture='auto')), Operations(meter=None))


class Step:
    def __init__(self, scope, *tables, state='known'):
        self.spec, self.scope, self.state = self, scope, state
        self.tables = dict.fromkeys(tables)
        scope.runs.train_steps.append(self)


class Scope:
    def __init__(self):
        self.runs, self.train_steps = self, []


def test_tables_move_if_their_slots_do_and_no_other_step_trains_them():
    scope = Scope()
    step = Step(scope, 'words', 'items')
    Step(scope, 'users')
    assert resharding.may_move(step)
    assert not resharding.may_move(Step(scope, 'tags', state=None))
    Step(scope, 'items')
    assert not resharding.may_move(step)
