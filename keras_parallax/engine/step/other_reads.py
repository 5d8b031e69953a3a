# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What reads weights in a training step besides the loss: metrics, and updates of layers.

Keras fetches metrics in the run that updates the weights, in no order (Keras 2.2.4, TF 1.11 to
2.21). A metric that reads a weight would see it before, after, or half-way through the update. So
the step writes when such metrics are computed (`tests/parallel/test_gate.py`).
"""

from typing import Any, Iterable, List, Set

from keras_parallax.compat import graph_queries, tensorflow_api
from keras_parallax.compat.keras_api import RunBeside
from keras_parallax.compat.tensorflow_api import tf


def other_reads(loss: tf.Tensor, beside: RunBeside, variables: Iterable[Any]) -> List[tf.Operation]:
    """Operations that have run when all that runs beside a step has read the weights.

    Metrics and updates that read no weights, or read them by the operations of the loss, are left
    out.

    Args:
        loss: the total loss of the model.
        beside: what runs beside the step.
        variables: the variables that the step writes, those of shards among them.
    """
    of_loss = graph_queries.ancestors([loss])
    readers: Set[tf.Operation] = set()
    for variable in variables:
        readers |= graph_queries.memory_readers(tensorflow_api.storage(variable))
    readers -= of_loss

    def reads(tensor: Any) -> bool:
        return not readers.isdisjoint(graph_queries.ancestors([tensor], leaves=of_loss))

    if not readers:
        return []
    fetched = [tensor for tensor in beside.fetched if reads(tensor)]
    run = of_loss | graph_queries.ancestors(beside.fetched)
    written = [value for value in _written(beside.updates, run) if reads(value)]
    return [tensor.op for tensor in fetched + written]


def _written(updates: Iterable[Any], run: Set[tf.Operation]) -> List[tf.Tensor]:
    """The values that updates write, as far as they do not depend on other writes.

    What writes is copied for a step, to wait for the step itself
    (`engine/session/state_updates.py`).
    """
    values = [update[1] for update in updates if isinstance(update, tuple)]
    others = [update for update in updates if not isinstance(update, tuple)]
    for operation in graph_queries.ancestors(others, leaves=run):
        if operation.type in graph_queries.WRITES:
            values.extend(list(operation.inputs)[1:])
    return [
        value
        for value in values
        if not tensorflow_api.is_in_control_flow(value)
        and not any(
            operation.type in graph_queries.WRITES
            for operation in graph_queries.ancestors([value], leaves=run)
        )
    ]
