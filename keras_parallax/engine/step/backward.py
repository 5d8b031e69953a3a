# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The backward pass of a training step: what this worker's batch gives."""

import functools
from typing import AbstractSet, Dict, List, NamedTuple, Optional, Sequence, Set, Tuple

from keras_parallax.compat import function_calls, tensorflow_api
from keras_parallax.compat.loss_scaling import LossScale
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.engine.tables import loss_analysis, sharding
from keras_parallax.engine.tables.table import Table
from keras_parallax.framework_types import Gradient, Operation, Tensor, Variable


class Computed(NamedTuple):
    """Gradients of one batch.

    Attributes:
        of_dense: those of the dense variables, tensors or `IndexedSlices`.
        of_outputs: dict from what is looked up or pulled of tables to tensors; of what is pulled or
            read whole to `IndexedSlices` if the loss only looks it up.
        of_rows: dict from tables to lists of those outputs that are rows of theirs.
    """

    of_dense: List[Gradient]
    of_outputs: Dict[tf.Tensor, Gradient]
    of_rows: Dict[Table, List[tf.Tensor]]


def gradients_of(
    loss: Tensor,
    dense: List[Variable],
    tables: Sequence[Table],
    members: AbstractSet[Operation],
    loss_scale: Optional[LossScale] = None,
    parts: int = 1,
) -> Computed:
    """Builds the backward pass.

    Args:
        loss: the model's total loss.
        dense: the dense variables that every worker holds.
        tables: the `Table`s.
        members: the set of operations that the loss depends on.
        loss_scale: the `loss_scaling.LossScale` of the optimizer, or `None`.
        parts: how many batches make the joined batch, whose gradients have the scale.

    Returns:
        A `Computed`.

    Raises:
        ValueError: the loss does not depend on a variable.
    """
    outputs: List[Tuple[Table, Tensor]] = []
    wholes: Set[Tensor] = set()
    for table in tables:
        if not table.by_row:
            outputs.append((table, table.variable.value()))
        elif table.shards:
            pulls = sharding.pulls_in(table, members)
            outputs.extend((table, output) for pull in pulls for output in pull.outputs)
            wholes.update(sharding.wholes_in(table, members))
            outputs.extend((table, value) for value in sharding.wholes_in(table, members))
        else:
            pairs = sharding.lookups_in(table, members)
            outputs.extend((table, output) for _, output in pairs)
    tensors = dense + [output for _, output in outputs]
    gradients = []
    if tensors:
        # As Keras builds them.
        compute = tf.gradients
        if loss_scale is not None:
            compute = functools.partial(loss_scale.gradients, parts=parts)
        gradients = compute(loss, tensors, colocate_gradients_with_ops=True)
    of_dense = [_as_plain(gradient, variable) for gradient, variable in zip(gradients, dense)]
    of_outputs = {
        output: _of_each_row(gradient, output)
        if table.by_row and output not in wholes
        else _as_plain(gradient, table.variable)
        for (table, output), gradient in zip(outputs, gradients[len(dense) :])
        if gradient is not None
    }
    missing = [
        loss_analysis.name_of(variable)
        for variable, gradient in zip(dense, of_dense)
        if gradient is None
    ]
    reached = {table for table, output in outputs if output in of_outputs}
    missing += [table.name for table in tables if table not in reached]
    if missing:
        # Keras says the same of a model whose loss does not depend on a weight.
        raise ValueError(
            'An operation has `None` for gradient: the loss does not depend on %s in a way '
            'that can be differentiated.' % ', '.join(missing)
        )
    of_rows: Dict[Table, List[Tensor]] = {}
    for table, output in outputs:
        if table.by_row and output in of_outputs:
            of_rows.setdefault(table, []).append(output)
    return Computed(of_dense, of_outputs, of_rows)


def _as_plain(gradient: Gradient, variable: Variable) -> Gradient:
    """The gradient of a whole variable, a tensor or `IndexedSlices` as in plain Keras."""
    if isinstance(gradient, tf.IndexedSlices) and function_calls.has_tensor_gradient(variable):
        return tf.convert_to_tensor(gradient)
    return gradient


def _of_each_row(gradient: Gradient, output: Tensor) -> Tensor:
    """The gradient of a lookup's output as a tensor, also if that is looked up again.

    It has a row for each of a batch's; TensorFlow would warn that it may be large.
    """
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient
    with tensorflow_api.colocated_with(gradient.values):
        return tf.unsorted_segment_sum(gradient.values, gradient.indices, tf.shape(output)[0])
