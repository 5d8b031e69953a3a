# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Run by `ps_strategy.py`: the coordinator of TensorFlow 2's `ParameterServerStrategy`.

Usage: coordinator.py CLUSTER WORK OPTIONS FOLDER THREADS. For each line that it reads it has the
workers do as many steps as there are workers, and prints the mean of their losses.
"""

import ast
import collections
import functools
import statistics
import sys

import tensorflow
from systems import ps_strategy, settings
from works import models
from works.stack import tf

distribute = tensorflow.distribute


class ShardedSoftmax(models.SampledSoftmax):
    """`SampledSoftmax` whose weights are in the parts that the strategy makes of a variable."""

    partition_strategy = 'div'

    def tables(self, width):
        whole = super().tables(width)
        # An optimizer asks the parts for it, and they do not keep it. Keras looks into no function.
        self.whole = lambda: whole
        return tuple(list(getattr(variable, 'variables', [variable])) for variable in whole)


def data_set(folder, arrays, worker):
    """A worker's batches: a data set of pairs of inputs and a target.

    Args:
        folder: where `ps_strategy.build` has left them.
        arrays: the inputs and the target of a batch, a list, for their shapes and types.
        worker: its number, a tensor.
    """
    sizes = [array.nbytes for array in arrays]

    def split(record):
        parts, first = [], 0
        for array, size in zip(arrays, sizes):
            part = tensorflow.strings.substr(record, first, size)
            parts.append(tf.reshape(tensorflow.io.decode_raw(part, array.dtype), array.shape))
            first += size
        return tuple(parts[:-1]), parts[-1]

    path = tensorflow.strings.join(
        [ps_strategy.path_of(folder, ''), tensorflow.strings.as_string(worker)]
    )
    records = tensorflow.data.FixedLengthRecordDataset(path, sum(sizes))
    return records.map(split).repeat().prefetch(2)


def strategy_of(cluster):
    """The strategy: a table has as many parts as there are servers, where they are not small."""
    resolver = distribute.cluster_resolver.SimpleClusterResolver(
        tensorflow.train.ClusterSpec(cluster), rpc_layer='grpc', task_type='chief', task_id=0
    )
    # Not the 256 KiB of TensorFlow's tutorial: an LSTM of Keras refuses kernels that are in parts.
    partitioner = distribute.experimental.partitioners.MinSizePartitioner(
        min_shard_bytes=1 << 20, max_shards=len(cluster['ps'])
    )
    return distribute.ParameterServerStrategy(resolver, variable_partitioner=partitioner)


def steps_of(work, folder, strategy):
    """A function that has one step done by some worker, and returns its loss to be fetched."""
    coordinator = distribute.coordinator.ClusterCoordinator(strategy)
    (inputs, target), = work.batches(0, 1)  # fmt: skip
    with strategy.scope():
        model, loss = work.build(models.Table, ShardedSoftmax, 0)
        optimizer = settings.keras_optimizer(work)

    def train(inputs, target):
        with tensorflow.GradientTape() as tape:
            total = tf.reduce_mean(loss(target, model(inputs, training=True)))
        gradients = tape.gradient(total, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return total

    @tensorflow.function
    def step(iterator):
        losses = strategy.run(train, args=next(iterator))
        return strategy.reduce(distribute.ReduceOp.SUM, losses, axis=None)

    def of_worker(context):
        del context
        number = distribute.coordinator.experimental_get_current_worker_index()
        return data_set(folder, inputs + [target], number)

    @tensorflow.function
    def of_each_worker():
        return strategy.distribute_datasets_from_function(of_worker)

    batches = iter(coordinator.create_per_worker_dataset(of_each_worker))
    return functools.partial(coordinator.schedule, step, args=(batches,))


def main(cluster, work, folder, threads):
    """Has steps done, one for each worker, for each line."""
    if threads:
        tensorflow.config.threading.set_intra_op_parallelism_threads(threads)
    schedule = steps_of(work, folder, strategy_of(cluster))
    workers, pending = len(cluster['worker']), collections.deque()
    # So many are asked for before they are waited for: no worker waits for another, nor for us.
    pending.extend(schedule() for _ in range(workers))
    for _ in sys.stdin:
        pending.extend(schedule() for _ in range(workers))
        losses = [float(pending.popleft().fetch()) for _ in range(workers)]
        print(statistics.mean(losses), flush=True)


if __name__ == '__main__':
    main(
        ast.literal_eval(sys.argv[1]),
        models.WORKS[sys.argv[2]](**ast.literal_eval(sys.argv[3])),
        sys.argv[4],
        int(sys.argv[5]),
    )
