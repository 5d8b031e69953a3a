# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""How a training step pulls rows, where it does so in another way than a prediction.

A language model computes its LSTM from the rows of its input words alone, and needs the rows of its
softmax only later. If both are pulled at the same time, they share the link, and the LSTM waits for
both. So the step pulls the rows of the softmax while the LSTM computes.
"""

from typing import AbstractSet, Container, Dict, List, Mapping, Sequence, Tuple

from keras_parallax.compat import graph_queries, tensorflow_api
from keras_parallax.compat.horovod_api import hvd
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.engine.step.exchange import Exchange
from keras_parallax.engine.tables.exchanged import Exchanged
from keras_parallax.engine.tables.pull import SplitIds, gather_rows, merged_split
from keras_parallax.engine.tables.pull_data import Pull
from keras_parallax.framework_types import Operation, Tensor

#: What takes long enough for rows to arrive in the meantime.
_HEAVY = {'MatMul', 'BatchMatMul', 'BatchMatMulV2', 'Conv1D', 'Conv2D', 'Conv3D', 'CudnnRNN'}


def needed_first(
    pulls: Mapping[Exchanged, Sequence[Pull]],
    members: AbstractSet[Operation],
    small: Container[Exchanged] = (),
) -> Dict[Exchanged, List[Exchanged]]:
    """Finds tables with whose rows a loss is computed for a while before it needs those of others.

    Returns a dict from tables to lists of those whose rows are needed first: all heavy computation
    that needs its rows needs theirs too, and some needs theirs alone. Of `small` ones so little is
    pulled that it is not worth waiting. Tables that are looked up in a loop, which has rows for
    each round, are not in it.
    """
    heavy = {
        table: {
            user
            for pull in of_table
            for output in pull.outputs
            for user in graph_queries.descendants(output.op, members)
            if user.type in _HEAVY
        }
        for table, of_table in pulls.items()
        if not any(tensorflow_api.is_in_control_flow(pull.split.ids) for pull in of_table)
    }
    return {
        table: [other for other in heavy if heavy[other] > heavy[table] and table not in small]
        for table in heavy
    }


def connected_pulls(
    pulls: Mapping[Exchanged, List[Pull]],
    first: Mapping[Exchanged, Sequence[Exchanged]],
    shared: Container[Exchanged],
    exchange: Exchange,
) -> Tuple[Dict[Exchanged, List[Pull]], Dict[Exchanged, List[SplitIds]]]:
    """Has a step pull rows in its own way.

    Args:
        pulls: dict from `Exchanged` to lists of their `Pull`s.
        first: dict from some of them to those whose rows are needed first.
        shared: those of which several `Pull`s are pulled as one.
        exchange: the `exchange.Exchange`.

    Returns:
        The same as `pulls`, of those whose `Pull`s are others in the step; and a dict from all of
        them to lists of the `SplitIds` whose rows this worker pulls from servers.
    """
    no_compression = exchange.pull_compression is hvd.Compression.none
    as_predicted = no_compression and not _aggregates(exchange)
    connected: Dict[Exchanged, List[Pull]] = {}
    splits: Dict[Exchanged, List[SplitIds]] = {}
    # Those that wait for nothing come first, so that what others wait for is there.
    for table in sorted(first, key=lambda table: len(first[table])):
        as_is = as_predicted and not first[table] and table not in shared
        # Rows of a group are pulled in a step alone.
        if as_is and pulls[table][0].rows is not None:
            splits[table] = [pull.split for pull in pulls[table]]
            continue
        arrived = [
            pull.rows for other in first[table] for pull in connected.get(other, pulls[other])
        ]
        pulled = _pull_at_once if table in shared else _pull_each
        splits[table] = []
        connected[table] = pulled(table, pulls[table], arrived, exchange, splits[table])
    return connected, splits


def _aggregates(exchange: Exchange) -> bool:
    """Whether the host's workers pull together."""
    return exchange.host is not None and exchange.host.shares


def _pull_each(
    table: Exchanged,
    pulls: Sequence[Pull],
    arrived: Sequence[Tensor],
    exchange: Exchange,
    splits: List[SplitIds],
) -> List[Pull]:
    """The `Pull`s of an `Exchanged` in the step, when other rows have arrived.

    What is asked of servers is added to a list.
    """
    connected = []
    for number, pull in enumerate(pulls):
        split = _after(arrived, pull.split)
        rows = _pull(table, '%s/pull_%d' % (table.name, number), split, exchange, splits)
        connected.append(pull._replace(split=split, rows=rows))
    return connected


def _pull_at_once(
    table: Exchanged,
    pulls: Sequence[Pull],
    arrived: Sequence[Tensor],
    exchange: Exchange,
    splits: List[SplitIds],
) -> List[Pull]:
    """The same, with rows that several of them need pulled once."""
    split, places = merged_split(pulls, table.planned_shards)
    rows = _pull(table, table.name + '/pull', _after(arrived, split), exchange, splits)
    return [pull._replace(rows=tf.gather(rows, own)) for pull, own in zip(pulls, places)]


def _pull(
    table: Exchanged, name: str, split: SplitIds, exchange: Exchange, splits: List[SplitIds]
) -> Tensor:
    """Rows of an `Exchanged`: with the host's other workers, if any."""
    if exchange.host is not None and _aggregates(exchange):
        compression = exchange.pull_compression
        rows, of_host = exchange.host.pull_rows(table, name, split.ids, compression)
        splits += [] if of_host is None else [of_host]
        return rows
    splits.append(split)
    return gather_rows(table, split, exchange.pull_compression)


def _after(tensors: Sequence[Tensor], split: SplitIds) -> SplitIds:
    """`SplitIds` that are there when tensors are."""
    if not tensors:
        return split
    with tf.control_dependencies(tensors):
        return SplitIds(tf.identity(split.ids), list(map(tf.identity, split.rows)), split.positions)
