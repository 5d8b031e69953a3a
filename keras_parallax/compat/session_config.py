# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The configurations of our sessions.

TensorFlow 1.11 has one pool of threads in a process for the insides of operations, and one for
operations of local sessions. The first session of the process settles how many threads they have,
whatever later ones ask for: so every configuration here asks for the same.
"""

import os
from typing import Any, Dict, List, Sequence

from keras_parallax.compat.installed_frameworks import generation, tf

#: What a strategy says itself: with which tasks a session deals, and that all share variables.
_OF_OTHER_CLUSTERS = ('device_filters', 'cluster_def', 'isolate_session_state')


#: A collection of a graph. It is not empty if sessions must optimize the graph.
OPTIMIZED = 'parallax/optimized'


def of_worker(card: int, given: Sequence[Any] = ()) -> Any:
    """The session configuration of a worker: its own card, and no other, on a GPU machine.

    Args:
        card: the number of the worker's card on its host.
        given: a list of a user's `tf.ConfigProto`s, of which later ones count more.

    Returns:
        A `tf.ConfigProto`: what was given, and what it does not say as Keras has it: soft
        placement, and `OMP_NUM_THREADS` as the bound of the threads of one operation. Memory of
        a card grows as it is needed.
    """
    config = _with_threads(tf.ConfigProto(allow_soft_placement=True))
    config.gpu_options.allow_growth = True
    for users in given:
        config.MergeFrom(users)
    if not config.gpu_options.visible_device_list:
        config.gpu_options.visible_device_list = str(card)
    for name in _OF_OTHER_CLUSTERS:
        config.ClearField(name)
    return config


def unfit(config: Any) -> List[str]:
    """What a `tf.ConfigProto` says that a session of a job cannot follow: a list of names."""
    return [name for name in _OF_OTHER_CLUSTERS if name in _fields(config)]


def dropped(config: Any, followed: Any) -> List[str]:
    """What a `tf.ConfigProto` says, and another does not: a list of names.

    Args:
        config: the `tf.ConfigProto`.
        followed: the other one, or `None`, which says nothing.
    """
    merged = tf.ConfigProto()
    if followed is not None:
        merged.CopyFrom(followed)
    of_followed = _fields(merged)
    merged.MergeFrom(config)
    of_merged = _fields(merged)
    return [name for name, value in of_merged.items() if value != of_followed.get(name)]


def _fields(config: Any) -> Dict[str, Any]:
    copied = tf.ConfigProto()
    copied.CopyFrom(config)
    return {field.name: value for field, value in copied.ListFields()}


def of_local(config: Any) -> Any:
    """A worker's configuration for a session without servers, of a job of several workers.

    TensorFlow then leaves apart what has the same inputs. It would merge two collectives of a
    user's own, such as two allgathers of one tensor, for Horovod 0.19.5 does not declare them
    stateful. Each process would keep the name of either, and the workers wait for each other for
    ever (`tests/unit/engine/job/test_collectives.py`). A ResNet's step is 3 % shorter besides
    (`docs/design/local-session.md`).

    Args:
        config: what `of_worker` returns.

    Returns:
        A `tf.ConfigProto`.
    """
    changed = tf.ConfigProto()
    changed.CopyFrom(config)
    options = changed.graph_options.optimizer_options
    options.opt_level = tf.OptimizerOptions.L0
    options.do_constant_folding = True
    return changed


def of_server(config: Any, keeps_optimizer: bool) -> Any:
    """A worker's configuration for a session that goes through its server.

    TensorFlow's graph optimizer (Grappler) is off, unless the user has set something of it. With
    100 tables it takes a tenth of the first step's processor time and a fifth of the memory, and
    steps are longer with it. Steps with loops are 4 % shorter (`docs/design/graph-optimizer.md`).

    Args:
        config: what `of_worker` returns.
        keeps_optimizer: whether the graph needs it: it has loops, or functions, which may have
            some, or is marked as `OPTIMIZED`.

    Returns:
        A `tf.ConfigProto`.
    """
    # With TensorFlow 1.6, which cannot be told so, `of_worker` sets what may be off.
    if keeps_optimizer or config.graph_options.HasField('rewrite_options'):
        return config
    changed = tf.ConfigProto()
    changed.CopyFrom(config)
    _leave_out_optimizer(changed.graph_options.rewrite_options)
    return changed


def _leave_out_optimizer(options: Any) -> None:
    """Sets the options of TensorFlow's graph optimizer so that TensorFlow does not call it at all.

    With `min_graph_nodes` it is called, copies the graph, and returns the copy as it is.
    """
    fields = options.DESCRIPTOR.fields_by_name
    if 'disable_meta_optimizer' in fields:
        options.disable_meta_optimizer = True
        return
    # TensorFlow 1.11 calls it unless each of its passes is off.
    for name, field in fields.items():
        if field.enum_type is not None and field.enum_type.name == 'Toggle':
            setattr(options, name, options.OFF)
    options.disable_model_pruning = True
    options.memory_optimization = options.NO_MEM_OPT


def without_card() -> Any:
    """The configuration of a session that leaves graphics cards alone.

    A session without a configuration would take the memory of every card, and TensorFlow refuses
    it in a process whose other sessions see another card.
    """
    return _with_threads(tf.ConfigProto(device_count={'GPU': 0}))


def of_collectives() -> Any:
    """The session configuration of small collective calls, without a card.

    Its operations have a thread of their own: what the workers tell each other does not wait for a
    model's, nor the other way round.
    """
    config = without_card()
    config.MergeFrom(tf.ConfigProto(inter_op_parallelism_threads=1, use_per_session_threads=True))
    return config


#: What a user has given for the threads inside operations, which the process has once.
_given = tf.ConfigProto()


def settle_threads(given: Sequence[Any]) -> None:
    """Has every configuration from now on ask for the threads inside operations that a user wants.

    Args:
        given: a list of the user's `tf.ConfigProto`s, of which later ones count more.
    """
    for config in given:
        if config.intra_op_parallelism_threads:
            _given.intra_op_parallelism_threads = config.intra_op_parallelism_threads


def is_fit(config: Any) -> bool:
    """Whether a session of a `tf.ConfigProto`, or `None`, has what every session of ours needs."""
    return not dropped(generation.CONFIG, config)


def _with_threads(config: Any) -> Any:
    config.MergeFrom(generation.CONFIG)
    if os.environ.get('OMP_NUM_THREADS'):
        config.intra_op_parallelism_threads = int(os.environ['OMP_NUM_THREADS'])
    config.MergeFrom(_given)
    return config
