"""`architecture='auto'`: finds the fastest architecture while the job trains."""

import statistics

import psutil

from keras_parallax.errors import PlanError
from keras_parallax.planning import trials
from keras_parallax.planning.architectures import ALLREDUCE
from keras_parallax.step.dynamic_tables import require_shards
from keras_parallax.step.partition_search import MEASURED_STEPS, SKIPPED_STEPS
from keras_parallax.updates import table_updates


class ArchitectureSearch:
    """Measures the steps of a job by several architectures, and takes the fastest.

    Training goes on meanwhile: weights and slots move along. Collective calls.

    Args:
        step: the `TrainStep`, whose tables and dense variables may move.
        request: what it follows, with the densities that are known, a `request.Request`.
        tell: function that takes the report, on rank 0; `None` on the others.
    """

    def __init__(self, step, request, tell):
        self._step, self._tell = step, tell
        self._options, unfit = _options(step, request)
        free = min(step.gather(psutil.virtual_memory().available))
        plans = {name: plan for name, (_, plan) in self._options.items()}
        self._names, left_out = trials.candidates(plans, free)
        self._seconds = []
        step.trials = trials.Trials(self._names[0], (), tuple(unfit + left_out))
        self._follow(self._names[0], is_over=len(self._names) == 1)

    def after_step(self, seconds):
        """Takes the duration of a training step, and changes the architecture when due.

        Returns whether the search goes on.
        """
        step = self._step
        if step.trials.is_over:
            return False
        self._seconds.append(seconds)
        if len(self._seconds) < SKIPPED_STEPS + MEASURED_STEPS:
            return True
        medians = step.gather(statistics.median(self._seconds[SKIPPED_STEPS:]))
        self._seconds = []
        trial = step.trials.following, sum(medians) / len(medians)
        measured = step.trials.measured + (trial,)
        step.trials = step.trials._replace(measured=measured)
        following = trials.next_trial(measured, self._names)
        self._follow(following or trials.choose(measured, self._names), following is None)
        return not step.trials.is_over

    def _follow(self, name, is_over):
        step = self._step
        if name != step.trials.following:
            step.replan(*self._options[name])
        step.trials = step.trials._replace(following=name, is_over=is_over)
        if is_over and self._tell is not None:
            self._tell(step.trials.report())


def _options(step, request):
    """What may be tried: a dict from architectures to requests and plans, and what cannot be."""
    spec, options, unfit = step.spec, {}, []
    settings = spec.settings.sparse_update, spec.settings.tables
    for name in trials.TRIED:
        asked = request._replace(architecture=name)
        if name == ALLREDUCE:
            asked = asked._replace(partitions=None)
        try:
            plan = spec.plan_for(asked)
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
        )
        options[name] = asked, plan.with_updates(updates)
    return options, unfit
