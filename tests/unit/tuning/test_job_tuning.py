# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What a job makes of its first steps: a step is asked to follow another plan, or is left alone."""

import contextlib
from typing import Any, NamedTuple

import pytest

from keras_parallax.planning.classify import VariableUse
from keras_parallax.planning.costs import Cluster
from keras_parallax.planning.plan import make_plan
from keras_parallax.planning.plan_request import Request, Timing
from keras_parallax.planning.search_request import SEARCH, Search
from keras_parallax.tuning import architecture_search, job_tuning, partition_search

NAMES = 'words', 'items', 'users'
TABLES = [VariableUse(name, (1000, 8), 'float32', lookups=1) for name in NAMES]
DENSE = VariableUse('kernel', (1000, 8), 'float32', whole_reads=('MatMul',))
ONE_EACH = dict.fromkeys(NAMES, 1)


class Settings(NamedTuple):
    compression: type = int
    pull_compression: type = int
    sparse_update: str = 'exact'
    tables: Any = None


class Scope:
    must_exchange = False

    def __init__(self):
        self.runs, self.train_steps = self, []


class Spec:
    """A `StepSpec`, as far as tuning knows it."""

    def __init__(self, request, scope):
        self.request, self.scope, self.job = request, scope, self
        self.timing, self.cluster = Timing(), Cluster(2)
        self.optimizer, self.settings = None, Settings()
        self.variables, self.records, self.has_shards = NAMES, {}, True

    def plan_for(self, request):
        return make_plan(TABLES, 2, cluster=self.cluster, **request._asdict())


class Step:
    """A `TrainStep`, as far as tuning knows it; notes in `followed` what it is asked to follow."""

    rank, size, sync, state = 1, 2, True, 'known'
    has_shards, meter = True, None

    def __init__(self, request, remembered=None, scope=None):
        self.spec = Spec(request, scope or Scope())
        self.spec.scope.runs.train_steps.append(self)
        is_search = isinstance(request.partitions, Search)
        self.request = request if is_search else request._replace(partitions=ONE_EACH)
        self.density, self.tables, self.followed, self._known = {}, {'words': 1}, [], remembered
        self.job = self.synchronization = self.operations = self.runs = self

    @property
    def plan(self):
        plan = self.spec.plan_for(self.request)
        shards = {planned.name: planned.shards for planned in plan.variables}
        return plan.as_followed(shards, self.density)

    def replan(self, request, plan=None):
        self.followed.append(request)
        self.request = request

    def follow_all(self, tuned, seconds_of, steps):
        """Trains steps that take as long as a function of the architecture says."""
        for _ in range(steps):
            name = tuned.trials.following if tuned.trials else 'hybrid'
            tuned.after_update(seconds_of(name), False)

    def gather(self, value):
        return [self._known, value]

    def call(self, name):
        return contextlib.ExitStack()


@pytest.fixture(autouse=True)
def no_report(monkeypatch):
    monkeypatch.setattr(job_tuning, 'model_report', lambda plan, *_: [])
    monkeypatch.setattr(architecture_search.table_updates, 'updates_of', lambda *_: {})
    for module in (job_tuning, architecture_search):
        monkeypatch.setattr(module, 'replan', Step.replan)


def measured(step, tuned, **density):
    step.density = density
    tuned.after_update(1.0, True)
    return step.followed


def test_auto_follows_what_was_measured():
    step = Step(Request(architecture='auto', density={'words': 0.1}))
    followed = measured(step, job_tuning.Tuning(step), items=0.9, users=0.2)
    assert followed[0].density == {'words': 0.1, 'items': 0.9, 'users': 0.2}
    assert len(followed) == 1


DENSITIES = dict.fromkeys(NAMES, 0.01)


def trying(**fields):
    step = Step(Request(architecture='auto', density=DENSITIES))
    step.request = step.spec.request
    step.spec.plan_for = lambda request: make_plan(
        [use._replace(shape=(10**5, 64)) for use in TABLES] + [DENSE],
        0 if request.architecture == 'allreduce' else 2,
        cluster=step.spec.cluster,
        **request._asdict(),
    )
    step.gather = lambda value: [value, value]
    vars(step).update(fields)
    step.spec.has_shards = step.has_shards
    return step, job_tuning.Tuning(step)


@pytest.mark.parametrize(
    'seconds, last',
    [
        ({'hybrid': 3, 'ps': 2, 'allreduce': 4}, ['ps', 'allreduce', 'ps']),
        ({'hybrid': 3, 'ps': 4, 'allreduce': 2}, ['ps', 'allreduce']),
        ({'hybrid': 2, 'ps': 3, 'allreduce': 4}, ['ps', 'allreduce', 'hybrid']),
    ],
)
def test_auto_tries_each_architecture_and_goes_back_to_the_fastest(seconds, last):
    step, tuned = trying()
    assert tuned.is_trying
    step.follow_all(tuned, seconds.get, 100)
    assert [request.architecture for request in step.followed] == last and not tuned.is_trying
    assert tuned.trials.is_over and tuned.trials.following == min(seconds, key=seconds.get)
    assert dict(tuned.trials.measured) == seconds


def test_the_mean_of_the_ranks_counts():
    step, tuned = trying()
    # What the other worker has measured.
    follows_ps = lambda: tuned.trials and tuned.trials.following == 'ps'  # noqa: E731
    step.gather = lambda value: [value, 9.0 if follows_ps() else 1]
    step.follow_all(tuned, {'hybrid': 3, 'ps': 1, 'allreduce': 5}.get, 100)
    assert tuned.trials.following == 'hybrid'


@pytest.mark.parametrize(
    'fields, told', [({'state': None}, 'slots cannot move'), ({'size': 1}, ''),
                     ({'has_shards': False}, '')]
)  # fmt: skip
def test_auto_keeps_what_it_has_where_nothing_can_move_and_says_so_once(fields, told, caplog):
    step, tuned = trying(rank=0, **fields)
    step.follow_all(tuned, {'hybrid': 3}.get, 100)
    assert not step.followed and tuned.trials is None
    assert caplog.text.count('architectures are not tried') == bool(told)
    assert told in caplog.text


def test_trials_end_where_another_model_trains_a_dense_variable_too(caplog):
    step, tuned = trying(rank=0)
    step.follow_all(tuned, {'hybrid': 3, 'ps': 2}.get, 15)
    other = Step(Request(), scope=step.spec.scope)
    other.spec.variables = ('kernel',)
    vars(step.spec).update(variables=NAMES + ('kernel',))
    step.follow_all(tuned, {'hybrid': 3, 'ps': 2}.get, 100)
    assert [request.architecture for request in step.followed] == ['ps']
    assert tuned.trials.is_over and 'not tried any more: another model' in caplog.text


def test_without_a_density_nothing_is_tried():
    step, tuned = trying(meter='a meter')
    step.follow_all(tuned, {'hybrid': 3}.get, 100)
    assert tuned.trials is None


def test_auto_stays_where_another_step_trains_a_table_too():
    scope = Scope()
    Step(Request(), scope=scope)
    step = Step(Request(architecture='auto'), scope=scope)
    assert not measured(step, job_tuning.Tuning(step), words=0.1, items=0.9)


@pytest.mark.parametrize('density_of_alone, moves', [(0.01, True), (0.9, False)])
def test_shards_move_if_that_takes_enough_off_the_busiest_server(density_of_alone, moves):
    step = Step(Request())
    by_server = {}
    for planned in step.plan.variables:
        by_server.setdefault(planned.shards[0].server, []).append(planned.name)
    (alone,), together = sorted(by_server.values(), key=len)
    density = dict.fromkeys(together, 0.4)
    followed = measured(step, job_tuning.Tuning(step), **dict(density, **{alone: density_of_alone}))
    assert bool(followed) == moves
    if moves:
        servers = [step.plan[name].shards[0].server for name in together]
        assert set(servers) == {0, 1} and followed[0].partitions == ONE_EACH


def test_without_a_measurement_nothing_is_asked():
    step = Step(Request(architecture='auto'))
    step.meter = "a meter"
    job_tuning.Tuning(step).after_update(1.0, False)
    assert not step.followed


def test_the_choice_of_an_earlier_job_is_followed_at_once():
    step = Step(Request(partitions=Search()), remembered=7)
    tuned = job_tuning.Tuning(step)
    assert [request.partitions for request in step.followed] == [7]
    for _ in range(100):
        tuned.after_update(1.0, False)
    assert len(step.followed) == 1


def test_a_search_tries_numbers_with_the_densities_that_were_measured():
    step = Step(Request(partitions=Search()))
    step.gather = lambda value: [value]
    tuned = job_tuning.Tuning(step)
    for _ in range(partition_search.SKIPPED_STEPS + partition_search.MEASURED_STEPS - 1):
        tuned.after_update(1.0, False)
    (followed,) = measured(step, tuned, words=0.5, items=0.5)
    assert isinstance(followed.partitions, int) and followed.partitions != 2
    assert followed.density == {'words': 0.5, 'items': 0.5}


def test_a_search_for_some_tables_changes_only_those():
    step = Step(Request(partitions=Search({'words': SEARCH, 'items': 3}, least=5)), remembered=7)
    assert [len(planned.shards) for planned in step.plan.variables] == [5, 3, 2]
    job_tuning.Tuning(step)
    assert [len(planned.shards) for planned in step.plan.variables] == [7, 3, 2]


def test_a_search_ends_where_another_model_trains_a_table_too(caplog):
    step = Step(Request(partitions=Search()))
    step.rank = 0
    tuned = job_tuning.Tuning(step)
    Step(Request(), scope=step.spec.scope)
    for _ in range(100):
        tuned.after_update(1.0, False)
    assert not step.followed
    assert caplog.text.count('no search for the best number of shards') == 1
