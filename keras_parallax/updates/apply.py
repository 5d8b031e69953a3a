"""Applies the exchanged gradients to everything that this rank updates, and keeps the slots."""

import contextlib
from typing import Any, Dict, List, NamedTuple, Optional

from keras_parallax.compat import (
    graph_queries,
    keras_api,
    keras_optimizers,
    patches,
    row_updates,
    tensorflow_api,
)
from keras_parallax.compat.tensorflow_api import VARIABLES, tf
from keras_parallax.job import devices
from keras_parallax.tables import sharding
from keras_parallax.tables.table import Table, make_storage
from keras_parallax.updates import table_updates
from keras_parallax.updates.adapter_base import OptimizerState
from keras_parallax.updates.asked_gradients import ExchangedGradients
from keras_parallax.updates.optimizer_adapter import adapter_of
from keras_parallax.updates.optimizer_copies import named
from keras_parallax.updates.shard_slots import slots_for_rows, state_of

#: Two, so that a slot of a single number (Adam without `amsgrad` keeps one) is not taken for rows.
_NOBODYS_ROWS = 2


class TablesOfRank(NamedTuple):
    """The tables of a step, and the parts of them that this rank updates.

    Attributes:
        tables: dict from variables to `Table`s.
        ways: dict from `Table`s to `UpdateWay`s.
        parts: a list of `PartUpdate`s, those of this rank.
        prefix: starts the names of the step's slots, the same on every rank.
        rank, size: this rank, and the number of ranks.
        sync: whether each part is updated by one rank only.
    """

    tables: Dict[Any, Table]
    ways: Dict[Table, table_updates.UpdateWay]
    parts: List[table_updates.PartUpdate]
    prefix: str
    rank: int
    size: int
    sync: bool


class Applied(NamedTuple):
    """The updates of a step.

    Attributes:
        operations: the operations that update.
        own: those of them that the optimizer itself has built.
        synced: dict from names to the variables that every rank must hold the same values of.
        storage: the variables on this rank's server that have to be initialized.
        state: the `OptimizerState`, or `None` if the optimizer's weights are not in Keras's order.
    """

    operations: List[tf.Operation]
    own: List[tf.Operation]
    synced: Dict[str, tf.Variable]
    storage: List[tf.Variable]
    state: Optional[OptimizerState]


class _Pair(NamedTuple):
    """A variable that the optimizer itself updates.

    Attributes:
        variable: the variable.
        gradient: its gradient.
        table: the sharded `Table` that it is of, or `None`.
        shard: number of the shard, or `None` if it is no shard of `table`, but nobody's rows.
    """

    variable: tf.Variable
    gradient: Any
    table: Optional[Table] = None
    shard: Optional[int] = None

    @property
    def of(self):
        """The variable of the model."""
        return self.variable if self.table is None else self.table.variable


class _Group(NamedTuple):
    """What one optimizer updates itself.

    Attributes:
        optimizer: the model's own, wrapped, or that of tables.
        pairs: the `_Pair`s.
        lazy: whether rows without a gradient are to rest.
    """

    optimizer: Any
    pairs: List[_Pair]
    lazy: bool

    @property
    def adapter(self):
        """The `OptimizerAdapter`."""
        return adapter_of(self.optimizer)

    @property
    def variables(self):
        """The variables of the pairs."""
        return [pair.variable for pair in self.pairs]

    @property
    def of_pairs(self):
        """The pairs without what else is known of them."""
        return [(pair.variable, pair.gradient) for pair in self.pairs]


def build_updates(optimizer, keras_updates, variables, dense, of_rank, loss, clip, finite=None):
    """Builds the updates of everything that this rank updates.

    Args:
        optimizer: the wrapped Keras optimizer.
        keras_updates: as `StepSpec` has it.
        variables: the model's trainable variables, in order.
        dense: dict from dense variables to their gradients.
        of_rank: the `TablesOfRank`.
        loss: the model's total loss.
        clip: function from a Keras optimizer, such as one inside `optimizer`, to `dense` and
            `of_rank.parts` as it clips them; gives them as they are if they are clipped already.
            `None` if the optimizer has all gradients to clip.
        finite: a scalar that is not finite in a step that is to be left out, or `None`.

    Returns:
        `Applied`.

    Raises:
        ParallaxError: the formula of a user's optimizer needs what a worker has for itself alone.
    """
    row_slots = {
        table: slots_for_rows(way.optimizer or optimizer, table, way.rule, of_rank.prefix)
        for table, way in of_rank.ways.items()
        if way.rule is not None
    }
    operations, storage = [], []
    for part in of_rank.parts:
        table, number = part.part.table, part.part.shard
        if table in row_slots:
            slots = row_slots[table]
            if table.shards:
                slots = [shards[number] for shards in slots]
                if table.owner_of(table.plan.shards[number]) == of_rank.rank:
                    storage.extend(slots)
            way = of_rank.ways[table]
            operations.extend(
                table_updates.apply_by_row(
                    way.optimizer or optimizer, way.rule, part, slots, of_rank.sync
                )
            )
    pairs = _pairs(variables, dense, of_rank)
    own_group, others = _groups(optimizer, pairs, of_rank.ways)
    since = tensorflow_api.operation_id(tf.no_op())
    adapter = own_group.adapter
    # When a table moves, the slots of one that stays get other storage, too.
    for group in [own_group, *others]:
        of_shards = [pair.variable for pair in group.pairs if pair.table is not None]
        group.adapter.forget_slots(of_shards)
    before = tf.global_variables()
    keras_api.track_variables(keras_api.package_of(optimizer), before)
    alone = of_rank.size == 1 and not any(table.shards for table in of_rank.tables.values())
    as_clipped = clip and (lambda by: _as_clipped(pairs, *clip(by)))
    all_pairs = [(pair.variable, pair.gradient) for pair in pairs]
    exchanged = ExchangedGradients(loss, all_pairs, as_clipped, alone)
    with exchanged.handed_out(), _named_as_tables(pairs), contextlib.ExitStack() as rounding:
        for group in [own_group, *others]:
            inner = keras_optimizers.inner_of(group.optimizer)
            rounding.enter_context(row_updates.rounded(inner, _narrow(inner, group.pairs)))

        def build():
            updates = [
                operation
                for group in others
                for operation in group.adapter.updates_of_tables(
                    loss, group.of_pairs, group.lazy, of_rank.sync
                )
            ]
            with tf.control_dependencies(updates):  # They read the number of the step.
                updates += keras_updates(own_group.of_pairs, of_rank.sync)
            return graph_queries.as_operations(updates)

        if finite is None:
            own = build()
        else:
            updated = [(group.optimizer, group.variables) for group in [own_group, *others]]
            own = adapter.loss_scale.applied_if_finite(finite, updated, build)
    if adapter.takes_rows:
        own += _waited_for(own, since)
    exchanged.check(own, adapter.name, [] if finite is None else [finite])
    operations.extend(own)
    kept_by = [
        group.adapter.kept(before, group.variables, own, exchanged.handed)
        for group in [own_group, *others]
    ]
    kept = kept_by[0]
    # TensorFlow's optimizers keep the slots that they have when they are applied once more.
    slots = {variable: of_all for one in kept_by if one for variable, of_all in one.slots.items()}
    made = [slot for of_variable in slots.values() for slot in of_variable]
    before = [variable for variable in before if variable not in made]
    counters = kept.counters if kept else [optimizer.iterations]
    rates = [
        rate
        for group in [own_group, *others]
        for rate in keras_optimizers.hyperparameters(group.optimizer).values()
        if isinstance(rate, VARIABLES)
    ]
    before += [variable for variable in counters + rates if variable not in before]
    synced = _synced_variables(before, slots, pairs)
    state = state_of(adapter, kept, own_group.pairs, of_rank)
    for group, of_group in zip(others, kept_by[1:]):
        state.slots.update(state_of(group.adapter, of_group, group.pairs, of_rank).slots)
    if any(pair.table is not None for pair in pairs):
        if kept:
            of_shards = [slot for pair in pairs if pair.table for slot in slots[pair.variable]]
        else:
            of_shards = _slots_by_shape(before, synced, pairs)
        for slot in of_shards:
            sharding.forget_variable(slot)
        storage += [slot for slot in of_shards if _owner_of_slot(slot, of_rank) == of_rank.rank]
        storage += [pair.variable for pair in pairs if pair.table and pair.shard is None]
        if not adapter.takes_rows:
            _place_on_servers(pairs, state, since)
    if state is not None:
        state.slots.update({table.variable: slots for table, slots in row_slots.items()})
    return Applied(operations, own, synced, storage, state)


def _groups(optimizer, pairs, ways):
    """What each optimizer updates: the `_Group` of the model's own, and a list of the others'."""
    ways = {table.variable: way for table, way in ways.items()}
    groups, of_others = _Group(optimizer, [], False), {}
    for pair in pairs:
        way = ways.get(pair.of)
        if way is None or way.optimizer is None:
            groups.pairs.append(pair)
            continue
        group = _Group(way.optimizer, [], way.lazy)
        of_others.setdefault(id(way.optimizer), group).pairs.append(pair)
    return groups, list(of_others.values())


def _narrow(optimizer, pairs):
    """What `row_updates.rounded` has to know of shards whose rows are kept in fewer bits."""
    return [
        (
            pair.variable,
            pair.table.dtype,
            table_updates.rounding(optimizer, pair.table, pair.shard),
        )
        for pair in pairs
        if pair.shard is not None and pair.table.is_narrow
    ]


def _waited_for(operations, since):
    """What updates wait for that were built after an operation.

    `apply_gradients` gives the update of its counter alone, which waits for all others, or has them
    waited for by the number that it adds.
    """
    near = operations + [tensor.op for operation in operations for tensor in operation.inputs]
    waited = {other for operation in near for other in operation.control_inputs}
    return [
        operation
        for operation in sorted(waited.difference(operations), key=tensorflow_api.operation_id)
        if tensorflow_api.operation_id(operation) > since
    ]


@contextlib.contextmanager
def _named_as_tables(pairs):
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


def _owner_of_slot(slot, of_rank):
    """The rank that initializes a slot; its own, if it is not on a server."""
    for table in of_rank.tables.values():
        owner = table.servers.owner_on(slot.device) if table.servers else None
        if owner is not None:
            return owner
    return of_rank.rank


def _place_on_servers(pairs, state, since):
    """Puts the optimizer's own updates of shards on the shards' servers.

    The optimizer builds them as it would anywhere. Left on the worker's device, which may be a
    card, a shard and its slots would travel there and back every step.

    Args:
        pairs: the `_Pair`s.
        state: the `OptimizerState`, or `None`: a user's, of which nothing is known. One of
            TensorFlow's places its updates itself.
        since: only operations with a greater id (`tensorflow_api.operation_id`) are placed.
    """
    for pair in pairs:
        if state is None or pair.shard is None:
            continue
        slots = [slot[pair.shard] for slot in state.slots[pair.table.variable]]
        starts = [pair.variable.op, pair.gradient.op] + [slot.op for slot in slots]
        for operation in graph_queries.descendants_by_data(starts, since):
            tensorflow_api.set_device(operation, pair.variable.device)


def _pairs(variables, dense, of_rank):
    """What the optimizer itself updates, as many variables on every rank.

    It names its slots by their number, and Horovod broadcasts variables by name. So a rank with
    fewer parts of a table than another gets rows that are nobody's.
    """
    pairs = []
    for variable in variables:
        if variable in dense:
            pairs.append(_Pair(variable, dense[variable]))
            continue
        table = of_rank.tables[variable]
        if of_rank.ways[table].rule is not None:
            continue
        of_table = [update for update in of_rank.parts if update.part.table is table]
        for part, gradient, _ in of_table:
            tensorflow_api.constrain(part.variable, table.constraint)
            if table.shards:
                pairs.append(_Pair(part.variable, gradient, table, part.shard))
            else:
                pairs.append(_Pair(part.variable, gradient))
        most = max(len(table.parts_of(rank)) for rank in range(of_rank.size))
        for number in range(len(of_table), most):
            shape = [_NOBODYS_ROWS] + table.row_shape
            name = '%s/nobodys_rows_%d' % (table.name, number)
            rows = make_storage(name, devices.shard_device(of_rank.rank), shape, table.dtype)
            pairs.append(_Pair(rows, tf.zeros_like(rows), table))
    return pairs


def _as_clipped(pairs, dense, parts):
    """The gradients of pairs after clipping: a list of those in `dense` and `parts`."""
    clipped = dict(dense)
    clipped.update((update.part.variable, update.gradient) for update in parts)
    return [clipped.get(pair.variable, pair.gradient) for pair in pairs]


def _synced_variables(before, slots, pairs):
    """The variables that every rank must hold the same values of, by a name that ranks share.

    Slots have names of TensorFlow's making, which differ between ranks that own different shards,
    so they go by the name of their variable; slots of shards are nobody else's.
    """
    synced = {variable.name: variable for variable in before}
    for variable in [pair.variable for pair in pairs if pair.table is None]:
        for number, slot in enumerate(slots.get(variable, ())):
            synced['%s.slot_%d' % (variable.name, number)] = slot
    return synced


def _slots_by_shape(before, synced, pairs):
    """What an optimizer of which that is not known has made for shards, by its shape, a list.

    It must not be broadcast: on another rank the variable of the same name is another shard's.
    """
    others = [*before, *synced.values()]
    shapes = [pair.variable.shape.as_list() for pair in pairs if pair.table is not None]
    return [
        variable
        for variable in tf.global_variables()
        if variable not in others and variable.shape.as_list() in shapes
    ]
