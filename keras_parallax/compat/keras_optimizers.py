# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The private side of an `OptimizerV2` of Keras, which takes rows, as those of `tf.train` do.

Keras 2.4 to 2.10 call them `keras.optimizers`, later ones `keras.optimizers.legacy`.
"""

import contextlib
import importlib
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from keras_parallax.compat import tensorflow_api
from keras_parallax.compat.installed_frameworks import generation
from keras_parallax.compat.stand_ins import stand_in
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.framework_types import Mixin, Tensor, Variable

#: The base class, or `()` where Keras has none.
OPTIMIZER_V2 = generation.OPTIMIZER_V2

#: The class of those that scale the loss for another one, or `()` where Keras has none.
LOSS_SCALE_OPTIMIZER = generation.LOSS_SCALE_OPTIMIZER

#: The modules of Keras's optimizers of the first kind, which make tensors of their gradients.
MODULES = generation.OPTIMIZER_MODULES


def is_of_keras_2_3(optimizer: Any) -> bool:
    """Whether an optimizer that takes tensors has a `learning_rate`, and reads `lr` off it.

    Those of Keras 2.2.4 have `lr` itself, and not all list the number of steps.
    """
    return isinstance(getattr(type(optimizer), 'lr', None), property)


def is_known(cls: type, optimizer: Any, ours: Tuple[str, ...]) -> bool:
    """Whether an `OptimizerV2` treats each row of each variable by the formula of Keras, or ours.

    Args:
        cls: its class, without our wrapper.
        optimizer: the optimizer, whose functions of a user's own may look at all gradients.
        ours: what the names of the modules of our own begin with, a tuple.
    """
    folder = OPTIMIZER_V2.__module__.rpartition('.')[0] + '.'
    return (
        cls.__module__.startswith((folder, *ours))
        and not getattr(optimizer, 'gradient_transformers', None)
        and getattr(optimizer, 'gradient_aggregator', None) is generation.USUAL_AGGREGATOR
        and not any(callable(getattr(cls, name, None)) for name in vars(optimizer))
    )


def has_momentum(optimizer: Any) -> bool:
    """Whether an SGD or RMSprop of Keras, an `OptimizerV2`, keeps a slot for momentum."""
    return bool(optimizer._momentum)


class Kept(NamedTuple):
    """The variables that an `OptimizerV2` keeps for some variables.

    Attributes:
        others: those that belong to none of the variables, `iterations` among them.
        slots: dict from names of slots to lists of variables, in the order of the variables.
        order: all in the order of the optimizer's weights in plain Keras, where a slot is a pair of
            one of the variables and the number of the slot's name.
    """

    others: List[Variable]
    slots: Dict[str, List[Variable]]
    order: List[Any]


def kept_by(optimizer: Any, variables: Sequence[Variable]) -> Optional[Kept]:
    """The variables that an `OptimizerV2` keeps for some variables, whose updates are built.

    Args:
        optimizer: the optimizer.
        variables: the variables.

    Returns:
        `Kept`, or `None` if not all variables have the same slots.
    """
    slots = {}
    of_each = [optimizer._slots.get(key_of(variable), {}) for variable in variables]
    for name in optimizer.get_slot_names():
        slots[name] = [of_variable.get(name) for of_variable in of_each]
    all_slots = [slot for of_name in slots.values() for slot in of_name]
    if any(slot is None for slot in all_slots):
        return None
    are_slots = {id(slot) for of_each in optimizer._slots.values() for slot in of_each.values()}
    others = [weight for weight in optimizer._weights if id(weight) not in are_slots]
    entries: Dict[int, Any] = {}
    for number, of_name in enumerate(slots.values()):
        entries.update((id(slot), (variable, number)) for variable, slot in zip(variables, of_name))
    made = iter(sorted(entries, key=_as_made(optimizer, variables).index))
    order = [
        entries[next(made)] if id(weight) in entries else weight
        for weight in optimizer._weights
        if id(weight) in entries or id(weight) not in are_slots
    ]
    return Kept(others, slots, order)


def _as_made(optimizer: Any, variables: Sequence[Variable]) -> List[int]:
    """The ids of slots in the order in which they are made for variables that have none yet."""
    slots: List[int] = []
    stand_in(optimizer, _NotingSlots, type(optimizer), noted=slots)._create_slots(variables)
    made_later = [id(weight) for weight in optimizer._weights if id(weight) not in slots]
    return slots + made_later


class _NotingSlots(Mixin):
    """The methods of a stand-in that notes the ids of slots instead of making slots."""

    __slots__ = ()
    noted: List[int] = []

    def add_slot(self, var: Any, slot_name: str, *args: Any, **kwargs: Any) -> Any:
        """Notes and returns a slot that exists."""
        slot = self.get_slot(var, slot_name)
        self.noted.append(id(slot))
        return slot


def make_slots(optimizer: Any, variables: Any) -> None:
    """Has an `OptimizerV2` make all that it keeps for some variables, if it has not yet."""
    optimizer._create_all_weights(variables)


def inner_of(optimizer: Any) -> Any:
    """The optimizer for which a `LossScaleOptimizer` scales the loss; others themselves."""
    return optimizer._optimizer if isinstance(optimizer, LOSS_SCALE_OPTIMIZER) else optimizer


def hyperparameters(optimizer: Any) -> Dict[str, Any]:
    """The rates and counters of an `OptimizerV2`, a dict by attribute; of others an empty one."""
    inner = inner_of(optimizer)
    if not isinstance(inner, OPTIMIZER_V2):
        return {}
    found = dict(inner._hyper, iterations=inner.iterations)
    if getattr(inner, '_m_cache', None) is not None:
        found['m_schedule'] = inner._m_cache  # Nadam's, as Keras 2.2.4 calls it.
    if inner is not optimizer and optimizer.dynamic:
        state = optimizer._loss_scale
        found.update(loss_scale=state.current_loss_scale, loss_scale_steps=state.counter)
    return found


def scope_of(optimizer: Any) -> str:
    """The name scope in which an `OptimizerV2` makes its slots, within that of the step."""
    return inner_of(optimizer)._name


def slots_by_name(optimizer: Any, variable: Any) -> Dict[str, Any]:
    """The slots that an `OptimizerV2` has for a variable, by their names."""
    return dict(optimizer._slots.get(key_of(variable), {}))


def forget_slots(optimizer: Any, variables: Sequence[Variable]) -> None:
    """Has an `OptimizerV2` make new slots for variables that it has updated before.

    Args:
        optimizer: the optimizer.
        variables: the variables.
    """
    for variable in variables:
        slots = optimizer._slots.pop(key_of(variable), {})
        gone = {id(slot) for slot in slots.values()}
        optimizer._weights[:] = [one for one in optimizer._weights if id(one) not in gone]


def in_place(initializer: Any) -> Any:
    """An initializer that makes the values of a slot on the slot's device, given Keras's own.

    With Keras's own, a session keeps the initial value as long as it lives, which takes as much
    memory as the slot (TF 2.21; proven by `tests/unit/compat/test_jemalloc.py`). Initializers that
    are not known are returned as they are.
    """
    start = 0.0 if initializer == 'zeros' else getattr(initializer, 'value', None)
    if not isinstance(start, float):
        return initializer

    def values(shape: Any, dtype: Any) -> Tensor:
        zeros = tensorflow_api.zeros(shape.as_list(), dtype)
        return zeros + start if start else zeros

    return values


def key_of(variable: Variable) -> Any:
    """What an `OptimizerV2` knows a variable by."""
    return importlib.import_module(OPTIMIZER_V2.__module__)._var_key(variable)


def share_steps(optimizer: Any, other: Any) -> None:
    """Has an optimizer count the steps that another one counts."""
    other = inner_of(other)
    if not isinstance(optimizer, OPTIMIZER_V2):
        optimizer.iterations = other.iterations
        return
    # It can be set but once; Keras would make it when it builds updates, in this scope.
    optimizer._weights[:] = [one for one in optimizer._weights if one is not optimizer._iterations]
    optimizer._iterations = None
    with tf.name_scope(other._name + '/'):
        optimizer.iterations = other.iterations


@contextlib.contextmanager
def counted_elsewhere(optimizer: Any) -> Iterator[None]:
    """While open, updates of an `OptimizerV2` do not count a step, for another one's do.

    Args:
        optimizer: the optimizer, which has had its `share_steps`.
    """
    attributes = vars(optimizer.iterations)
    # A tensor, for TensorFlow 1.15 asks for its operation.
    attributes['assign_add'] = lambda *args, **kwargs: tf.constant(0)
    try:
        yield
    finally:
        del attributes['assign_add']
