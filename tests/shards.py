# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Tables in shards, in one process: for tests of modules that need a table and no cluster."""

import functools
from types import SimpleNamespace

import numpy as np
from frameworks import TF1_6, tf
from servers import free_port

from keras_parallax.engine.job.server_layout import Servers
from keras_parallax.engine.tables.former_storage import FormerStorage
from keras_parallax.engine.tables.sharded_variable import ShardedVariable
from keras_parallax.engine.tables.table import Table
from keras_parallax.planning.placement import Shard, rows_of_shard
from keras_parallax.planning.plan import PlannedVariable

#: Kinds of variables: references and, where TensorFlow writes rows of them, resources.
KINDS = [False] if TF1_6 else [False, True]
#: Three servers on this process's CPU. Worker 0 owns the shards of two, worker 1 those of one.
SERVERS = Servers(devices=('/device:CPU:0',) * 3, owners=(0, 1, 0))


def planned(name='table', shape=(7, 2), servers=(0, 1), kind='sparse', **fields):
    """The `PlannedVariable` of a table that has a shard on each of some servers."""
    rows = shape[0] if shape else 1
    shards = tuple(
        Shard(server, rows_of_shard(rows, len(servers), number))
        for number, server in enumerate(servers)
    )
    return PlannedVariable(name, tuple(shape), 'float32', kind, 'a test', shards, **fields)


def variable_of(value, by_resource=False, name='variable'):
    """A variable of one kind or the other, which begins with a value, a tensor or an array."""
    name = tf.get_default_graph().unique_name(name, mark_as_used=False)
    start = tf.convert_to_tensor(value)
    return tf.get_variable(name, initializer=start, use_resource=by_resource)


def table_of(values, servers=(0, 1), rank=0, size=1, name='table', layout=SERVERS, **fields):
    """A `Table` whose variable has values, with shards on some servers that have none yet."""
    values = np.asarray(values, np.float32)
    variable = variable_of(values, fields.pop('by_resource', False), name)
    plan = planned(name, values.shape, servers, **fields)
    table = Table(variable, plan, None, layout, rank, size)
    table.make_shards()
    return table


def fill(table, values, session):
    """Writes values of a whole table to its shards."""
    count = len(table.shards)
    for number, shard in enumerate(table.shards):
        session.run(shard.initializer)
        shard.load(np.asarray(values, np.float32)[number::count], session)


def contents(table, session):
    """The rows of a table as its shards have them, an array."""
    of_shards = session.run(table.shards)
    whole = np.empty(table.plan.shape, of_shards[0].dtype)
    for number, rows in enumerate(of_shards):
        whole[number :: len(of_shards)] = rows
    return whole


def made_front(table, pull=lambda ids: None):
    """Makes a table's variable the front of its shards; returns the `FormerStorage`."""
    storage = table.variable.op.outputs[0]
    ShardedVariable.adopt(table.variable, table, pull)
    table.former = FormerStorage(table, storage, ())
    return table.former


def scope_of(session=None, rank=0, size=1):
    """What tables ask of a `GraphScope`."""
    job = SimpleNamespace(rank=rank, size=size)
    return SimpleNamespace(tables_by_name={}, servers=SERVERS, job=job, records={}, session=session)


@functools.lru_cache(maxsize=None)
def _workers(count):
    addresses = ['localhost:%d' % free_port() for _ in range(count)]
    tasks = tf.train.ClusterSpec({'worker': addresses})
    return [tf.train.Server(tasks, 'worker', rank) for rank in range(count)]


def worker_session(workers=1):
    """A session through the first of some servers of this process, which are a job's workers.

    What is built for a worker is on its device, which other sessions do not know.
    """
    return tf.Session(_workers(workers)[0].target)
