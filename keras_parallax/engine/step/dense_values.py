# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Gives all workers the same values of what every worker holds."""

from typing import Any, Callable, List, Sequence

from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.engine.session.graph_lock import lock_of
from keras_parallax.engine.step.dynamic_tables import index_frozen
from keras_parallax.engine.step.train_step import TrainStep


def dense_of(step: TrainStep) -> List[tf.Variable]:
    """The dense variables that a `TrainStep` trains, which every worker holds."""
    return [variable for variable in step.spec.variables if variable not in step.tables]


def broadcast(step: TrainStep, root_rank: int, own: Sequence[tf.Variable] = ()) -> None:
    """Gives every worker the values that one worker has. A collective call.

    The values of sharded tables are the job's already.

    Args:
        step: the `TrainStep`.
        root_rank: the worker whose values all get.
        own: variables of which each worker keeps its values.
    """
    _run_collective(step, lambda: step.operations.broadcast(root_rank, own))
    index_frozen(step.spec, step.spec.package.backend.get_session())


def average(step: TrainStep, variables: Sequence[tf.Variable]) -> None:
    """Gives variables, the same on every worker, their mean over the workers. A collective call."""
    _run_collective(step, lambda: step.operations.average(variables))


def _run_collective(step: TrainStep, built: Callable[[], Any]) -> None:
    lock = lock_of(step.spec.loss.graph)
    with lock.held():
        collective, session = built(), step.spec.package.backend.get_session()

        def run(call: Any) -> None:
            # Maybe in a thread of its own, which acts for this one.
            with lock.lent():
                session.run(collective)

        step.job.collective(run)
