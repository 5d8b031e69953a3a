"""The systems that are compared: each makes a step function of the same model.

A step function takes a list of inputs and a target and returns this rank's loss before the update.
Everyone keeps to the form that its own documentation shows; what is set beyond that is said here.
"""

import functools
from typing import Callable, NamedTuple

import keras
import keras.backend as K
import models
import tensorflow as tf
import tf_ps

#: Keras's Adagrad divides by sqrt(a) + epsilon and starts a at 0; that of `tf.train` divides by
#: sqrt(a) and wants a start above 0. With these the two are the same for gradients above 1e-11.
EPSILON, TINY = 1e-12, 1e-24


class System(NamedTuple):
    """A system.

    Attributes:
        title: what it is called in reports.
        build: function `(work, cluster) -> step`.
        distributed: whether it trains on several workers.
    """

    title: str
    build: Callable
    distributed: bool = True


class Place(NamedTuple):
    """This process's place: `rank`, `size`, and a `gather` of JSON-able values from all ranks."""

    rank: int
    size: int
    gather: Callable


def session_config(threads):
    """The session configuration of every system: `threads` for one operation."""
    config = tf.ConfigProto(allow_soft_placement=True)
    if threads:
        config.intra_op_parallelism_threads = threads
    return config


def horovod_config(threads):
    """The session configuration of Horovod's own systems.

    Horovod 0.19.5 does not declare its operations stateful, so TensorFlow merges two that have the
    same input, such as the gathered ids of two tables that are looked up by the same column, and
    each process keeps the name of either: then the ranks wait for each other for ever. Without
    that optimization of TensorFlow, and only that, they do not:
    tests/unit/test_merged_collectives.py.
    """
    config = session_config(threads)
    options = config.graph_options.optimizer_options
    options.opt_level = tf.OptimizerOptions.L0
    options.do_constant_folding = True
    return config


def _loss_of(work, rank):
    """The model as raw TensorFlow takes it: placeholders, loss, further updates."""
    model, loss = work.build(models.Table, models.SampledSoftmax, rank)
    target = tf.placeholder(tf.float32, [None] + [None] * (K.ndim(model.output) - 1))
    return model, target, K.mean(loss(target, model.output))


def _tf_optimizer(work):
    if work.optimizer == 'adagrad':
        return tf.train.AdagradOptimizer(work.rate, initial_accumulator_value=TINY)
    return tf.train.GradientDescentOptimizer(work.rate)


def _keras_optimizer(work):
    if work.optimizer == 'adagrad':
        return keras.optimizers.Adagrad(lr=work.rate, epsilon=EPSILON)
    return keras.optimizers.SGD(lr=work.rate)


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
    K.set_session(tf.Session(config=session_config(threads)))
    return _compiled(work, place, _gated(_keras_optimizer(work)))


def _compiled(work, place, optimizer):
    model, loss = work.build(models.Table, models.SampledSoftmax, place.rank)
    model.compile(optimizer, loss)
    return lambda inputs, target: float(model.train_on_batch(inputs, target))


def raw_tensorflow(work, place, threads):
    """TensorFlow's optimizer, whose update of a table is sparse."""
    return _raw(work, place, session_config(threads), _tf_optimizer(work))


def _raw(work, place, config, optimizer, after=None):
    model, target, loss = _loss_of(work, place.rank)
    train = tf.group(optimizer.minimize(loss), *model.updates)
    session = tf.Session(config=config)
    # Once: an initializer that runs a second time gives other values.
    session.run(tf.global_variables_initializer())
    if after is not None:
        session.run(after())
    return _stepper(session, loss, train, model.inputs + [target])


def horovod_keras(work, place, threads):
    """`horovod.keras` as its documentation shows it. Keras makes whole tables of the gradients."""
    import horovod.keras as hvd

    hvd.init()
    K.set_session(tf.Session(config=horovod_config(threads)))
    step = _compiled(work, place, _gated(hvd.DistributedOptimizer(_keras_optimizer(work))))
    hvd.broadcast_global_variables(0)
    return step


def raw_horovod(work, place, threads, sparse_as_dense=False):
    """`horovod.tensorflow`: rows are allgathered, or with `sparse_as_dense` reduced as a table."""
    import horovod.tensorflow as hvd

    hvd.init()
    optimizer = hvd.DistributedOptimizer(_tf_optimizer(work), sparse_as_dense=sparse_as_dense)
    config = horovod_config(threads)
    return _raw(work, place, config, optimizer, lambda: hvd.broadcast_global_variables(0))


def parallax(work, place, threads, fp16=False, **arguments):
    """keras-parallax."""
    import keras_parallax as kp

    compression = kp.Compression.fp16 if fp16 else kp.Compression.none
    with kp.ParallaxStrategy(**arguments):
        optimizer = kp.ParallaxOptimizer(
            _keras_optimizer(work), compression=compression, pull_compression=compression
        )
        return _compiled(work, place, optimizer)


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
    'tf-ps': System('TensorFlow, parameter servers', tf_ps.build),
    'hybrid': _ours('hybrid'),
    'hybrid-fp16': _ours('hybrid, fp16', fp16=True),
    'allreduce': _ours('allreduce', architecture='allreduce'),
    'allreduce-fp16': _ours('allreduce, fp16', architecture='allreduce', fp16=True),
    'ps': _ours('ps', architecture='ps'),
    'ps-fp16': _ours('ps, fp16', architecture='ps', fp16=True),
}
