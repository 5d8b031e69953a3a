"""The configurations of our sessions.

TensorFlow 1.11 has one pool of threads in a process for the insides of operations, and one for
operations of local sessions. The first session of the process settles how many threads they have,
whatever later ones ask for: so every configuration here asks for the same.
"""

import os

from keras_parallax.compat import tf


def of_worker(local_rank):
    """The session configuration of a worker: its own card, and no other, on a GPU machine.

    Args:
        local_rank: the worker's number on its host.

    Returns:
        A `tf.ConfigProto`. As in Keras, `OMP_NUM_THREADS` bounds the threads of one operation.
    """
    config = _with_threads(tf.ConfigProto(allow_soft_placement=True))
    config.gpu_options.visible_device_list = str(local_rank)
    config.gpu_options.allow_growth = True
    return config


def of_local(config):
    """A worker's configuration for a session without servers, of a job of several ranks.

    TensorFlow then leaves apart what has the same inputs. It would merge two collectives of a
    user's own, such as two allgathers of one tensor, for Horovod 0.19.5 does not declare them
    stateful. Each process would keep the name of either, and the ranks wait for each other for ever
    (`tests/unit/test_merged_collectives.py`). A ResNet's step is 3 % shorter besides
    (`docs/design/local-session.md`).

    Args:
        config: what `of_worker` returns.

    Returns:
        A `tf.ConfigProto`.
    """
    found = tf.ConfigProto()
    found.CopyFrom(config)
    options = found.graph_options.optimizer_options
    options.opt_level = tf.OptimizerOptions.L0
    options.do_constant_folding = True
    return found


def of_collectives():
    """The session configuration of small collective calls, without a card.

    Its operations have a thread of their own: what the ranks tell each other does not wait for a
    model's, nor the other way round.
    """
    return _with_threads(
        tf.ConfigProto(
            device_count={'GPU': 0}, inter_op_parallelism_threads=1, use_per_session_threads=True
        )
    )


def _with_threads(config):
    if os.environ.get('OMP_NUM_THREADS'):
        config.intra_op_parallelism_threads = int(os.environ['OMP_NUM_THREADS'])
    return config
