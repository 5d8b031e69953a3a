"""The backward pass of a training step: what this rank's batch gives."""

import functools
from typing import Any, Dict, List, NamedTuple

from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.tables import loss_analysis, sharding


class Computed(NamedTuple):
    """Gradients of one batch.

    Attributes:
        of_dense: those of the dense variables, tensors or `IndexedSlices`.
        of_outputs: dict from what is looked up or pulled of tables to tensors.
        of_rows: dict from tables to lists of those outputs that are rows of theirs.
    """

    of_dense: List[Any]
    of_outputs: Dict[tf.Tensor, tf.Tensor]
    of_rows: Dict[Any, List[tf.Tensor]]


def gradients_of(loss, dense, tables, members, loss_scale=None, parts=1):
    """Builds the backward pass.

    Args:
        loss: the model's total loss.
        dense: the dense variables that every rank holds.
        tables: the `Table`s.
        members: the set of operations that the loss depends on.
        loss_scale: the `loss_scaling.LossScale` of the optimizer, or `None`.
        parts: how many batches make the joined batch, whose gradients have the scale.

    Returns:
        A `Computed`.

    Raises:
        ValueError: the loss does not depend on a variable.
    """
    outputs = []
    for table in tables:
        if not table.by_row:
            outputs.append((table, table.variable.value()))
        elif table.shards:
            pulls = sharding.pulls_in(table, members)
            outputs.extend((table, output) for pull in pulls for output in pull.outputs)
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
    of_dense = gradients[: len(dense)]
    of_outputs = {
        output: _of_each_row(gradient, output)
        for (_, output), gradient in zip(outputs, gradients[len(dense) :])
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
    of_rows = {}
    for table, output in outputs:
        if table.by_row and output in of_outputs:
            of_rows.setdefault(table, []).append(output)
    return Computed(of_dense, of_outputs, of_rows)


def _of_each_row(gradient, output):
    """The gradient of a lookup's output as a tensor, also if that is looked up again.

    It has a row for each of a batch's; TensorFlow would warn that it may be large.
    """
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient
    with tf.colocate_with(gradient.values):
        return tf.unsorted_segment_sum(gradient.values, gradient.indices, tf.shape(output)[0])
