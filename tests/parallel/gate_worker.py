# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Run by `horovodrun`: prints what reads and writes a training step, for each Keras package.

Every read of a dense variable in a training step must come before every write to it. That a step
does not read a half-updated variable can otherwise only be seen by chance. So `WRITES n READS n`
counts both in the graph.

`METRIC package architecture name values expected` has what metrics of slow reads of weights gave on
a worker in each batch, and what the weights were before the batch.
"""

import json
import os
import sys
import time

from frameworks import KERAS_PACKAGES, TF2, tf

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir))
import cases  # noqa: E402

import keras_parallax as kp  # noqa: E402
from keras_parallax.compat import (
    graph_queries,  # noqa: E402
    tensorflow_api,  # noqa: E402
)


def value_reads(storage):
    """The operations, a list, that give the value of a variable, in loops and branches too."""
    reads, pending = [], [storage]
    while pending:
        for operation in pending.pop().consumers():
            if operation.type in graph_queries.ENTRANCES:
                pending.extend(operation.outputs)
            elif operation.type in ('Identity', 'ReadVariableOp'):
                reads.append(operation)
    return reads


def order_of(model):
    """The numbers of writes and of reads; fails if a write does not wait for a read."""
    step = graph_queries.ancestors([model.train_function.updates_op, model.total_loss])
    writes = reads = 0
    for variable in model.trainable_weights[1:]:
        storage = tensorflow_api.storage(variable)
        writers = [
            op for op in storage.consumers() if op in step and tensorflow_api.writes_to(op, storage)
        ]
        readers = [
            reader
            for read in value_reads(storage)
            for reader in read.outputs[0].consumers()
            if reader in step
        ]
        for writer in writers:
            before = graph_queries.ancestors([writer])
            late = [reader.name for reader in readers if reader not in before]
            assert not late, (variable.name, late)
        writes, reads = writes + len(writers), reads + len(readers)
    return writes, reads


def _function(method):
    def function(truth, predicted):
        return method(truth, predicted)

    function.__name__ = method.__name__
    return function


class SlowSums:
    """Metrics that read weights of a model late in a step.

    Args:
        package: the Keras package.
        model: the model.
    """

    def __init__(self, package, model):
        self.backend, self.table = package.backend, model.layers[0].weights[0]
        self.kernel, self.ids = model.layers[-1].weights[0], model.inputs[0]
        self.layer = package.layers.Layer

    def _late(self, tensor):
        def wait(value):
            time.sleep(0.05)
            return value

        late = tf.py_func(wait, [tensor], tensor.dtype)
        late.set_shape(tensor.shape)
        return late

    def _sum(self, rows):
        return self.backend.sum(self.backend.cast(rows, 'float64'))

    def whole(self, truth, predicted):
        """The sum of the table, read whole."""
        with tf.control_dependencies([self._late(truth)]):
            return self._sum(self.table * 1.0)

    def looked_up(self, truth, predicted):
        """The sum of one row, looked up."""
        row = tf.cast(0 * self._late(tf.reshape(truth, [-1])[:1]), 'int32')
        return self._sum(self.backend.gather(self.table, row + 3))

    def dense(self, truth, predicted):
        """The sum of a kernel."""
        with tf.control_dependencies([self._late(truth)]):
            return self._sum(self.kernel * 1.0)

    def all(self):
        """Three metrics that are functions, and one that keeps what it has read.

        A metric of a class of the user's is a `tf.function` with Keras 2.15, which cannot read a
        table that has shards.
        """
        # Keras 2.15 sets attributes of a function that is a metric, which methods do not have.
        functions = list(map(_function, [self.whole, self.looked_up, self.dense]))
        return functions if TF2 else [*functions, self._kept()]

    def _kept(self):
        backend, whole = self.backend, self.whole

        class Kept(self.layer):
            """A metric as Keras 2.2.4 has them: a layer, whose result waits for no update."""

            def __init__(self):
                super().__init__(name='kept')
                self.stateful, self.sum = True, backend.variable(0.0)

            def reset_states(self):
                backend.set_value(self.sum, 0.0)

            def __call__(self, truth, predicted):
                value = tf.cast(whole(truth, predicted), 'float32')
                self.add_update(backend.update(self.sum, value), inputs=[truth, predicted])
                return self.sum * 1

        return Kept()

    def expected(self):
        """The values of all metrics, given the weights that there are."""
        table, kernel = map(self.backend.get_value, [self.table, self.kernel])
        whole = table.astype('float64').sum()
        return [whole, table[3].astype('float64').sum(), kernel.astype('float64').sum(), whole]


def print_metrics(name, architecture):
    package = cases.keras_module(name)
    package.backend.clear_session()
    case = cases.CASES['adagrad']
    with kp.ParallaxStrategy(architecture=architecture) as strategy:
        model = case.model(package)
        sums = SlowSums(package, model)
        metrics = sums.all()
        # A rate that tells a row that is moved from one that is not.
        model.compile(package.optimizers.SGD(0.5), case.loss, metrics=metrics)
    model.set_weights(cases.start_weights(model))
    rows = []
    for batch in cases.joined_batches(case, strategy.size, BATCHES):
        expected = sums.expected()
        found = model.train_on_batch(*cases.share(batch, strategy.rank, strategy.size))[1:]
        if not TF2:
            # What it has given is what it kept before.
            found[-1] = package.backend.get_value(metrics[-1].sum)
        rows.append([list(map(float, found)), expected[: len(metrics)]])
    print('METRIC %s' % json.dumps([name, architecture, rows]), flush=True)


#: A metric that is read half-way through an update is so in most batches.
BATCHES = 5

for name in KERAS_PACKAGES:
    for architecture in ('hybrid', 'ps', 'allreduce'):
        print_metrics(name, architecture)

for name in KERAS_PACKAGES:
    package = cases.keras_module(name)
    package.backend.clear_session()
    case = cases.CASES['adagrad']
    with kp.ParallaxStrategy() as strategy:
        model = case.model(package)
        model.compile(kp.ParallaxOptimizer(case.optimizer(package)), case.loss)
    batch = next(cases.joined_batches(case, strategy.size))
    model.train_on_batch(*cases.share(batch, strategy.rank, strategy.size))
    if strategy.rank == 0:
        print('WRITES %d READS %d' % order_of(model), flush=True)
