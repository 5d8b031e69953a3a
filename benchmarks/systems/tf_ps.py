# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""TensorFlow's parameter-server training, in its documented form.

A server and a worker on every host, `replica_device_setter` with a greedy strategy by bytes,
partitioned tables looked up with the `mod` strategy (which spreads frequent words), and
`SyncReplicasOptimizer` under a `MonitoredTrainingSession`.

How it differs in what it learns: TensorFlow divides the gradient of a row by the number of
workers whose batch has the row, where everyone else divides by the number of workers.
"""

import numpy as np
from works import models, stack
from works.stack import K, keras, tf

from systems import processes, settings


class PartitionedTable(keras.layers.Layer):
    """A table in as many parts as there are servers; otherwise as `Table`."""

    def __init__(self, parts, rows, width, seed, name):
        super().__init__(name=name)
        self.parts, self.rows, self.width, self.seed = parts, rows, width, seed

    def build(self, input_shape):
        self.table = _parts(self.name, self.parts, self.rows, [self.width], self.seed)
        super().build(input_shape)

    def call(self, ids):
        return tf.nn.embedding_lookup(self.table, ids, partition_strategy='mod')

    def compute_output_shape(self, input_shape):
        return input_shape + (self.width,)


class PartitionedSoftmax(models.SampledSoftmax):
    """`SampledSoftmax` whose weights are in `parts` parts."""

    parts = None

    def tables(self, width):
        return (
            _parts('kernel', self.parts, self.vocabulary, [width], self.seed),
            _parts('bias', self.parts, self.vocabulary, [], None),
        )


def _parts(name, parts, rows, row_shape, seed):
    """The parts of a variable that begins as Keras's does: row r is in part r % parts."""
    whole = [rows] + row_shape
    parts = min(parts, rows)

    def initializer(shape, dtype, partition_info):
        begin = partition_info.var_offset[0] if partition_info else 0
        size = -(-rows // parts)
        number = next(n for n in range(parts) if sum(_sizes(rows, parts)[:n]) == begin)
        assert shape[0] in (size, size - 1)
        if seed is None:
            return tf.zeros(shape, dtype)
        return models.start_values(seed)(whole, dtype)[number::parts]

    variable = tf.get_variable(
        name,
        whole,
        tf.float32,
        initializer,
        partitioner=tf.fixed_size_partitioner(parts) if parts > 1 else None,
    )
    return list(variable) if parts > 1 else [variable]


def _tables_and_weights(model):
    """The model's weights as Keras orders them; a table as the list of its parts."""
    found = []
    for layer in model.layers:
        if isinstance(layer, PartitionedTable):
            found.append(layer.table)
        elif isinstance(layer, PartitionedSoftmax):
            found += [layer.kernel, layer.bias]
        else:
            found += layer.weights
    return found


def _joined(parts):
    """The whole table of its parts: row r is in part r % parts."""
    whole = np.empty((sum(map(len, parts)),) + parts[0].shape[1:], parts[0].dtype)
    for number, part in enumerate(parts):
        whole[number :: len(parts)] = part
    return whole


def _sizes(rows, parts):
    return [rows // parts + (number < rows % parts) for number in range(parts)]


def build(work, place, threads):
    """Step function and reader of weights; see `catalog`. Starts this host's server too."""
    config = settings.session_config(threads)
    found = place.gather(processes.free_addresses(2))
    cluster = {'ps': [pair[0] for pair in found], 'worker': [pair[1] for pair in found]}
    processes.start('parameter_server.py', repr(cluster), 'ps', str(place.rank), str(threads))
    server = tf.train.Server(
        tf.train.ClusterSpec(cluster), 'worker', task_index=place.rank, config=config
    )
    setter = tf.train.replica_device_setter(
        cluster=tf.train.ClusterSpec(cluster),
        worker_device='/job:worker/task:%d' % place.rank,
        ps_strategy=_greedy_by_bytes(place.size),
    )
    softmax = type('Softmax', (PartitionedSoftmax,), {'parts': place.size})
    with tf.device(setter):
        model, loss = work.build(
            lambda rows, width, seed, name: PartitionedTable(place.size, rows, width, seed, name),
            softmax,
            place.rank,
        )
        target = tf.placeholder(tf.float32, [None] + [None] * (K.ndim(model.output) - 1))
        total = K.mean(loss(target, model.output))
        optimizer = tf.train.SyncReplicasOptimizer(
            settings.tf_optimizer(work), place.size, total_num_replicas=place.size
        )
        train = optimizer.minimize(total, global_step=tf.train.get_or_create_global_step())
    session = tf.train.MonitoredTrainingSession(
        server.target,
        is_chief=place.rank == 0,
        hooks=[optimizer.make_session_run_hook(place.rank == 0, num_tokens=0)],
        config=config,
        save_summaries_steps=None,
        save_summaries_secs=None,
        log_step_count_steps=None,
    )
    placeholders = model.inputs + [target]

    def step(inputs, target):
        feeds = dict(zip(placeholders, inputs + [target]))
        return float(session.run([total, train], feeds)[0])

    def weights():
        # Not by `session.run`, whose hooks count it as a step.
        whole = _tables_and_weights(model)
        found = session.run_step_fn(lambda step_context: step_context.session.run(whole))
        return [_joined(part) if isinstance(part, list) else part for part in found]

    return step, weights


def _greedy_by_bytes(servers):
    """The strategy of `tf.contrib`, which TensorFlow 2 does not have any more."""
    if not stack.HAS_TENSORFLOW_2:
        contrib = tf.contrib.training
        return contrib.GreedyLoadBalancingStrategy(servers, contrib.byte_size_load_fn)
    loads = [0] * servers

    def choose(op):
        shape, dtype = tf.TensorShape(op.get_attr('shape')), tf.as_dtype(op.get_attr('dtype'))
        server = loads.index(min(loads))
        loads[server] += shape.num_elements() * dtype.size
        return server

    return choose
