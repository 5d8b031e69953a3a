# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Builds a model's training step: plan, tables, operations, first values."""

from typing import Any, Callable, Dict, List, Optional, Set

from keras_parallax.compat import tensorflow_api
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.engine.session.graph_lock import lock_of
from keras_parallax.engine.step.agreement import check_agreement, model_report
from keras_parallax.engine.step.build_operations import build_operations
from keras_parallax.engine.step.carry_over import take_over
from keras_parallax.engine.step.dense_values import broadcast
from keras_parallax.engine.step.dynamic_tables import index_rows, require_shards
from keras_parallax.engine.step.operations import StepOperations
from keras_parallax.engine.step.step_spec import StepSpec, job_of_strategy, scope_of_strategy
from keras_parallax.engine.step.train_step import TrainStep
from keras_parallax.engine.tables import initial_values, loss_analysis, sharding
from keras_parallax.engine.updates.optimizer_adapter import adapter_of
from keras_parallax.engine.updates.table_updates import require_row_rules
from keras_parallax.framework_types import Optimizer, Variable


def build_step(
    spec: StepSpec,
    check: Callable[[StepSpec, StepOperations], None],
) -> TrainStep:
    """The `TrainStep` of a `StepSpec`, ready to run. A collective call in a job.

    Args:
        spec: what it is built of.
        check: function that may refuse its operations, before any has run.
    """
    with spec.job.call('the first training call of a model'), lock_of(spec.loss.graph).held():
        with tensorflow_api.silent_deprecations():
            step = _build(spec, check)
        take_over(step)
        return step


def _build(spec: StepSpec, check: Callable[[StepSpec, StepOperations], None]) -> TrainStep:
    request = spec.request
    scope, rank, gather = spec.scope, spec.job.rank, spec.job.gather
    if scope is None:  # Otherwise `compile` has done it.
        loss_analysis.settle_functions(spec.loss, spec.variables, spec.records)
    plan = spec.plan_for(request, moves=False)
    plan = sharding.as_they_lie(plan, spec.variables, _held_by_others(spec))
    spec.settings.tables.require_tables(plan, request)
    require_shards(spec, plan)
    row_settings = spec.settings.sparse_update, spec.settings.tables
    require_row_rules(plan, spec.optimizer, row_settings, spec.variables, spec.records)
    sharded = any(planned.shards for planned in plan.variables)
    present: Dict[Variable, bool] = {}
    several = scope is not None and spec.job.size > 1
    if scope:
        scope.sessions.hand_to_keras()
    if sharded:
        sessions = scope_of_strategy(spec).sessions
        sessions.use_server()
        present = sharding.set_aside(spec.variables, plan, sessions.session, sessions.has_seen)
    if several:
        report = model_report(plan, spec.optimizer, spec.settings, [request, spec.timing])
        report.append(('losses divided by numbers of a batch', str(len(spec.parts.terms))))
        check_agreement(gather(report))
    sources = initial_values.value_sources(present, rank, gather) if present else {}
    # Keras initializes what has not been set aside.
    spec.package.backend.get_session()
    tables, fills = sharding.make_tables(spec.loss, spec.variables, plan, sources, scope, rank)
    operations = build_operations(spec, request, tables)
    check(spec, operations)
    step = TrainStep(spec, request, plan, tables, operations)
    initializers = spec.parts.initializers
    if initializers:
        spec.package.backend.get_session().run(initializers)
    if scope:
        scope.runs.note_gate(step.whole_step, step)
        scope.runs.note_train_step(step.whole_step, step)
    if sharded:
        job_of_strategy(spec).process_end.interrupt_on_failure(step.runs)
        operations.initialize(list(fills), list(fills.values()))
        index_rows(fills, scope_of_strategy(spec).session, job_of_strategy(spec))
    elif operations.sums:
        spec.package.backend.get_session().run([sum_.initializer for sum_ in operations.sums])
    if several or sharded:
        broadcast(step, 0)
    return step


def last_step_of(optimizer: Optimizer, steps: List[TrainStep]) -> Optional[TrainStep]:
    """The last of some steps that an optimizer has, wrapped again since or not, or `None`."""

    def attributes_of(one: Any) -> Any:
        # Keras wraps a `tf.train.Optimizer` anew, too.
        return vars(adapter_of(one).keeper or one)

    own = attributes_of(optimizer)
    found = [step for step in steps if attributes_of(step.spec.optimizer) is own]
    return found[-1] if found else None


def _held_by_others(spec: StepSpec) -> Set[tf.Variable]:
    """The variables of other steps, which are to find them where they are."""
    others = spec.scope.runs.train_steps if spec.scope else []
    held = [step for step in others if step.holds_for(spec)]
    return {variable for step in held for variable in step.spec.variables}
