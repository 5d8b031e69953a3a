"""Run by `horovodrun`: prints `WRITES n` and `READS n` of dense variables for each Keras package.

Every read of a dense variable in a training step must come before every write to it. That a step
does not read a half-updated variable can otherwise only be seen by chance.
"""

import os
import sys

from frameworks import KERAS_PACKAGES

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
