"""An optimizer's slots of tables, as every rank knows them."""

from keras_parallax.compat import keras_api, tensorflow_api
from keras_parallax.compat.tensorflow_api import AnyResourceVariable, ResourceVariable, tf
from keras_parallax.errors import PlanError
from keras_parallax.tables.table import STORAGE, make_storage
from keras_parallax.updates.adapter_base import OptimizerState


def slots_for_rows(optimizer, table, rule, prefix):
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


def state_of(adapter, kept, pairs, of_rank):
    """The state of what the optimizer itself updates.

    Its slots of shards are stored under names that every rank knows.
    """
    if not of_rank.sync and not adapter.shares_slots:
        raise PlanError(
            "sync=False is for Keras's own optimizers, of which it is known which of their "
            'variables several workers may change at a time, but %s was given; use one of them, or '
            'sync=True.' % adapter.name
        )
    if kept is None:
        return None
    slots, of_tables = {}, {}
    for pair in pairs:
        if pair.table is None:
            slots[pair.variable] = kept.slots[pair.variable]
        else:
            of_tables.setdefault(pair.table, []).append((pair, kept.slots[pair.variable]))
    for table, pairs_and_slots in of_tables.items():
        slots[table.variable] = [
            _slot_of_shards(
                table,
                number,
                [(pair, own[number]) for pair, own in pairs_and_slots],
                of_rank.prefix,
                adapter.slot_shape,
            )
            for number in range(len(pairs_and_slots[0][1]))
        ]
    return OptimizerState(kept.counters, slots, kept.names, _order(kept.order, pairs))


def _order(order, pairs):
    """A user's optimizer's weights in its own order, as for one pair a variable of the model.

    A rank may update several shards of a table; plain Keras has a slot for all.
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


def _slot_of_shards(table, number, pairs_and_slots, prefix, slot_shape):
    """One slot of a table: this rank's variables, and stand-ins for those of the other owners."""
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


def _slot_name(prefix, table, slot, shard):
    return '%s/%s/slot_%d/shard_%d' % (prefix, table.name, slot, shard)
