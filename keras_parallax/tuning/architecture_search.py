# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""`architecture='auto'`: finds the fastest architecture while the job trains."""

import statistics
from typing import Callable, Dict, List, Optional, Tuple

import psutil

from keras_parallax.engine.step.dynamic_tables import require_shards
from keras_parallax.engine.step.train_step import TrainStep
from keras_parallax.engine.updates import table_updates
from keras_parallax.errors import PlanError
from keras_parallax.planning import architecture_trials
from keras_parallax.planning.architectures import ALLREDUCE
from keras_parallax.planning.plan import Plan
from keras_parallax.planning.plan_request import Request
from keras_parallax.tuning.moves import replan
from keras_parallax.tuning.partition_search import MEASURED_STEPS, SKIPPED_STEPS


class ArchitectureSearch:
    """Measures the steps of a job by several architectures, and takes the fastest.

    Training goes on meanwhile: weights and slots move along. Collective calls.

    Args:
        step: the `TrainStep`, whose tables and dense variables may move.
        request: what it follows, with the densities that are known, a `plan_request.Request`.
        tell: function that takes the report, on rank 0; `None` on the others.

    Attributes:
        trials: the `architecture_trials.Trials` so far.
    """

    _seconds: List[float]

    def __init__(
        self, step: TrainStep, request: Request, tell: Optional[Callable[[str], None]]
    ) -> None:
        self._step, self._tell = step, tell
        self._options, unfit = _options(step, request)
        free = min(step.job.gather(psutil.virtual_memory().available))
        plans = {name: plan for name, (_, plan) in self._options.items()}
        self._names, left_out = architecture_trials.candidates(plans, free)
        self._seconds = []
        self.trials = architecture_trials.Trials(self._names[0], (), tuple(unfit + left_out))

    def begin(self) -> bool:
        """Follows the first architecture. Returns whether there are others."""
        self._follow(self._names[0], is_over=len(self._names) == 1)
        return not self.trials.is_over

    def end(self) -> None:
        """Stays with the architecture that the step follows."""
        self.trials = self.trials._replace(is_over=True)

    def after_step(self, seconds: float) -> bool:
        """Takes the duration of a training step, and changes the architecture when due.

        Returns whether the search goes on.
        """
        if self.trials.is_over:
            return False
        self._seconds.append(seconds)
        if len(self._seconds) < SKIPPED_STEPS + MEASURED_STEPS:
            return True
        medians = self._step.job.gather(statistics.median(self._seconds[SKIPPED_STEPS:]))
        self._seconds = []
        trial = self.trials.following, sum(medians) / len(medians)
        measured = self.trials.measured + (trial,)
        self.trials = self.trials._replace(measured=measured)
        following = architecture_trials.next_trial(measured, self._names)
        self._follow(
            following or architecture_trials.choose(measured, self._names), following is None
        )
        return not self.trials.is_over

    def _follow(self, name: str, is_over: bool) -> None:
        if name != self.trials.following:
            replan(self._step, *self._options[name])
        self.trials = self.trials._replace(following=name, is_over=is_over)
        if is_over and self._tell is not None:
            self._tell(self.trials.report())


def _options(
    step: TrainStep, request: Request
) -> Tuple[Dict[str, Tuple[Request, Plan]], List[Tuple[str, str]]]:
    """What may be tried: a dict from architectures to requests and plans, and what cannot be."""
    spec = step.spec
    options: Dict[str, Tuple[Request, Plan]] = {}
    unfit: List[Tuple[str, str]] = []
    settings = spec.settings.sparse_update, spec.settings.tables
    for name in architecture_trials.TRIED:
        changed = request._replace(architecture=name)
        if name == ALLREDUCE:
            changed = changed._replace(partitions=None)
        try:
            plan = spec.plan_for(changed)
            require_shards(spec, plan)
            table_updates.require_row_rules(
                plan, spec.optimizer, settings, spec.variables, spec.records
            )
        except PlanError as error:
            unfit.append((name, 'which cannot be: %s' % error))
            continue
        variables = {planned.name: one for planned, one in zip(plan.variables, spec.variables)}
        updates = table_updates.updates_of(
            spec.optimizer,
            settings,
            variables,
            {planned.name for planned in plan.variables if planned.kind == 'sparse'},
            spec.records,
            {planned.name for planned in plan.variables if planned.row_mask},
        )
        options[name] = changed, plan.with_updates(updates)
    return options, unfit
