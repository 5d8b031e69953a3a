"""The private side of a `tf.train.Optimizer`: what it keeps, and how it takes rows."""

import contextlib

from keras_parallax.compat.tensorflow_api import tf

#: Where the optimizers of TensorFlow and of `tf.contrib.opt` come from.
OF_TENSORFLOW = ('tensorflow.python.training.', 'tensorflow.contrib.opt.')

#: The methods that are given rows: those of a `tf.train.Optimizer`, and the second of an
#: `OptimizerV2`, too.
_OF_ROWS = ('_apply_sparse_duplicate_indices', '_resource_apply_sparse_duplicate_indices')


def sums_own_rows(optimizer):
    """Whether a `tf.train.Optimizer` of a user's takes rows that come more than once itself."""
    return any(
        not getattr(optimizer, method).__func__.__module__.startswith(OF_TENSORFLOW)
        for method in _OF_ROWS
    )


@contextlib.contextmanager
def waiting_for_rows(optimizer):
    """While open, what an optimizer builds for a gradient of rows waits for that gradient.

    Adam would let the slots of all rows decay as soon as a worker begins its step, while another
    one, which has not, saves them (`tests/parallel/test_saving.py`, adam, with TensorFlow 2).

    Args:
        optimizer: a `tf.train.Optimizer`, or an `OptimizerV2` of Keras.
    """

    def waiting(apply):
        def apply_then(grad, *others, **named):
            with tf.control_dependencies([grad, *others]):
                return apply(grad, *others, **named)

        return apply_then

    names = [name for name in _OF_ROWS if hasattr(optimizer, name)]
    vars(optimizer).update({name: waiting(getattr(optimizer, name)) for name in names})
    try:
        yield
    finally:
        for name in names:
            del vars(optimizer)[name]


def kept_by(optimizer, graph, variables):
    """The variables that a `tf.train.Optimizer` keeps for some of its graph's variables.

    Args:
        optimizer: the optimizer, whose updates are built.
        graph: the graph.
        variables: variables of the graph, all of which it updates.

    Returns:
        A pair: dict from names to the variables that belong to none of them, such as the powers of
        Adam's betas, and dict from names of slots to lists of variables, in order of `variables`.
        `None` if it keeps more than a number besides slots, or not the same slots for all.
    """
    # `variables()` lists them without their names (TF 1.11).
    others = {name: slot for (name, of), slot in optimizer._non_slot_dict.items() if of is graph}
    slots = {
        name: [optimizer.get_slot(variable, name) for variable in variables]
        for name in optimizer.get_slot_names()
    }
    all_slots = [slot for of_name in slots.values() for slot in of_name]
    if None in all_slots or any(slot.shape.ndims != 0 for slot in others.values()):
        return None
    return others, slots


def forget_slots(optimizer, variables):
    """Has a `tf.train.Optimizer` make new slots for variables that it has updated before.

    It would keep those that it has (TF 1.11; proven by `tests/parallel/test_behaviour.py`, the case
    `measured:tf_adam`).

    Args:
        optimizer: the optimizer.
        variables: the variables.
    """
    for slots in optimizer._slots.values():
        for variable in variables:
            slots.pop((variable.op.graph, variable.op.name), None)
