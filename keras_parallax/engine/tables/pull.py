# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Pulls: the rows of a batch, each once, from the shards that hold them."""

import contextlib
from typing import (
    AbstractSet,
    Any,
    Dict,
    Iterable,
    Iterator,
    List,
    Optional,
    Sequence,
    Tuple,
    cast,
)

from keras_parallax.compat import graph_queries, tensorflow_api
from keras_parallax.compat.horovod_api import hvd
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.engine.job import devices
from keras_parallax.engine.tables import half_precision
from keras_parallax.engine.tables.exchanged import Exchanged
from keras_parallax.engine.tables.pull_data import Connection as Connection
from keras_parallax.engine.tables.pull_data import Pull as Pull
from keras_parallax.engine.tables.pull_data import SplitIds as SplitIds
from keras_parallax.engine.tables.table import Table
from keras_parallax.framework_types import Operation, Tensor
from keras_parallax.planning.costs import id_dtype
from keras_parallax.planning.planned_variables import Shard

#: At most this many of a batch's bad ids are told.
TOLD_IDS = 3


def check_of_ids(ids: Tensor, rows: int, name: str) -> Operation:
    """An operation that ends a step with an error, if an id has no row.

    It is made of few operations, because every table has one (`tf.boolean_mask` alone has 20).

    Args:
        ids: `[n]`, integers.
        rows: how many rows there are.
        name: what the error names.
    """
    inside = tf.logical_and(ids >= 0, ids < rows)
    bad = tf.gather_nd(ids, tf.where(tf.logical_not(inside)))
    return tensorflow_api.raw_assert(tf.reduce_all(inside), [ID_MARK, name, bad], TOLD_IDS)


def split_by_shard(ids: Tensor, shards: Sequence[Shard]) -> SplitIds:
    """`SplitIds` of unique ids `[n]`, split by the shard that holds their row.

    Id `i` is row `i // n` of shard `i % n`, if there are `n` shards. Rows have the smallest integer
    type that fits, because they travel.
    """
    count = len(shards)
    if count == 1:
        rows, positions = [ids], [tf.range(tf.size(ids))]
    else:
        owner = tf.cast(tf.floormod(ids, count), tf.int32)
        rows = tf.dynamic_partition(tf.floordiv(ids, count), owner, count)
        positions = tf.dynamic_partition(tf.range(tf.size(ids)), owner, count)
    small = [tf.cast(part, id_dtype(shard.rows)) for part, shard in zip(rows, shards)]
    return SplitIds(ids, small, positions)


def pull(
    table: Exchanged,
    ids_of_lookups: Sequence[Tensor],
    compression: Any = hvd.Compression.none,
    link: bool = False,
    readers: Sequence[str] = (),
) -> Pull:
    """Builds the `Pull` of a table's rows for some lookups, whose ids may be of any shape.

    Each row travels once however often the ids name it, and only from its shard. Gradients reach
    the table's handle, as a model's do, if there is to be a link. Running it raises an error that
    names the table if an id is outside it.

    Args:
        table: the table.
        ids_of_lookups: the ids of each lookup.
        compression: one of `hvd.Compression`: the form in which rows travel.
        link: whether gradients reach the table's handle.
        readers: the device on which each lookup repeats the rows, so that a card gets each row
            once; if empty, the device of the rows.
    """
    wide = tf.int64 if any(ids.dtype == tf.int64 for ids in ids_of_lookups) else tf.int32
    flat = [tf.reshape(tf.cast(ids, wide), [-1]) for ids in ids_of_lookups]
    if len(flat) == 1 and graph_queries.has_no_repeats(flat[0]):
        unique, inverse = flat[0], tf.range(tf.size(flat[0]))
    else:
        unique, inverse = tf.unique(flat[0] if len(flat) == 1 else tf.concat(flat, 0))
    with tf.control_dependencies([check_of_ids(unique, table.rows, table.name)]):
        split = split_by_shard(tf.identity(unique), table.planned_shards)
    rows = gather_rows(table, split, compression)
    rows = _linked(cast(Table, table), rows, split) if link else rows  # Only tables are linked.
    inverses = [inverse] if len(flat) == 1 else tf.split(inverse, [tf.size(ids) for ids in flat])
    outputs = []
    for number, (ids, part) in enumerate(zip(ids_of_lookups, inverses)):
        places = tf.reshape(part, tf.shape(ids))
        with _only_on(readers[number] if readers else rows.device):
            output = tf.gather(rows, places)
        output.set_shape(ids.shape.concatenate(table.row_shape))
        outputs.append(output)
    return Pull(split, rows, outputs, list(inverses), list(ids_of_lookups))


def _linked(table: Table, rows: Tensor, split: SplitIds) -> Tensor:
    """`Table.linked` rows, but not those of a loop, whose gradients nobody could sum up."""
    return rows if tensorflow_api.is_in_control_flow(split.ids) else table.linked(rows, split.ids)


def merged_split(pulls: Sequence[Pull], shards: Sequence[Shard]) -> Tuple[SplitIds, List[Tensor]]:
    """What a step pulls for several `Pull`s of a table at once, so that rows they share come once.

    Returns the `SplitIds` of all, and for each `Pull` the positions of its own ids among those.
    """
    ids = [pull.split.ids for pull in pulls]
    wide = max((of_pull.dtype for of_pull in ids), key=lambda dtype: dtype.size)
    unique, inverse = tf.unique(tf.concat([tf.cast(of_pull, wide) for of_pull in ids], 0))
    sizes = tf.stack([tf.size(of_pull) for of_pull in ids])
    return split_by_shard(unique, shards), tf.split(inverse, sizes, num=len(ids))


def gather_rows(
    table: Exchanged, split: SplitIds, compression: Any = hvd.Compression.none
) -> Tensor:
    """Gathers rows from the shards, in the order of `split.ids`; arguments as `pull` has them."""
    parts = []
    for number, (shard, rows) in enumerate(zip(table.shards, split.rows)):
        with tf.device(shard.device):
            # What makes the rows whole again is the same for every shard.
            small, restore = half_precision.compress(
                table.gather(number, rows), compression, table.widths
            )
            parts.append(small)
    if len(parts) == 1:
        rows = tf.identity(parts[0])
    else:
        rows = tf.dynamic_stitch(split.positions, parts)
    rows = tf.cast(restore(rows), table.dtype)
    rows.set_shape([None] + table.row_shape)
    return rows


def pull_again(table: Table, pulled: Pull, rank: int) -> Pull:
    """Makes the readers of pulled rows read rows pulled from a table's new shards instead.

    Returns the `Pull` from those.
    """
    with tf.device(devices.shard_device(rank)):
        split = split_by_shard(pulled.split.ids, table.planned_shards)
        rows = _linked(table, gather_rows(table, split), split)
    redirect_readers(pulled.rows, rows)
    return pulled._replace(split=split, rows=rows)


def redirect_lookups(
    table: Table, lookups: Iterable[Operation], members: AbstractSet[Operation], rank: int
) -> List[Tuple[Tensor, Tensor]]:
    """Makes lookups of a table, of every model, pull their rows from the shards.

    Lookups are pulled together, so that a row they share travels once, if the same placeholders
    feed them: a model that shares a table with another must be able to predict when the other's
    inputs are not fed. Lookups outside of `members`, on which the loss depends, belong to other
    models and are pulled apart from the loss's. The table's `pulls` are added to, with the tensors
    that the models now compute with as their `outputs`.

    Returns a list of pairs of what is looked up no more, and of what is read in its place.
    """
    groups: Dict[Any, List[Operation]] = {}
    replaced: List[Tuple[Tensor, Tensor]] = []
    for lookup in lookups:
        key = (lookup in members, graph_queries.placeholders(lookup.inputs[1]))
        groups.setdefault(key, []).append(lookup)
    for group in groups.values():
        with tf.device(devices.shard_device(rank)):
            ids = [lookup.inputs[1] for lookup in group]
            readers = [_reader_device(lookup, rank) for lookup in group]
            pulled = pull(table, ids, link=True, readers=readers)
        outputs = [
            _redirect(lookup, pulled.rows, output) for lookup, output in zip(group, pulled.outputs)
        ]
        table.pulls.append(pulled._replace(outputs=outputs))
        replaced += [
            (lookup.outputs[0], output)
            for lookup, output in zip(group, outputs)
            if lookup.outputs[0] is not output
        ]
    return replaced


def _reader_device(lookup: Operation, rank: int) -> str:
    """Where the rows of a lookup are needed: where the script puts it, or else the worker's card.

    A device without a type lets TensorFlow choose: it takes the card if there is one.
    """
    is_chosen = tf.DeviceSpec.from_string(lookup.device).device_type is not None
    return lookup.device if is_chosen else devices.worker_device(rank)


@contextlib.contextmanager
def _only_on(device: str) -> Iterator[None]:
    """Has operations lie on a device, whatever the devices around it are."""
    with tf.device(None), tf.device(device):
        yield


def pull_new_lookup(table: Table, ids: Tensor, rank: int) -> Tensor:
    """Builds the pull of a lookup made after its table was sharded, and returns the rows."""
    if not table.by_row:
        return tf.gather(table.variable.value(), ids)
    # `embedding_lookup` of TF 1.11 places what it builds beside the whole of the table.
    nowhere = tensorflow_api.colocated_with(None, ignore_existing=True)
    with nowhere, tf.device(devices.shard_device(rank)):
        readers = [devices.worker_device(rank)]
        table.pulls.append(pull(table, [tf.convert_to_tensor(ids)], link=True, readers=readers))
    return table.pulls[-1].outputs[0]


def redirect_readers(
    tensor: Tensor, replacement: Tensor, readers: Optional[Iterable[Operation]] = None
) -> None:
    """Makes operations that read a tensor read another of the same dtype and shape instead.

    All that read it do, if it is not said which.
    """
    for reader in tensorflow_api.consumers(tensor) if readers is None else readers:
        for index, read in enumerate(reader.inputs):
            if read is tensor:
                tensorflow_api.replace_input(reader, index, replacement)


def _redirect(lookup: Operation, rows: Tensor, output: Tensor) -> Tensor:
    """Puts a pulled output in place of a lookup's, and returns the tensor that users now read."""
    if lookup.type == 'ResourceGather':
        # Its first input is a handle, so its readers are moved instead (TF 1.11 reads it through
        # an Identity, which is what a model holds on to).
        redirect_readers(lookup.outputs[0], output)
        return output
    # The output tensor of this gather may be a layer's, so it stays and looks up the pulled rows.
    indices = tf.cast(output.op.inputs[1], lookup.inputs[1].dtype)
    if not rows.shape.is_compatible_with(lookup.inputs[0].shape):
        # Of ids that are constants TensorFlow knows how many rows there are, fewer than before.
        rows = tf.placeholder_with_default(rows, [None] + rows.shape.as_list()[1:])
    tensorflow_api.replace_input(lookup, 0, rows)
    tensorflow_api.replace_input(lookup, 1, indices)
    return lookup.outputs[0]


#: Starts the message of the assertion that guards a table's ids; `pull` builds it.
ID_MARK = 'keras-parallax: ids outside the table'


#: Starts that of the one before an operation that cannot be done on shards; `former` builds it.
REFUSAL_MARK = 'keras-parallax: not on shards'
