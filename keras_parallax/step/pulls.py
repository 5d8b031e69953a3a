"""How a training step pulls rows, where that is not as a prediction does."""

from keras_parallax.compat.horovod_api import hvd
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.tables.pull import SplitIds, gather_rows, joint


def connected_pulls(pulls, first, shared, exchange):
    """Has a step pull rows in its own way.

    Args:
        pulls: dict from `Exchanged` to lists of their `Pull`s.
        first: dict from some of them to those whose rows are needed first.
        shared: those of which several `Pull`s are pulled as one.
        exchange: the `exchange.Exchange`.

    Returns:
        The same as `pulls`, of those whose `Pull`s are others in the step; and a dict from all of
        them to lists of the `SplitIds` whose rows this rank pulls from servers.
    """
    no_compression = exchange.pull_compression is hvd.Compression.none
    as_predicted, connected = no_compression and not _aggregates(exchange), {}
    asked = {}
    # Those that wait for nothing come first, so that what others wait for is there.
    for table in sorted(first, key=lambda table: len(first[table])):
        as_is = as_predicted and not first[table] and table not in shared
        # Rows of a group are pulled in a step alone.
        if as_is and pulls[table][0].rows is not None:
            asked[table] = [pull.split for pull in pulls[table]]
            continue
        arrived = [
            pull.rows for other in first[table] for pull in connected.get(other, pulls[other])
        ]
        pulled = _pull_at_once if table in shared else _pull_each
        asked[table] = []
        connected[table] = pulled(table, pulls[table], arrived, exchange, asked[table])
    return connected, asked


def _aggregates(exchange):
    """Whether the host's workers pull together."""
    return exchange.host is not None and exchange.host.shares


def _pull_each(table, pulls, arrived, exchange, asked):
    """The `Pull`s of an `Exchanged` in the step, when other rows have arrived.

    What is asked of servers is added to a list.
    """
    connected = []
    for number, pull in enumerate(pulls):
        split = _after(arrived, pull.split)
        rows = _pull(table, '%s/pull_%d' % (table.name, number), split, exchange, asked)
        connected.append(pull._replace(split=split, rows=rows))
    return connected


def _pull_at_once(table, pulls, arrived, exchange, asked):
    """The same, with rows that several of them need pulled once."""
    split, places = joint(pulls, table.planned_shards)
    rows = _pull(table, table.name + '/pull', _after(arrived, split), exchange, asked)
    return [pull._replace(rows=tf.gather(rows, own)) for pull, own in zip(pulls, places)]


def _pull(table, name, split, exchange, asked):
    """Rows of an `Exchanged`: with the host's other workers, if any."""
    if _aggregates(exchange):
        rows, split = exchange.host.pull_rows(table, name, split.ids, exchange.pull_compression)
        asked += [] if split is None else [split]
        return rows
    asked.append(split)
    return gather_rows(table, split, exchange.pull_compression)


def _after(tensors, split):
    """`SplitIds` that are there when tensors are."""
    if not tensors:
        return split
    with tf.control_dependencies(tensors):
        return SplitIds(tf.identity(split.ids), list(map(tf.identity, split.rows)), split.positions)
