# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What systems are set to alike: their sessions and their optimizers."""

from works import stack
from works.stack import tf

#: Keras's Adagrad divides by sqrt(a) + epsilon and starts a at 0; that of `tf.train` divides by
#: sqrt(a) and wants a start above 0. With these the two are the same for gradients above 1e-11.
EPSILON, TINY = 1e-12, 1e-24

#: The share of the rows of the language model's tables that a worker's batch touches.
LANGUAGE_DENSITY = {'words/embeddings': 0.014, 'softmax/kernel': 0.0176, 'softmax/bias': 0.0176}


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
    each process keeps the name of either: then the workers wait for each other for ever. Without
    that optimization of TensorFlow, and only that, they do not:
    tests/unit/engine/job/test_collectives.py.
    """
    config = session_config(threads)
    options = config.graph_options.optimizer_options
    options.opt_level = tf.OptimizerOptions.L0
    options.do_constant_folding = True
    return config


def tf_optimizer(work):
    """TensorFlow's optimizer of a work."""
    if work.optimizer == 'adagrad':
        return tf.train.AdagradOptimizer(work.rate, initial_accumulator_value=TINY)
    return tf.train.GradientDescentOptimizer(work.rate)


def keras_optimizer(work):
    """Keras's optimizer of a work, which learns the same."""
    optimizers = stack.keras_optimizers()
    if work.optimizer == 'adagrad':
        # That of TensorFlow 2 would start at 0.1.
        start = {'initial_accumulator_value': 0.0} if stack.HAS_TENSORFLOW_2 else {}
        return optimizers.Adagrad(work.rate, epsilon=EPSILON, **start)
    return optimizers.SGD(work.rate)
