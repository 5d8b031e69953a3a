# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""An optimizer's slots of tables, as every worker knows them."""

from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

from keras_parallax.compat import keras_api, tensorflow_api
from keras_parallax.compat.tensorflow_api import AnyResourceVariable, ResourceVariable, tf
from keras_parallax.engine.tables import sharding
from keras_parallax.engine.tables.table import STORAGE, Table, make_storage
from keras_parallax.engine.updates.adapter_base import OptimizerAdapter, OptimizerState
from keras_parallax.engine.updates.gradient_pairs import Pair, TablesOfRank
from keras_parallax.engine.updates.kept_slots import MadeSlots, SlotsByName
from keras_parallax.engine.updates.keras_slots import weight_of
from keras_parallax.engine.updates.optimizers.known_optimizer import RowRule
from keras_parallax.errors import PlanError
from keras_parallax.framework_types import Optimizer, Variable


def slots_for_rows(optimizer: Optimizer, table: Table, rule: RowRule, prefix: str) -> List[Any]:
    """Makes the slots of a table that is updated by rows, as `OptimizerState` has them."""
    count = rule.uses(optimizer)
    if not table.shards:
        # Variables of Keras's, so that it initializes them; but a session would keep a copy of the
        # zeros of `backend.zeros`. Each has zeros of its own, which it takes over without a copy.
        backend = keras_api.package_of(optimizer).backend
        shape = rule.slot_shape([table.rows] + table.row_shape)
        return [
            backend.variable(tensorflow_api.zeros(shape, backend.floatx())) for _ in range(count)
        ]
    return [
        [
            make_storage(
                _slot_name(prefix, table, slot, number),
                table.device_of(shard),
                rule.slot_shape(table.shape_of(shard)),
                table.dtype,
            )
            for number, shard in enumerate(table.plan.shards)
        ]
        for slot in range(count)
    ]


class StateOfRank(NamedTuple):
    """What an optimizer keeps for what it updates itself, as a worker knows it.

    Attributes:
        state: the `OptimizerState`, or `None` if its slots are not told apart.
        made: a list of the `MadeSlots` that no step before has made.
    """

    state: Optional[OptimizerState]
    made: List[MadeSlots]


def state_of(
    adapter: OptimizerAdapter,
    state: Optional[OptimizerState],
    pairs: Sequence[Pair],
    of_rank: TablesOfRank,
) -> StateOfRank:
    """The state of what the optimizer itself updates.

    Its slots of shards are stored under names that every worker knows. Slots that it keeps from an
    earlier step are those of that step, whichever worker owns them.

    Args:
        adapter: the `OptimizerAdapter` of the optimizer.
        state: its state for the variables of `pairs`, or `None` if its slots are not told apart.
        pairs: what it updates, a list of `gradient_pairs.Pair`s.
        of_rank: the `gradient_pairs.TablesOfRank`.
    """
    if not of_rank.sync and not adapter.shares_slots:
        raise PlanError(
            "sync=False is for Keras's own optimizers, of which it is known which of their "
            'variables several workers may change at a time, but %s was given; use one of them, or '
            'sync=True.' % adapter.name
        )
    kept = of_rank.kept_slots(adapter.keeper)
    slots: Dict[Any, List[Any]] = {}
    of_tables: Dict[Table, List[Tuple[Pair, List[Any]]]] = {}
    made: List[MadeSlots] = []
    for pair in pairs:
        if pair.table is None:
            slots[pair.variable] = [] if state is None else state.slots[pair.variable]
        else:
            own = [] if state is None else state.slots[pair.variable]
            of_tables.setdefault(pair.table, []).append((pair, own))
    for table, pairs_and_slots in of_tables.items():
        known = kept.of(table)
        new: SlotsByName = {}
        slots[table.variable] = []
        for number in range(len(pairs_and_slots[0][1])):
            name = state.names[number] if state is not None and state.names else number
            if name not in known:
                new[name] = _slot_of_shards(
                    table,
                    number,
                    [(pair, own[number]) for pair, own in pairs_and_slots],
                    of_rank.prefix,
                    adapter.slot_shape,
                )
            slots[table.variable].append(known.get(name) or new[name])
        if new or not kept.has(table):
            made.append(MadeSlots(kept, table, new, _taken(adapter, table, new)))
    if state is None:
        return StateOfRank(None, made)
    order = _order(state.order, pairs)
    return StateOfRank(OptimizerState(state.counters, slots, state.names, order), made)


def stored_slots(
    pairs: Sequence[Pair],
    slots: Dict[Any, List[Any]],
    untold: List[Any],
    made: List[MadeSlots],
    of_rank: TablesOfRank,
) -> Tuple[List[Any], List[Any]]:
    """Slots of shards on this worker's server: all of them, and those that have to be initialized.

    From now on Keras leaves those that are new alone.

    Args:
        pairs: as of `state_of`, of all optimizers.
        slots: dict from variables of pairs to their slots; empty if these are not told apart.
        untold: new slots of shards that are not told apart.
        made: the `MadeSlots`.
        of_rank: the `gradient_pairs.TablesOfRank`.
    """
    of_shards = [
        (pair, slot) for pair in pairs if pair.table for slot in slots.get(pair.variable, ())
    ]
    new = {id(slot) for one in made for of_all in one.by_name.values() for slot in of_all}
    new.update(id(slot) for pair, slot in of_shards if pair.shard is None)
    new.update(map(id, untold))
    stored = [slot for _, slot in of_shards] + untold
    for slot in stored:
        if id(slot) in new:
            sharding.forget_variable(slot)
    own = [slot for slot in stored if _owner_of_slot(slot, of_rank) == of_rank.rank]
    return own, [slot for slot in own if id(slot) in new]


def _owner_of_slot(slot: Variable, of_rank: TablesOfRank) -> int:
    """The worker that initializes a slot; its own, if it is not on a server."""
    for table in of_rank.tables.values():
        owner = table.servers.owner_on(slot.device) if table.servers else None
        if owner is not None:
            return owner
    return of_rank.rank


def _taken(adapter: OptimizerAdapter, table: Table, new: SlotsByName) -> List[Any]:
    """What new slots of a table take over, as `MadeSlots` has it."""
    whole = adapter.slots_by_name(table.variable)
    pairs = [
        (whole[name], weight_of(table.variable, name, of_shards, adapter.slot_shape))
        for name, of_shards in new.items()
        if name in whole
    ]
    return [(old, made) for old, made in pairs if old.shape.as_list() == made.shape.as_list()]


def _order(order: Optional[List[Any]], pairs: Sequence[Pair]) -> Optional[List[Any]]:
    """A user's optimizer's weights in its own order, as for one pair a variable of the model.

    A worker may update several shards of a table; plain Keras has a slot for all.
    """
    if order is None:
        return None
    of_model = {pair.variable: (pair.table or pair).variable for pair in pairs}
    first = {of_model[pair.variable]: pair.variable for pair in reversed(pairs)}
    ordered = []
    for entry in order:
        if not isinstance(entry, tuple):
            ordered.append(entry)
        elif first[of_model[entry[0]]] is entry[0]:
            ordered.append((of_model[entry[0]], entry[1]))
    return ordered


def _slot_of_shards(
    table: Table,
    number: int,
    pairs_and_slots: List[Tuple[Pair, Variable]],
    prefix: str,
    slot_shape: Callable[[List[int]], List[int]],
) -> List[Variable]:
    """One slot of a table: this worker's variables, and stand-ins for those of the other owners."""
    own = {pair.shard: slot for pair, slot in pairs_and_slots}
    pair, slot = pairs_and_slots[0]
    of_rows = slot.shape.as_list() == slot_shape(pair.variable.shape.as_list())
    of_shards = []
    for shard, planned in enumerate(table.plan.shards):
        name = _slot_name(prefix, table, number, shard)
        if shard in own:
            tensorflow_api.name_storage(own[shard], STORAGE + name, table.device_of(planned))
            of_shards.append(own[shard])
        else:
            shape = slot_shape(table.shape_of(planned)) if of_rows else slot.shape.as_list()
            kind = ResourceVariable if isinstance(slot, AnyResourceVariable) else tf.Variable
            device, dtype = table.device_of(planned), slot.dtype.base_dtype
            of_shards.append(make_storage(name, device, shape, dtype, kind))
    return of_shards


def _slot_name(prefix: str, table: Table, slot: int, shard: int) -> str:
    return '%s/%s/slot_%d/shard_%d' % (prefix, table.name, slot, shard)
