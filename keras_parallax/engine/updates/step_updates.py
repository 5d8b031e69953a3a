# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Applies the exchanged gradients to everything that this worker updates, and keeps the slots."""

import functools
from typing import (
    Any,
    Callable,
    Dict,
    Iterable,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
    cast,
)

from keras_parallax.compat import (
    graph_queries,
    keras_api,
    keras_optimizers,
    tensorflow_api,
)
from keras_parallax.compat.loss_scaling import LossScale
from keras_parallax.compat.tensorflow_api import VARIABLES, tf
from keras_parallax.engine.tables.table import Table
from keras_parallax.engine.updates import table_updates
from keras_parallax.engine.updates.adapter_base import OptimizerState
from keras_parallax.engine.updates.gradient_pairs import (
    OptimizerPairs,
    Pair,
    TablesOfRank,
    as_clipped,
    named_as_tables,
    narrow_of,
    pairs_by_optimizer,
    pairs_of,
)
from keras_parallax.engine.updates.kept_slots import MadeSlots
from keras_parallax.engine.updates.optimizer_v2_adapters import OptimizerV2Adapter
from keras_parallax.engine.updates.part_updates import PartUpdate
from keras_parallax.engine.updates.requested_gradients import ExchangedGradients
from keras_parallax.engine.updates.shard_slots import slots_for_rows, state_of, stored_slots
from keras_parallax.framework_types import Gradient, Operation, Optimizer, Tensor, Variable


class Applied(NamedTuple):
    """The updates of a step.

    Attributes:
        operations: the operations that update.
        own: those of them that the optimizer itself has built.
        synced: dict from names to the variables that every worker must hold the same values of.
        storage: the variables on this worker's server that have to be initialized.
        held: those of all slots, and others that the updates need there: `storage`, and what
            earlier steps have initialized.
        state: the `OptimizerState`, or `None` if the optimizer's weights are not in Keras's order.
        made: a list of the `MadeSlots`, which are kept when they are initialized.
    """

    operations: List[tf.Operation]
    own: List[tf.Operation]
    synced: Dict[str, tf.Variable]
    storage: List[tf.Variable]
    held: List[tf.Variable]
    state: Optional[OptimizerState]
    made: List[MadeSlots]


def build_updates(
    optimizer: Optimizer,
    keras_updates: Callable[..., List[Any]],
    variables: Sequence[Variable],
    dense: Dict[Variable, Gradient],
    of_rank: TablesOfRank,
    loss: Tensor,
    clip: Optional[Callable[[Optimizer], Tuple[Dict[Variable, Gradient], List[PartUpdate]]]],
    finite: Optional[Tensor] = None,
) -> Applied:
    """Builds the updates of everything that this worker updates.

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
    row_slots = _slots_by_row(optimizer, of_rank)
    operations, storage = _updated_by_row(optimizer, of_rank, row_slots)
    pairs = pairs_of(variables, dense, of_rank)
    per_optimizer = pairs_by_optimizer(optimizer, pairs, of_rank.methods)
    since = tensorflow_api.operation_id(tf.no_op())
    _forget_without_storage(per_optimizer, of_rank)
    before = tf.global_variables()
    keras_api.track_variables(keras_api.package_of(optimizer), before)
    exchanged = _exchanged(pairs, loss, clip, of_rank)
    own = _updated_by_optimizers(
        per_optimizer, loss, exchanged, keras_updates, of_rank, finite, since
    )
    found = _slots_of(per_optimizer, before, own, exchanged.handed)
    others = _others_of(optimizer, per_optimizer, before, found)
    synced = _synced_variables(others, found.slots, pairs)
    states = [
        state_of(entry.adapter, kept, entry.pairs, of_rank)
        for entry, kept in zip(per_optimizer, found.kept)
    ]
    state, made = states[0].state, [one for of_group in states for one in of_group.made]
    held = list(storage)
    if any(pair.table is not None for pair in pairs):
        slots = found.slots
        untold = []
        if found.kept[0] is None:
            slots, untold = {}, _slots_by_shape(others, synced, pairs)
        stored, new = stored_slots(pairs, slots, untold, made, of_rank)
        nobodys = [pair.variable for pair in pairs if pair.table and pair.shard is None]
        held += stored + nobodys
        storage += new + nobodys
        for entry in per_optimizer:
            entry.adapter.forget_slots(nobodys)
        if not per_optimizer[0].adapter.takes_rows:
            _place_on_servers(pairs, state, since)
    if state is not None:
        for of_group in states[1:]:
            if of_group.state is not None:
                state.slots.update(of_group.state.slots)
        state.slots.update({table.variable: slots for table, slots in row_slots.items()})
    return Applied(operations + own, own, synced, storage, held, state, made)


def _slots_by_row(optimizer: Optimizer, of_rank: TablesOfRank) -> Dict[Table, List[Any]]:
    """The slots of tables that a rule moves row by row: dict from `Table`s to lists."""
    return {
        table: slots_for_rows(method.optimizer or optimizer, table, method.rule, of_rank.prefix)
        for table, method in of_rank.methods.items()
        if method.rule is not None
    }


def _updated_by_row(
    optimizer: Optimizer, of_rank: TablesOfRank, row_slots: Mapping[Table, List[Any]]
) -> Tuple[List[Operation], List[Variable]]:
    """The updates of parts that a rule moves row by row, and the slots that this worker stores."""
    operations, storage = [], []
    for part in of_rank.parts:
        table, number = part.part.table, part.part.shard
        method = of_rank.methods[table]
        if method.rule is None:
            continue
        slots = row_slots[table]
        if table.shards:
            slots = [shards[number] for shards in slots]
            if table.owner_of(table.plan.shards[number]) == of_rank.rank:
                storage.extend(slots)
        operations.extend(
            table_updates.apply_by_row(
                method.optimizer or optimizer, method.rule, part, slots, of_rank.sync
            )
        )
    return operations, storage


def _forget_without_storage(per_optimizer: Iterable[OptimizerPairs], of_rank: TablesOfRank) -> None:
    """Forgets slots of shards that a step has left which could not be built."""
    for entry in per_optimizer:
        known = of_rank.kept_slots(entry.adapter.keeper)
        entry.adapter.forget_slots(
            [pair.variable for pair in entry.pairs if pair.table and not known.has(pair.table)]
        )


def _exchanged(
    pairs: Sequence[Pair],
    loss: Tensor,
    clip: Optional[Callable[[Optimizer], Tuple[Dict[Variable, Gradient], List[PartUpdate]]]],
    of_rank: TablesOfRank,
) -> ExchangedGradients:
    """The `ExchangedGradients` that optimizers are handed when they ask for gradients."""
    alone = of_rank.size == 1 and not any(table.shards for table in of_rank.tables.values())
    clipped = None if clip is None else functools.partial(_clipped, pairs, clip)
    all_pairs = [(pair.variable, pair.gradient) for pair in pairs]
    return ExchangedGradients(loss, all_pairs, clipped, alone)


def _clipped(
    pairs: Sequence[Pair],
    clip: Callable[[Optimizer], Tuple[Dict[Variable, Gradient], List[PartUpdate]]],
    by: Optimizer,
) -> List[Any]:
    """The gradients of pairs as an optimizer clips them."""
    return as_clipped(pairs, *clip(by))


def _updated_by_optimizers(
    per_optimizer: Sequence[OptimizerPairs],
    loss: Tensor,
    exchanged: ExchangedGradients,
    keras_updates: Callable[..., List[Any]],
    of_rank: TablesOfRank,
    finite: Optional[Tensor],
    since: int,
) -> List[Operation]:
    """The updates that the optimizers build themselves, a list of operations.

    Args:
        per_optimizer: the `OptimizerPairs`s, that of the model's own optimizer first.
        loss: the model's total loss.
        exchanged: the `ExchangedGradients`.
        keras_updates: as of `build_updates`.
        of_rank: as of `build_updates`.
        finite: as of `build_updates`.
        since: only operations with a greater id are of the step.
    """
    own_entry, *others = per_optimizer
    adapter = own_entry.adapter

    def build() -> List[Operation]:
        updates = [
            operation
            for entry in others
            for operation in _of_tables(entry).updates_of_tables(
                loss, entry.of_pairs, entry.lazy, of_rank.sync, narrow_of(entry)
            )
        ]
        with tf.control_dependencies(updates):  # They read the number of the step.
            updates += keras_updates(own_entry.of_pairs, of_rank.sync, narrow_of(own_entry))
        return graph_queries.as_operations(updates)

    def make_slots() -> None:
        for entry in per_optimizer:
            _of_tables(entry).make_slots(entry.variables, narrow_of(entry))

    pairs = [pair for entry in per_optimizer for pair in entry.pairs]
    with exchanged.handed_out(), named_as_tables(pairs):
        if finite is None:
            own = build()
        else:
            loss_scale = cast(LossScale, adapter.loss_scale)  # `finite` comes from it.
            own = loss_scale.applied_if_finite(finite, make_slots, build)
    if adapter.takes_rows:
        own += _waited_for(own, since)
    given = [] if finite is None else [finite]
    exchanged.check(own, adapter.name, [*given, *adapter.fed])
    return own


def _of_tables(entry: OptimizerPairs) -> OptimizerV2Adapter:
    """The adapter of an entry, which makes slots or moves tables for another optimizer."""
    return cast(OptimizerV2Adapter, entry.adapter)  # Only they have other entries.


class _Found(NamedTuple):
    """The slots that optimizers have made for the variables of their pairs.

    Attributes:
        kept: of each `OptimizerPairs` what its adapter says of them, or `None`.
        slots: those of all optimizers, a dict from variables to lists.
    """

    kept: List[Any]
    slots: Dict[tf.Variable, List[tf.Variable]]


def _slots_of(
    per_optimizer: Iterable[OptimizerPairs],
    before: Sequence[Variable],
    own: Sequence[Operation],
    handed: Sequence[Any],
) -> _Found:
    kept_by = [entry.adapter.kept(before, entry.variables, own, handed) for entry in per_optimizer]
    slots = {variable: of_all for one in kept_by if one for variable, of_all in one.slots.items()}
    return _Found(kept_by, slots)


def _others_of(
    optimizer: Optimizer,
    per_optimizer: Iterable[OptimizerPairs],
    before: Sequence[Variable],
    found: _Found,
) -> List[Variable]:
    """The variables that are no slots, with the optimizers' counters and rates: a list."""
    # TensorFlow's optimizers keep the slots that they have when they are applied once more.
    made = [slot for of_variable in found.slots.values() for slot in of_variable]
    others = [variable for variable in before if variable not in made]
    kept = found.kept[0]
    counters = kept.counters if kept else [optimizer.iterations]
    rates = [
        rate
        for entry in per_optimizer
        for rate in keras_optimizers.hyperparameters(entry.optimizer).values()
        if isinstance(rate, VARIABLES)
    ]
    return others + [variable for variable in counters + rates if variable not in others]


def _waited_for(operations: List[Operation], since: int) -> List[Operation]:
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


def _place_on_servers(pairs: Iterable[Pair], state: Optional[OptimizerState], since: int) -> None:
    """Puts the optimizer's own updates of shards on the shards' servers.

    The optimizer builds them as it would anywhere. Left on the worker's device, which may be a
    card, a shard and its slots would travel there and back every step.

    Args:
        pairs: the `Pair`s.
        state: the `OptimizerState`, or `None`: a user's, of which nothing is known. One of
            TensorFlow's places its updates itself.
        since: only operations with a greater id (`tensorflow_api.operation_id`) are placed.
    """
    for pair in pairs:
        if state is None or pair.table is None or pair.shard is None:
            continue
        slots = [slot[pair.shard] for slot in state.slots[pair.table.variable]]
        starts = [pair.variable.op, pair.gradient.op] + [slot.op for slot in slots]
        for operation in graph_queries.descendants_by_data(starts, since):
            tensorflow_api.set_device(operation, pair.variable.device)


def _synced_variables(
    others: Iterable[Variable], slots: Mapping[Variable, Sequence[Variable]], pairs: Iterable[Pair]
) -> Dict[str, Variable]:
    """The variables that every worker must hold the same values of, by a name that workers share.

    Slots have names of TensorFlow's making, which differ between workers that own different shards,
    so they go by the name of their variable; slots of shards are nobody else's.
    """
    synced = {variable.name: variable for variable in others}
    for variable in [pair.variable for pair in pairs if pair.table is None]:
        for number, slot in enumerate(slots.get(variable, ())):
            synced['%s.slot_%d' % (variable.name, number)] = slot
    return synced


def _slots_by_shape(
    others: Iterable[Variable], synced: Mapping[str, Variable], pairs: Iterable[Pair]
) -> List[Variable]:
    """What an optimizer of which that is not known has made for shards, by its shape, a list.

    It must not be broadcast: on another worker the variable of the same name is another shard's.
    """
    others = [*others, *synced.values()]
    shapes = [pair.variable.shape.as_list() for pair in pairs if pair.table is not None]
    return [
        variable
        for variable in tf.global_variables()
        if variable not in others and variable.shape.as_list() in shapes
    ]
