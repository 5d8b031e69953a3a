"""The private side of an `OptimizerV2` of Keras, which takes rows, as those of `tf.train` do.

Keras 2.4 to 2.10 call them `keras.optimizers`, later ones `keras.optimizers.legacy`.
"""

import contextlib
import importlib

from keras_parallax.compat.stack import generation

#: The base class, or `()` where Keras has none.
OPTIMIZER_V2 = generation.OPTIMIZER_V2

#: The modules of Keras's optimizers of the first kind, which make tensors of their gradients.
MODULES = generation.OPTIMIZER_MODULES

#: Clipping, as an optimizer keeps it.
_BOUNDS = ('_clipnorm', '_clipvalue', '_global_clipnorm')


def is_keras_own(cls, optimizer):
    """Whether an `OptimizerV2` treats each row of each variable by the formula of Keras.

    Args:
        cls: its class, without our wrapper.
        optimizer: the optimizer, whose functions of a user's own may look at all gradients.
    """
    folder = OPTIMIZER_V2.__module__.rpartition('.')[0] + '.'
    return (
        cls.__module__.startswith(folder)
        and not optimizer.gradient_transformers
        and optimizer.gradient_aggregator is generation.USUAL_AGGREGATOR
        and not any(callable(getattr(cls, name, None)) for name in vars(optimizer))
    )


def kept_by(optimizer, variables):
    """The variables that an `OptimizerV2` keeps for some variables, whose updates are built.

    Args:
        optimizer: the optimizer.
        variables: the variables.

    Returns:
        A pair: a list of those that belong to none of them, `iterations` among them, and a dict
        from names of slots to lists of variables, in order of `variables`. `None` if not all have
        the same slots.
    """
    key, slots = _key_function(), {}
    of_each = [optimizer._slots.get(key(variable), {}) for variable in variables]
    for name in optimizer.get_slot_names():
        slots[name] = [of_variable.get(name) for of_variable in of_each]
    all_slots = [slot for of_name in slots.values() for slot in of_name]
    if any(slot is None for slot in all_slots):
        return None
    are_slots = {id(slot) for of_each in optimizer._slots.values() for slot in of_each.values()}
    return [weight for weight in optimizer._weights if id(weight) not in are_slots], slots


def hyperparameters(optimizer):
    """The rates and counters of an `OptimizerV2`, a dict by attribute; of others an empty one."""
    if not isinstance(optimizer, OPTIMIZER_V2):
        return {}
    return dict(optimizer._hyper, iterations=optimizer.iterations)


def forget_slots(optimizer, variables):
    """Has an `OptimizerV2` make new slots for variables that it has updated before.

    Args:
        optimizer: the optimizer.
        variables: the variables.
    """
    key = _key_function()
    for variable in variables:
        slots = optimizer._slots.pop(key(variable), {})
        gone = {id(slot) for slot in slots.values()}
        optimizer._weights[:] = [one for one in optimizer._weights if id(one) not in gone]


@contextlib.contextmanager
def without_clipping(optimizer):
    """While open, an `OptimizerV2` clips nothing."""
    bounds = {name: vars(optimizer)[name] for name in _BOUNDS if name in vars(optimizer)}
    vars(optimizer).update(dict.fromkeys(bounds))
    try:
        yield
    finally:
        vars(optimizer).update(bounds)


def _key_function():
    return importlib.import_module(OPTIMIZER_V2.__module__)._var_key
