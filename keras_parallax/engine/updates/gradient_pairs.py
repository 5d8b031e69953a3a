# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What optimizers update: which variable with which gradient, and by whose formula."""

import contextlib
from typing import Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from keras_parallax.compat import keras_optimizers, optimizer_v2_rows, patches, tensorflow_api
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.engine.job import devices
from keras_parallax.engine.tables.table import Table, make_storage
from keras_parallax.engine.updates import table_updates
from keras_parallax.engine.updates.adapter_base import OptimizerAdapter
from keras_parallax.engine.updates.kept_slots import KeptSlots
from keras_parallax.engine.updates.optimizer_adapter import adapter_of
from keras_parallax.engine.updates.optimizer_copies import named
from keras_parallax.framework_types import Gradient, Optimizer, Variable

#: Two, so that a slot of a single number (Adam without `amsgrad` keeps one) is not taken for rows.
_NOBODYS_ROWS = 2


class TablesOfRank(NamedTuple):
    """The tables of a step, and the parts of them that this worker updates.

    Attributes:
        tables: dict from variables to `Table`s.
        methods: dict from `Table`s to `UpdateMethod`s.
        parts: a list of `PartUpdate`s, those of this worker.
        prefix: starts the names of the step's slots, the same on every worker.
        rank, size: the rank of this process, and the number of workers.
        sync: whether each part is updated by one worker only.
        kept_slots: function from an optimizer that keeps slots, or `None`, to its `KeptSlots`.
    """

    tables: Dict[Variable, Table]
    methods: Dict[Table, table_updates.UpdateMethod]
    parts: List[table_updates.PartUpdate]
    prefix: str
    rank: int
    size: int
    sync: bool
    kept_slots: Callable[[Optional[Optimizer]], KeptSlots]


class Pair(NamedTuple):
    """A variable that the optimizer itself updates.

    Attributes:
        variable: the variable.
        gradient: its gradient.
        table: the sharded `Table` that it is of, or `None`.
        shard: number of the shard, or `None` if it is no shard of `table`, but nobody's rows.
    """

    variable: tf.Variable
    gradient: Gradient
    table: Optional[Table] = None
    shard: Optional[int] = None

    @property
    def of(self) -> tf.Variable:
        """The variable of the model."""
        return self.variable if self.table is None else self.table.variable


class OptimizerPairs(NamedTuple):
    """What one optimizer updates itself.

    Attributes:
        optimizer: the model's own, wrapped, or that of tables.
        pairs: the `Pair`s.
        lazy: whether rows without a gradient are to rest.
    """

    optimizer: Optimizer
    pairs: List[Pair]
    lazy: bool

    @property
    def adapter(self) -> OptimizerAdapter:
        """The `OptimizerAdapter`."""
        return adapter_of(self.optimizer)

    @property
    def variables(self) -> List[tf.Variable]:
        """The variables of the pairs."""
        return [pair.variable for pair in self.pairs]

    @property
    def of_pairs(self) -> List[Tuple[Variable, Gradient]]:
        """The pairs without what else is known of them."""
        return [(pair.variable, pair.gradient) for pair in self.pairs]


def pairs_of(
    variables: Sequence[tf.Variable], dense: Dict[Variable, Gradient], of_rank: TablesOfRank
) -> List[Pair]:
    """What the optimizer itself updates, as many variables on every worker.

    It names its slots by their number, and Horovod broadcasts variables by name. So a worker with
    fewer parts of a table than another gets rows that are nobody's.
    """
    pairs = []
    for variable in variables:
        if variable in dense:
            pairs.append(Pair(variable, dense[variable]))
            continue
        table = of_rank.tables[variable]
        if of_rank.methods[table].rule is not None:
            continue
        of_table = [update for update in of_rank.parts if update.part.table is table]
        for part, gradient, _ in of_table:
            tensorflow_api.constrain(part.variable, table.constraint)
            if table.shards:
                pairs.append(Pair(part.variable, gradient, table, part.shard))
            else:
                pairs.append(Pair(part.variable, gradient))
        most = max(len(table.parts_of(rank)) for rank in range(of_rank.size))
        for number in range(len(of_table), most):
            shape = [_NOBODYS_ROWS] + table.row_shape
            name = '%s/nobodys_rows_%d' % (table.name, number)
            rows = make_storage(name, devices.shard_device(of_rank.rank), shape, table.dtype)
            if table.constraint is not None:
                # An optimizer may choose its update, and the kind of its slots, by whether there is
                # a constraint. Every worker must choose alike, so these rows have one, too.
                tensorflow_api.constrain(rows, _unconstrained)
            pairs.append(Pair(rows, tf.zeros_like(rows), table))
    return pairs


def _unconstrained(rows: tf.Tensor) -> tf.Tensor:
    return rows


def as_clipped(
    pairs: Sequence[Pair],
    dense: Dict[Variable, Gradient],
    parts: Sequence[table_updates.PartUpdate],
) -> List[Gradient]:
    """The gradients of pairs after clipping: a list of those in `dense` and `parts`."""
    clipped = dict(dense)
    clipped.update((update.part.variable, update.gradient) for update in parts)
    return [clipped.get(pair.variable, pair.gradient) for pair in pairs]


def pairs_by_optimizer(
    optimizer: Optimizer, pairs: Sequence[Pair], methods: Dict[Table, table_updates.UpdateMethod]
) -> List[OptimizerPairs]:
    """What each optimizer updates: a list of `OptimizerPairs`s, that of the model's own first."""
    methods = {table.variable: method for table, method in methods.items()}
    own = OptimizerPairs(optimizer, [], False)
    of_others: Dict[int, OptimizerPairs] = {}
    for pair in pairs:
        method = methods.get(pair.of)
        if method is None or method.optimizer is None:
            own.pairs.append(pair)
            continue
        entry = OptimizerPairs(method.optimizer, [], method.lazy)
        of_others.setdefault(id(method.optimizer), entry).pairs.append(pair)
    return [own, *of_others.values()]


def narrow_of(entry: OptimizerPairs) -> List[optimizer_v2_rows.NarrowRows]:
    """The shards of an entry whose rows are kept in fewer bits than their slots."""
    inner = keras_optimizers.inner_of(entry.optimizer)
    return [
        optimizer_v2_rows.NarrowRows(
            pair.variable,
            pair.table.dtype,
            table_updates.rounding(inner, pair.table, pair.shard),
        )
        for pair in entry.pairs
        if pair.table is not None and pair.shard is not None and pair.table.is_narrow
    ]


@contextlib.contextmanager
def named_as_tables(pairs: Sequence[Pair]) -> Iterator[None]:
    """While open, shards have the names of their tables, by which formulas may go."""
    classes = [(pair.variable, type(pair.variable)) for pair in pairs if pair.table is not None]
    for pair in pairs:
        if pair.table is not None:
            named(pair.variable, pair.table.name + ':0')
    try:
        yield
    finally:
        for variable, cls in classes:
            patches.change_class('tf.Variable.name', variable, cls)
