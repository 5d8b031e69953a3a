# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What a job learns from its first steps, and does about it: densities, places, architecture."""

from typing import Any, Optional

from keras_parallax.engine.step.agreement import model_report
from keras_parallax.engine.step.density import measures_density
from keras_parallax.engine.step.step_observer import StepObserver
from keras_parallax.engine.step.step_spec import job_of_strategy
from keras_parallax.engine.step.train_step import TrainStep
from keras_parallax.logs import logger
from keras_parallax.planning import architectures, costs, predict
from keras_parallax.planning.architecture_trials import Trials
from keras_parallax.planning.classify import SPARSE
from keras_parallax.planning.plan import Plan
from keras_parallax.planning.plan_request import Request
from keras_parallax.planning.search_request import Search
from keras_parallax.tuning import partition_search
from keras_parallax.tuning.architecture_search import ArchitectureSearch
from keras_parallax.tuning.moves import may_move, replan

#: Shards move if this fraction of the busiest server's share of the row traffic is taken off it.
#: To move them, training stops for about a second, in which the step is built anew and rows are
#: copied. Ten batches tell a density within some per cent, so what looks like less may be nothing.
WORTH_MOVING = 0.2


class Tuning(StepObserver):
    """Has a training step follow better plans. Collective calls, in a job of several workers.

    The `TrainStep` is that of a model in a strategy's scope, before its first run.
    """

    _search: Optional[partition_search.PartitionSearch]
    _architectures: Optional[ArchitectureSearch]

    def __init__(self, step: TrainStep) -> None:
        self._step, self._search, self._architectures = step, None, None
        # One that has no shards from the start has nothing on servers to compare with.
        self.is_trying = (
            step.spec.request.architecture == architectures.AUTO
            and step.spec.has_shards
            and step.job.size > 1
        )
        if isinstance(step.spec.request.partitions, Search):
            with step.job.call('the first training call of a model'):
                self._search = self._begin_search()

    @property
    def trials(self) -> Optional[Trials]:  # type: ignore[override]  # The search changes them.
        """As of `StepObserver`."""
        return None if self._architectures is None else self._architectures.trials

    def _request(self, **changes: Any) -> Request:
        """What the step follows, with the densities that it has measured and with changes."""
        request = self._step.request
        density = dict(request.density or {}, **self._step.runs.density)
        return request._replace(density=density, **changes)

    def _replan(self, count: int) -> None:
        search = self._step.spec.request.partitions
        replan(self._step, self._request(partitions=search.with_count(count)))

    def _begin_search(self) -> Optional[partition_search.PartitionSearch]:
        """The search for the number of shards, or `None`: maybe an earlier job has chosen it."""
        step = self._step
        spec, search = step.spec, step.spec.request.partitions
        # A table that every worker holds has none, whatever their number.
        tables = [
            planned
            for planned in step.plan.variables
            if planned.kind == SPARSE and planned.shards and search.is_for(planned.name)
        ]
        if not tables:
            return None
        most = max(planned.rows for planned in tables)
        report = model_report(step.plan, spec.optimizer, spec.settings, [step.request, spec.timing])
        key = partition_search.cache_key(report, job_of_strategy(spec).cluster)
        # What rank 0 remembers counts.
        known = partition_search.remembered(key, most) if step.job.rank == 0 else None
        known = step.job.gather(known)[0]
        start = max(len(planned.shards) for planned in tables)
        if known is not None:
            if known != start and may_move(step):
                self._replan(known)
            return None
        return partition_search.PartitionSearch(
            self._replan,
            start=start,
            limits=(search.least, most),
            gather=step.job.gather,
            key=key,
            tell=_tell if step.job.rank == 0 else None,
        )

    def after_update(self, seconds: float, is_measured: bool) -> None:
        """As of `StepObserver`."""
        if is_measured and self._architectures is None and self._use_density():
            return
        if self._search is not None and not may_move(self._step):
            if self._step.job.rank == 0:
                logger.info(
                    'no search for the best number of shards: another model trains a table too.'
                )
            self._search = None
        if self._search is not None:
            if not self._search.after_step(seconds):
                self._search = None
        elif self.is_trying and not measures_density(self._step):
            self.is_trying = self._try_architectures(seconds)

    def _try_architectures(self, seconds: float) -> bool:
        """Takes note of a step, where architectures are tried; returns whether that goes on."""
        step, tell = self._step, _tell_architectures if self._step.job.rank == 0 else None
        if not may_move(step, step.spec.variables):
            if tell is not None:
                logger.info(
                    'architectures are not tried%s: %s.',
                    ' any more' if self._architectures else '',
                    "the optimizer's slots cannot move"
                    if step.operations.state is None
                    else 'another model trains a variable too',
                )
            if self._architectures is not None:
                self._architectures.end()
            return False
        if self._architectures is None:
            self._architectures = ArchitectureSearch(step, self._request(), tell)
            return self._architectures.begin()
        return self._architectures.after_step(seconds)

    def _use_density(self) -> bool:
        """Whether the step follows another plan from now on."""
        step = self._step
        if step.request.architecture == architectures.AUTO and may_move(step):
            replan(step, self._request())
            return True
        # A search places by traffic whatever it tries. Another model's step that trains a table
        # too would go on with the old shards.
        if self._search is not None or not (step.synchronization.sync and may_move(step)):
            return False
        plan = step.plan
        shard_counts = {
            planned.name: len(planned.shards) for planned in plan.variables if planned.shards
        }
        request = self._request(partitions=shard_counts)
        shares = [busiest_share(plan), busiest_share(step.spec.plan_for(request))]
        if shares[1] > (1 - WORTH_MOVING) * shares[0]:
            return False
        if step.job.rank == 0:
            logger.info(
                'shards move, so that the busiest server has %.0f %% of the row traffic instead of '
                '%.0f %%.',
                100 * shares[1],
                100 * shares[0],
            )
        replan(step, request)
        return True


def _tell_architectures(report: str) -> None:
    logger.info('architectures were tried.\n%s', report)


def _tell(report: str) -> None:
    logger.info('numbers of shards were tried.\n%s', report)


def busiest_share(plan: Plan) -> float:
    """The share of the row traffic that the busiest server of a `Plan` has, from 0 to 1."""
    loads = predict.server_loads(plan, plan.cluster or costs.Cluster())
    return max([load.traffic_share or 0.0 for load in loads] + [0.0])
