# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Whole reads of tables that have shards: a loss reads all rows, and each has a gradient.

A table that nobody reads whole gets shards. When a later loss reads it whole (a model with tied
weights, or `add_loss`), it stays on them: a whole read is then one more pull, of all rows.
"""

from typing import AbstractSet, Dict, List, Optional, Tuple, cast

from keras_parallax.compat import graph_queries
from keras_parallax.compat.segment_sums import segment_sum
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.engine.step.exchange import RowGradients, sum_by_row
from keras_parallax.engine.step.local_aggregation import HostWorkers
from keras_parallax.engine.tables import sharding
from keras_parallax.engine.tables.exchanged import Exchanged
from keras_parallax.engine.tables.table import Table, as_indices, former_of
from keras_parallax.errors import PlanError
from keras_parallax.framework_types import Gradient, Tensor


def whole_reads(
    tables: List[Table], members: AbstractSet[tf.Operation]
) -> Dict[Exchanged, List[tf.Tensor]]:
    """The whole values of tables with shards that a loss reads, by table; sparse tables alone.

    The loss depends on the operations in `members`.
    """
    found: Dict[Exchanged, List[tf.Tensor]] = {
        table: sharding.wholes_in(table, members)
        for table in tables
        if table.by_row and table.shards
    }
    return {table: values for table, values in found.items() if values}


def require_no_bounds(
    values: Dict[Exchanged, List[tf.Tensor]], gradients: Dict[Tensor, Gradient], size: int
) -> None:
    """Raises `PlanError` if an optimizer clips the gradient of a whole read before it is summed.

    It bounds the gradient of the joined batch, but each of several workers has that of its own.

    Args:
        values: the whole values of tables, as `whole_reads` returns them.
        gradients: dict from values to gradients.
        size: number of workers.
    """
    names = [
        table.name
        for table, of_table in values.items()
        if not gradients.keys().isdisjoint(of_table)
    ]
    if names and size > 1:
        raise PlanError(
            'The optimizer has a bound (clipnorm, clipvalue or global_clipnorm), and the loss '
            'reads %s whole, which is on shards since another loss was trained. With TensorFlow 2, '
            'Keras clips the gradient of such a table as one, but each worker has only its own '
            'part of it. Train the loss that reads the table whole first, or remove the bound.'
            % ', '.join(names)
        )


def joined(
    table: Exchanged,
    values: List[tf.Tensor],
    of_rows: List[RowGradients],
    gradients: Dict[Tensor, Gradient],
    computed: tf.Operation,
) -> RowGradients:
    """The gradients of a table that a loss reads whole, and of which it may look up rows too.

    They are added up as TensorFlow does, so that an optimizer moves the rows that it moves in plain
    Keras: all of them if the gradient of a whole read is a tensor.

    Args:
        table: the `Table`.
        values: its whole values that the loss reads.
        of_rows: the gradients of looked-up rows.
        gradients: dict from values to their gradients, tensors or `IndexedSlices`; not all values
            have one.
        computed: the operation that has run when this worker has all gradients. A whole value that
            a worker reads from its own server is not a copy, so a write must wait for the
            operation.
    """
    of_rows, dense = list(of_rows), []
    for gradient in [gradients[value] for value in values if value in gradients]:
        if isinstance(gradient, tf.IndexedSlices):
            rows = tf.reshape(gradient.values, [-1] + table.row_shape)
            of_rows.append(RowGradients(tf.reshape(gradient.indices, [-1]), rows))
        else:
            dense.append(tf.reshape(gradient, [table.rows] + table.row_shape))
    if dense:
        dense += [segment_sum(rows, as_indices(ids), table.rows) for ids, rows in of_rows]
        dtype = tf.int32 if table.rows <= tf.int32.max else tf.int64
        ids = tf.range(tf.constant(table.rows, dtype), dtype=dtype)
        graph_queries.mark_no_repeats(ids)
        of_rows = [RowGradients(ids, tf.add_n(dense))]
    total = sum_by_row(of_rows)
    with tf.control_dependencies([computed]):
        return total._replace(values=tf.identity(total.values))


def pulled(
    table: Exchanged, values: List[tf.Tensor], host: Optional[HostWorkers]
) -> Tuple[List[tf.Tensor], List[List[tf.Tensor]]]:
    """Has a step read a whole table, once for all workers of a host.

    Args:
        table: the `Table`, or a group of tables that nobody reads whole.
        values: its whole values that the loss reads.
        host: the `HostWorkers` whose leader reads for all its workers, or `None`.

    Returns:
        The tensors that the step reads, and for each that this worker reads from the servers the
        rows of each shard.
    """
    arrived = list(values)
    if values and host is not None and host.shares:
        of_table = cast(Table, table)  # Only tables are read whole.
        whole = former_of(of_table).whole
        if whole in values:
            arrived[values.index(whole)] = host.pull_whole(of_table)
    own = sum(value is read for value, read in zip(values, arrived))
    if host is not None and own < len(values) and host.leads:
        own += 1
    return arrived, own * [[tf.range(shard.rows) for shard in table.planned_shards]]
