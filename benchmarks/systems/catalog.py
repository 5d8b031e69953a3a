# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The systems that are compared: each makes a step function of the same model.

A step function takes a list of inputs and a target and returns this worker's loss before the
update, or nothing if another worker reports it.
What is learned can be read as whole arrays, as Keras orders them.
Everyone keeps to the form that its own documentation shows; what is set beyond that is said here.
"""

import functools
from typing import Any, Callable, NamedTuple

from works import models, stack
from works.stack import K, tf

from systems import ps_strategy, settings, tf_ps

#: The numbers of shards of a table that are compared.
SHARD_COUNTS = (1, 2, 4, 8, 16, 32)


class System(NamedTuple):
    """A system.

    Attributes:
        title: what it is called in reports.
        build: function `(work, place, threads) -> Training`.
        distributed: whether it trains on several workers.
        synchronous: whether it is to learn what one worker learns from all batches together.
        needs_tensorflow_2: whether no other stack has it.
        rests_horovod: whether Horovod, by which workers meet before and after steps, sleeps in
            them.
    """

    title: str
    build: Callable
    distributed: bool = True
    synchronous: bool = True
    needs_tensorflow_2: bool = False
    rests_horovod: bool = False


class Place(NamedTuple):
    """This process's place: `rank`, `size`, and a `gather` of JSON-able values from all workers."""

    rank: int
    size: int
    gather: Callable


class Training(NamedTuple):
    """What a system trains.

    Attributes:
        step: the step function.
        weights: function that reads the weights.
        model: the compiled model, where Keras trains it.
        plan: function to the plan that is followed, of a job that chooses its architecture.
    """

    step: Callable
    weights: Callable
    model: Any = None
    plan: Callable = None


def _loss_of(work, rank):
    """The model as raw TensorFlow takes it: placeholders, loss, further updates."""
    model, loss = work.build(models.Table, models.SampledSoftmax, rank)
    target = tf.placeholder(tf.float32, [None] + [None] * (K.ndim(model.output) - 1))
    return model, target, K.mean(loss(target, model.output))


def _stepper(session, loss, train, placeholders):
    """The fastest way to run a step: as Keras runs its own."""
    call = session.make_callable([loss, train], placeholders)
    return lambda inputs, target: float(call(*(inputs + [target]))[0])


def _gated(optimizer):
    """Has Keras wait for all gradients before it changes a variable.

    Keras 2.2.4 does not, so that it may change a weight which the backward pass has yet to read:
    the same script then gives other losses each time, and nothing could be compared with them.
    """
    gradients = optimizer.get_gradients
    optimizer.get_gradients = lambda *arguments: tf.tuple(gradients(*arguments))
    return optimizer


def plain_keras(work, place, threads):
    """Keras with its own optimizer."""
    K.set_session(tf.Session(config=settings.session_config(threads)))
    return _compiled(work, place, _gated(settings.keras_optimizer(work)))


def _compiled(work, place, optimizer):
    model, loss = work.build(models.Table, models.SampledSoftmax, place.rank)
    model.compile(optimizer, loss)
    return Training(
        lambda inputs, target: float(model.train_on_batch(inputs, target)),
        model.get_weights,
        model,
    )


def raw_tensorflow(work, place, threads):
    """TensorFlow's optimizer, whose update of a table is sparse."""
    return _raw(work, place, settings.session_config(threads), settings.tf_optimizer(work))


def _raw(work, place, config, optimizer, after=None):
    model, target, loss = _loss_of(work, place.rank)
    train = tf.group(optimizer.minimize(loss), *model.updates)
    session = tf.Session(config=config)
    # Once: an initializer that runs a second time gives other values.
    session.run(tf.global_variables_initializer())
    if after is not None:
        session.run(after())
    step = _stepper(session, loss, train, model.inputs + [target])
    return Training(step, lambda: session.run(model.weights))


def horovod_keras(work, place, threads):
    """`horovod.keras` as its documentation shows it. Keras makes whole tables of the gradients."""
    hvd = stack.horovod_keras()
    hvd.init()
    K.set_session(tf.Session(config=settings.horovod_config(threads)))
    training = _compiled(
        work, place, _gated(hvd.DistributedOptimizer(settings.keras_optimizer(work)))
    )
    hvd.broadcast_global_variables(0)
    return training


def raw_horovod(work, place, threads, sparse_as_dense=False):
    """`horovod.tensorflow`: rows are allgathered, or with `sparse_as_dense` reduced as a table."""
    import horovod.tensorflow as hvd

    hvd.init()
    optimizer = hvd.DistributedOptimizer(
        settings.tf_optimizer(work), sparse_as_dense=sparse_as_dense
    )
    config = settings.horovod_config(threads)
    return _raw(work, place, config, optimizer, lambda: hvd.broadcast_global_variables(0))


def tf_parameter_servers(work, place, threads):
    """TensorFlow's own parameter servers."""
    return Training(*tf_ps.build(work, place, threads))


def parameter_server_strategy(work, place, threads):
    """TensorFlow 2's strategy of that name."""
    return Training(ps_strategy.build(work, place, threads), None)


def parallax(work, place, threads, fp16=False, **arguments):
    """keras-parallax."""
    import keras_parallax as kp

    compression = kp.Compression.fp16 if fp16 else kp.Compression.none
    with kp.ParallaxStrategy(**arguments) as strategy:
        optimizer = kp.ParallaxOptimizer(
            settings.keras_optimizer(work), compression=compression, pull_compression=compression
        )
        training = _compiled(work, place, optimizer)
    if strategy.request.architecture == 'auto':
        training = training._replace(plan=lambda: strategy.plan(training.model))
    return training


def _ours(title, **arguments):
    return System('keras-parallax, ' + title, functools.partial(parallax, **arguments))


SYSTEMS = {
    'keras': System('Keras', plain_keras, distributed=False),
    'tf': System('TensorFlow, sparse apply', raw_tensorflow, distributed=False),
    'hvd-keras': System('horovod.keras', horovod_keras),
    'hvd-allgather': System('Horovod, sparse allgather', raw_horovod),
    'hvd-dense': System(
        'Horovod, sparse_as_dense', functools.partial(raw_horovod, sparse_as_dense=True)
    ),
    # What is published of TensorFlow 1.11 was measured with Horovod awake, which looks for work
    # every 5 ms there, and every 1 ms on TensorFlow 2.
    'tf-ps': System(
        'TensorFlow, parameter servers',
        tf_parameter_servers,
        rests_horovod=stack.HAS_TENSORFLOW_2,
    ),
    'tf-ps-strategy': System(
        'TensorFlow, ParameterServerStrategy',
        parameter_server_strategy,
        synchronous=False,
        needs_tensorflow_2=True,
        rests_horovod=True,
    ),
    'hybrid': _ours('hybrid'),
    'hybrid-fp16': _ours('hybrid, fp16', fp16=True),
    'allreduce': _ours('allreduce', architecture='allreduce'),
    'allreduce-fp16': _ours('allreduce, fp16', architecture='allreduce', fp16=True),
    'ps': _ours('ps', architecture='ps'),
    'ps-fp16': _ours('ps, fp16', architecture='ps', fp16=True),
    'auto': _ours('auto', architecture='auto'),
    # What each part brings: the parts come one after another.
    'hybrid-whole': _ours('tables in one piece', partitions=1, local_aggregation=False),
    'hybrid-shards': _ours('+ shards on all servers', local_aggregation=False),
    'hybrid-together': _ours('+ workers of a host together'),
    'hybrid-density': _ours('+ placed by density', density=settings.LANGUAGE_DENSITY),
}
SYSTEMS.update(
    ('shards-%d' % count, _ours('%d shards a table' % count, partitions=count))
    for count in SHARD_COUNTS
)


def is_here(system):
    """Whether this stack has a system, by its name."""
    return stack.HAS_TENSORFLOW_2 or not SYSTEMS[system].needs_tensorflow_2
