# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""A variable that is exchanged by rows or lives on servers, and the shards that hold its rows."""

from typing import Any, Callable, Dict, List, Optional, Tuple, cast

import numpy as np

from keras_parallax.compat import keras_api, tensorflow_api
from keras_parallax.compat.segment_sums import segment_sum
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.engine.job.server_layout import Servers
from keras_parallax.engine.tables.exchanged import Exchanged, OwnedShard, PartGradient
from keras_parallax.engine.tables.former_interface import FormerInterface
from keras_parallax.engine.tables.pull_data import Connection, Pull
from keras_parallax.engine.tables.sharded_variable import ShardedVariable
from keras_parallax.framework_types import (
    DType,
    Gradient,
    Operation,
    Shape,
    Tensor,
    Variable,
)
from keras_parallax.planning.classify import SPARSE
from keras_parallax.planning.planned_variables import PlannedVariable, Shard


def as_indices(rows: Tensor) -> Tensor:
    """Row numbers as TensorFlow's gathers and sums take them."""
    return rows if rows.dtype == tf.int64 else tf.cast(rows, tf.int32)


class Table(Exchanged):
    """A sparse variable, or a dense one on servers, and all that training needs to know of it.

    Attributes:
        variable: the Keras model's own variable.
        name, rows, row_shape, widths, dtype, stored_dtype, tables, planned_shards, servers: as
            `Exchanged` has them; the name is the variable's without `:0`, and a scalar has one row.
        by_row: whether it is sparse; if not, all of it is pulled, and its whole gradient pushed.
        constraint: a callable, or `None`.
        penalty: with shards, the regularizer's penalty computed on them, a scalar tensor; `None` if
            no loss has it yet.
        former_penalties: the same of shards that the table had before, a list.
        shards: the shard variables, in order; empty if every worker holds the whole table.
        pulls: the `Pull`s of its rows, in every model; if every worker holds a table that had
            shards, they have rows of the worker's own, and else there are none.
        plan: the `PlannedVariable`.
        rank, size: this process's rank, and the number of workers.
        handle: with shards, a resource handle that stands for the table where TensorFlow asks for
            one: as what gradients are with respect to.
        former: with shards, the `former_storage.FormerStorage` of the variable.
    """

    penalty: Optional[Tensor]
    shards: List[Variable]
    pulls: List[Pull]
    handle: Tensor
    former: Optional[FormerInterface]
    plan: PlannedVariable

    def __init__(
        self,
        variable: Variable,
        plan: PlannedVariable,
        record: Any = None,
        servers: Optional[Servers] = None,
        rank: int = 0,
        size: int = 1,
    ) -> None:
        self.variable, self.plan = variable, plan
        self.servers = cast(Servers, servers)  # A table without servers has no shards.
        self.rank, self.size = rank, size
        self.handle = self.former = None
        self.name, self.tables = plan.name, [self]
        self.by_row = plan.kind == SPARSE
        self.rows, self.row_shape = plan.rows, list(plan.shape[1:])
        self.widths = [int(np.prod(self.row_shape))]
        self.dtype = variable.dtype.base_dtype
        # The penalty of a variable that is read whole is part of the loss, as any other read.
        self._record = record if self.by_row else None
        self.constraint = getattr(variable, 'constraint', None)
        self.penalty = None
        self.former_penalties: List[tf.Tensor] = []
        self.shards = []
        self.pulls = []

    def follow(self, planned: PlannedVariable) -> None:
        """Follows another `PlannedVariable`; its shards are yet to be made."""
        self.plan, self.shards = planned, []
        if self.penalty is not None:
            self.former_penalties.append(self.penalty)
            self.penalty = None

    @property
    def regularizer(self) -> Optional[Callable[[tf.Tensor], tf.Tensor]]:
        """The regularizer, or `None`."""
        return self._record.regularizer if self._record else None

    @property
    def penalties(self) -> List[tf.Tensor]:
        """The scalar tensors that the regularizer has returned so far.

        With TensorFlow 2, Keras calls the regularizer again for each loss that it builds
        (`tests/parallel/test_life_cycles.py`, the cases of penalties).
        """
        return list(self._record.penalties) if self._record else []

    @property
    def penalty_terms(self) -> List[tf.Tensor]:
        """The scalar tensors through which the regularizer enters the losses that are trained."""
        if not self.shards:
            return self.penalties
        return [] if self.penalty is None else [self.penalty]

    def gather(self, number: int, rows: Tensor) -> Tensor:
        """As `Exchanged.gather`."""
        return tf.gather(self.shards[number], as_indices(rows))

    def connections(self, pull: Pull, rows: Tensor) -> List[Connection]:
        """As `Exchanged.connections`."""
        return [Connection(pull.rows, rows)]

    def gradients(self, pull: Pull, gradients: Dict[Tensor, Tensor]) -> Tensor:
        """As `Exchanged.gradients`."""
        used = [
            (inverse, tf.reshape(gradients[output], [-1] + self.row_shape))
            for output, inverse in zip(pull.outputs, pull.inverses)
            if output in gradients
        ]
        inverses, values = [tf.concat(column, 0) for column in zip(*used)]
        # The sum is on the card that has the gradients, so that each row leaves it once.
        with tf.device(pull.split.ids.device):
            count = tf.size(pull.split.ids)
        return segment_sum(values, inverses, count, on_card=tensorflow_api.has_card())

    def of_tables(self, part_gradient: PartGradient) -> List[PartGradient]:
        """As `Exchanged.of_tables`."""
        return [part_gradient]

    def parts_of(self, rank: int) -> List[OwnedShard]:
        """As `Exchanged.parts_of`; without shards, each worker's is the whole table."""
        return super().parts_of(rank) if self.shards else [OwnedShard(self, self.variable, 0)]

    @property
    def planned_shards(self) -> Tuple[Shard, ...]:  # type: ignore[override]  # It follows `plan`.
        """The `placement.Shard`s of the plan."""
        return self.plan.shards

    @property
    def stored_dtype(self) -> DType:
        """As `Exchanged` has it."""
        return tf.as_dtype(self.plan.stored_dtype)

    @property
    def is_narrow(self) -> bool:
        """Whether shards hold rows in fewer bits than the model has them."""
        return self.stored_dtype != self.dtype

    def shape_of(self, shard: Shard) -> List[int]:
        """The shape of the variable that holds a `plan.Shard`, a list."""
        return [shard.rows] + self.row_shape if self.plan.shape else []

    @property
    def is_sharded(self) -> bool:
        """Whether the variable is the front of shards."""
        return isinstance(self.variable, ShardedVariable)

    def linked(self, values: Tensor, ids: Optional[Tensor] = None) -> Tensor:
        """Values of the table, such that gradients flow from them to its `handle`.

        They are rows `[n] + row_shape` that were pulled, with their ids `[n]`, or the whole table.
        """
        data = [self.handle] + ([] if ids is None else [ids])
        return tensorflow_api.linked(values, data, _GRADIENT)

    def make_shards(self) -> None:
        """Makes the shard variables, each on its server.

        Every worker names them alike, so that all mean the same storage. They stay out of
        `tf.global_variables()`: Keras would initialize them, and Horovod broadcast them.
        """
        for number, shard in enumerate(self.plan.shards):
            name = '%s/shard_%d' % (self.name, number)
            shape = self.shape_of(shard)
            self.shards.append(make_storage(name, self.device_of(shard), shape, self.stored_dtype))
        if self.handle is None:
            with tf.name_scope(None):
                name = STORAGE + self.name + '/handle'
                self.handle = tensorflow_api.resource_handle(
                    name, list(self.plan.shape), self.dtype
                )


def former_of(table: Table) -> FormerInterface:
    """The former storage of a table that has shards, or has had some."""
    return cast(FormerInterface, table.former)


_GRADIENT = 'ParallaxTable'


@tf.RegisterGradient(_GRADIENT)  # type: ignore[untyped-decorator]  # TensorFlow has no types.
def _gradient_of_table(operation: Operation, gradient: Gradient, *_: Any) -> Tuple[Any, ...]:
    """The gradient of what `Table.linked` returns, with respect to its inputs."""
    if len(operation.inputs) == 2:
        return gradient, gradient
    rows, ids = gradient, operation.inputs[2]
    if isinstance(gradient, tf.IndexedSlices):
        rows, ids = gradient.values, tf.gather(ids, gradient.indices)
    # As `ResourceGather` has it, for whoever wants the gradient as a tensor.
    shape = [size.size for size in operation.inputs[1].op.get_attr('shape').dim]
    return gradient, tf.IndexedSlices(rows, ids, tf.constant(shape, ids.dtype)), None


#: Starts the names of what lies on the servers.
STORAGE = 'parallax/'


def make_storage(
    name: str,
    device: str,
    shape: Shape,
    dtype: DType,
    kind: Callable[..., Variable] = tensorflow_api.UsualVariable,
) -> Variable:
    """Makes a variable of zeros on a device, in no collection: a shard, or a slot of one.

    Every worker gives the same name. Storage that another worker has made must be of the same kind.
    """
    with tf.name_scope(None), tf.device(device):
        variable = kind(
            tensorflow_api.zeros(shape, dtype), trainable=False, collections=[], name=STORAGE + name
        )
    return keras_api.with_shape(variable, shape)


def split_rows(whole: Tensor, table: Table) -> List[Tensor]:
    """Splits a tensor of a table's shape into the rows of each shard, a list."""
    shards = len(table.plan.shards)
    return [whole] if shards == 1 else [whole[number::shards] for number in range(shards)]


def whole_of(table: Table, fresh: bool = False) -> Tensor:
    """Builds a pull of a whole table: its shards, brought together.

    If `fresh`, they are read only when what the caller has this wait for is done.
    """
    parts = [shard.read_value() if fresh else shard.value() for shard in table.shards]
    if len(parts) == 1:
        return tf.cast(tf.identity(parts[0]), table.dtype)
    # As operations: constants of a large table would make the graph as large as a shard.
    rows = [tf.range(number, table.rows, len(parts)) for number in range(len(parts))]
    whole = tf.dynamic_stitch(rows, parts)
    whole.set_shape([table.rows] + table.row_shape)
    return tf.cast(whole, table.dtype)
