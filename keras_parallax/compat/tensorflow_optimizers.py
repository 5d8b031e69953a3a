# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The private side of a `tf.train.Optimizer`: what it keeps, and how it takes rows."""

from typing import Any, Dict, List, Optional, Sequence, Tuple

from keras_parallax.compat.stand_ins import stand_in
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.framework_types import Graph, Mixin, Operation, Tensor, Variable

#: Where the optimizers of TensorFlow and of `tf.contrib.opt` come from.
OF_TENSORFLOW = ('tensorflow.python.training.', 'tensorflow.contrib.opt.')

#: The methods that are given rows.
_OF_ROWS = ('_apply_sparse_duplicate_indices', '_resource_apply_sparse_duplicate_indices')


def sums_own_rows(optimizer: Any) -> bool:
    """Whether a `tf.train.Optimizer` of a user's takes rows that come more than once itself."""
    return any(
        not getattr(optimizer, method).__func__.__module__.startswith(OF_TENSORFLOW)
        for method in _OF_ROWS
    )


class _WaitingForRows(Mixin):
    """The methods of a stand-in whose updates of rows wait for the gradient."""

    __slots__ = ()

    def _apply_sparse_duplicate_indices(self, grad: Tensor, var: Variable) -> Operation:
        with tf.control_dependencies([grad, var]):
            return super()._apply_sparse_duplicate_indices(grad, var)

    def _resource_apply_sparse_duplicate_indices(
        self, grad: Tensor, handle: Tensor, indices: Tensor
    ) -> Operation:
        with tf.control_dependencies([grad, handle, indices]):
            return super()._resource_apply_sparse_duplicate_indices(grad, handle, indices)


def waiting_for_rows(optimizer: tf.train.Optimizer) -> tf.train.Optimizer:
    """A stand-in for an optimizer, whose updates of rows wait for the gradient.

    Without waiting, Adam would decay the slots of all rows when a worker begins its step, while
    another worker still saves them (`tests/parallel/test_saving.py`, adam, with TensorFlow 2).
    """
    return stand_in(optimizer, _WaitingForRows, type(optimizer))


def kept_by(
    optimizer: Any, graph: Graph, variables: Sequence[Variable]
) -> Optional[Tuple[Dict[str, Variable], Dict[str, List[Variable]]]]:
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


def slots_by_name(optimizer: Any, variable: Any) -> Dict[str, Any]:
    """The slots that a `tf.train.Optimizer` has for a variable, by their names."""
    key = variable.op.graph, variable.op.name
    return {name: slots[key] for name, slots in optimizer._slots.items() if key in slots}


def forget_slots(optimizer: Any, variables: Sequence[Variable]) -> None:
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
