# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""When gradients that were added up are exchanged, and what observers hear of it."""

import contextlib
from typing import Any, List, NamedTuple

import pytest

from keras_parallax.engine.step.step_observer import StepObserver
from keras_parallax.engine.step.step_runs import StepRuns
from keras_parallax.engine.step.train_step import Synchronization


class Settings(NamedTuple):
    accumulate_steps: int


class Operations:
    """The operations of a step, as far as its runs know them."""

    forget, connections, computed, interruptions = 'forget', ('an edge',), 'computed', ('close',)

    def __init__(self, meter: Any = None) -> None:
        self.meter, self.update = meter, 'update'


class Meter:
    """Has measured after some steps."""

    def __init__(self, steps: int) -> None:
        self._steps = steps

    def after_step(self) -> bool:
        self._steps -= 1
        return self._steps == 0

    def density(self, session: Any, gather: Any) -> Any:
        return {'words': gather(0.25)[0]}


class Hears(StepObserver):
    def __init__(self) -> None:
        self.heard: List[Any] = []

    def note_batch(self, seconds):
        self.heard.append(('batch', seconds))

    def note_rest(self, seconds):
        self.heard.append('rest')

    def after_update(self, seconds, is_measured):
        self.heard.append(('update', seconds, is_measured))


class Step:
    """A `TrainStep` with all that it leads to, which notes what it is asked to run."""

    def __init__(self, accumulate_steps=1, lockstep=True, sync=True, meter=None):
        self.settings, self.ran = Settings(accumulate_steps), []
        self.synchronization = Synchronization(sync, lockstep, True, True)
        self.operations, self.observers = Operations(meter), [Hears()]
        self.spec = self.job = self.scope = self.session = self.package = self.backend = self
        self.sums = self.activity = self
        self.runs = StepRuns(self)

    def get_session(self):
        return self

    def run(self, operation):
        self.ran.append(operation)

    run_known = run

    def function_of(self, operation):
        return lambda: self.ran.append(operation)

    def note_update(self, operation, update):
        self.noted = operation, update

    def require_batches(self, pending, steps):
        self.ran.append((pending, steps))

    def gather(self, value):
        return [value, value]

    def call(self, name):
        return contextlib.ExitStack()

    def step(self, lockstep, is_new):
        return contextlib.ExitStack()


class Noting(Step):
    """One whose scope notes updates, not in the step's own `runs`."""

    def __init__(self, **named):
        super().__init__(**named)
        own, self.scope = self.runs, Scope(self)
        self.runs = own


class Scope:
    def __init__(self, step):
        self.runs = self.session = step


def test_without_accumulation_every_batch_is_an_update():
    step = Noting()
    for seconds in (0.5, 0.25):
        assert step.runs.ends_together
        step.runs.end_batch()
        step.runs.after_run(seconds)
    assert step.ran == [] and step.runs.pending == 0
    assert step.observers[0].heard == [
        ('batch', 0.5), ('update', 0.5, False), ('batch', 0.25), ('update', 0.25, False),
    ]  # fmt: skip


def test_accumulated_batches_are_exchanged_after_the_last_and_only_that_run_ends_together():
    step = Noting(accumulate_steps=3)
    together = []
    for _ in range(6):
        together.append(step.runs.ends_together)
        step.runs.end_batch()
        step.runs.after_run(1.0)
    assert together == [False, False, True] * 2
    assert step.ran == ['update', 'update'] and step.noted[0] == 'update'
    updates = [one for one in step.observers[0].heard if one[0] == 'update']
    assert updates == [('update', 3.0, False)] * 2


def test_what_is_left_of_an_epoch_is_exchanged_once():
    step = Noting(accumulate_steps=3)
    step.runs.end_batch()
    step.runs.after_run(1.0)
    step.runs.apply_rest()
    step.runs.apply_rest()
    assert step.ran == [(1, 3), 'update', (0, 3)] and step.runs.pending == 0
    assert step.observers[0].heard == [('batch', 1.0), 'rest']


def test_what_is_dropped_is_not_exchanged():
    step = Noting(accumulate_steps=3)
    step.runs.end_batch()
    step.runs.drop_pending()
    step.runs.drop_pending()
    step.runs.apply_rest()
    assert step.ran == ['forget', (0, 3)]


@pytest.mark.parametrize('sync, gathered', [(True, 2), (False, 1)])
def test_a_density_is_told_with_the_update_that_follows(sync, gathered, monkeypatch):
    step = Noting(accumulate_steps=2, meter=Meter(1), sync=sync)
    seen = []
    monkeypatch.setattr(
        Meter, 'density', lambda self, _, gather: seen.append(gather(1)) or {'w': 1}
    )
    for _ in range(2):
        step.runs.end_batch()
        step.runs.after_run(1.0)
    assert len(seen[0]) == gathered and step.runs.density == {'w': 1}
    assert step.observers[0].heard[-1] == ('update', 2.0, True)


def test_a_run_is_interrupted_by_what_the_step_has_for_it():
    step = Noting()
    step.runs.interrupt()
    assert step.ran == ['close']
