"""The private side of an `OptimizerV2` of Keras, which takes rows, as those of `tf.train` do.

Keras 2.4 to 2.10 call them `keras.optimizers`, later ones `keras.optimizers.legacy`.
"""

import contextlib
import importlib

from keras_parallax.compat import tensorflow_api
from keras_parallax.compat.stack import generation
from keras_parallax.compat.tensorflow_api import tf

#: The base class, or `()` where Keras has none.
OPTIMIZER_V2 = generation.OPTIMIZER_V2

#: The class of those that scale the loss for another one, or `()` where Keras has none.
LOSS_SCALE_OPTIMIZER = generation.LOSS_SCALE_OPTIMIZER

#: The modules of Keras's optimizers of the first kind, which make tensors of their gradients.
MODULES = generation.OPTIMIZER_MODULES

#: Clipping, as an optimizer keeps it: with TensorFlow 1.15 only where there is a bound.
_BOUNDS = ('_clipnorm', '_clipvalue', '_global_clipnorm', 'clipnorm', 'clipvalue')


def is_of_keras_2_3(optimizer):
    """Whether an optimizer that takes tensors has a `learning_rate`, and reads `lr` off it.

    Those of Keras 2.2.4 have `lr` itself, and not all list the number of steps.
    """
    return isinstance(getattr(type(optimizer), 'lr', None), property)


def is_known(cls, optimizer, ours):
    """Whether an `OptimizerV2` treats each row of each variable by the formula of Keras, or ours.

    Args:
        cls: its class, without our wrapper.
        optimizer: the optimizer, whose functions of a user's own may look at all gradients.
        ours: what the names of the modules of our own begin with.
    """
    folder = OPTIMIZER_V2.__module__.rpartition('.')[0] + '.'
    return (
        cls.__module__.startswith((folder, ours))
        and not getattr(optimizer, 'gradient_transformers', None)
        and getattr(optimizer, 'gradient_aggregator', None) is generation.USUAL_AGGREGATOR
        and not any(callable(getattr(cls, name, None)) for name in vars(optimizer))
    )


#: How many slots of a variable's size an `OptimizerV2` of Keras's own keeps, by its class's name.
_SLOTS = {
    'SGD': lambda optimizer: int(optimizer._momentum),
    'RMSprop': lambda optimizer: 1 + int(optimizer._momentum) + int(optimizer.centered),
    'Adam': lambda optimizer: 3 if optimizer.amsgrad else 2,
    'Adagrad': lambda optimizer: 1,
    'Adadelta': lambda optimizer: 2,
    'Adamax': lambda optimizer: 2,
    'Nadam': lambda optimizer: 2,
    'Ftrl': lambda optimizer: 2,
}


def slots_of(cls, optimizer):
    """How many slots of a variable's size an `OptimizerV2` keeps, which is one of Keras's own.

    Args:
        cls: its class, without our wrapper.
        optimizer: the optimizer; it need not have any yet.

    Returns:
        A number, or `None` if it is not known.
    """
    return _SLOTS[cls.__name__](optimizer) if cls.__name__ in _SLOTS else None


def kept_by(optimizer, variables):
    """The variables that an `OptimizerV2` keeps for some variables, whose updates are built.

    Args:
        optimizer: the optimizer.
        variables: the variables.

    Returns:
        A triple: a list of those that belong to none of them, `iterations` among them; a dict
        from names of slots to lists of variables, in order of `variables`; and all in the order of
        its weights in plain Keras, where a slot is a pair of one of `variables` and the number of
        its name. `None` if not all have the same slots.
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
    entries = {}
    for number, of_name in enumerate(slots.values()):
        entries.update((id(slot), (variable, number)) for variable, slot in zip(variables, of_name))
    made = iter(sorted(entries, key=_as_made(optimizer, variables).index))
    order = [
        entries[next(made)] if id(weight) in entries else weight
        for weight in optimizer._weights
        if id(weight) in entries or id(weight) not in are_slots
    ]
    return others, slots, order


def _as_made(optimizer, variables):
    """The ids of slots in the order in which they are made for variables that have none yet."""
    slots = []

    def add_slot(variable, name, *args, **kwargs):
        slots.append(id(optimizer.get_slot(variable, name)))
        return optimizer.get_slot(variable, name)

    vars(optimizer)['add_slot'] = add_slot
    try:
        optimizer._create_slots(variables)
    finally:
        del vars(optimizer)['add_slot']
    made_later = [id(weight) for weight in optimizer._weights if id(weight) not in slots]
    return slots + made_later


def inner_of(optimizer):
    """The optimizer for which a `LossScaleOptimizer` scales the loss; others themselves."""
    return optimizer._optimizer if isinstance(optimizer, LOSS_SCALE_OPTIMIZER) else optimizer


def hyperparameters(optimizer):
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


def scope_of(optimizer):
    """The name scope in which an `OptimizerV2` makes its slots, within that of the step."""
    return inner_of(optimizer)._name


def forget_slots(optimizer, variables):
    """Has an `OptimizerV2` make new slots for variables that it has updated before.

    Args:
        optimizer: the optimizer.
        variables: the variables.
    """
    for variable in variables:
        slots = optimizer._slots.pop(key_of(variable), {})
        gone = {id(slot) for slot in slots.values()}
        optimizer._weights[:] = [one for one in optimizer._weights if id(one) not in gone]


@contextlib.contextmanager
def without_clipping(optimizer):
    """While open, an `OptimizerV2` clips nothing."""
    bounds = {name: vars(optimizer)[name] for name in _BOUNDS if name in vars(optimizer)}
    for name in bounds:
        if name.startswith('_'):
            vars(optimizer)[name] = None
        else:
            del vars(optimizer)[name]
    try:
        yield
    finally:
        vars(optimizer).update(bounds)


@contextlib.contextmanager
def slots_made_in_place(optimizer):
    """While open, what a slot of an `OptimizerV2` starts with is made where the slot is.

    A session makes what Keras asks for once and for all, and holds it as long as it lives: as much
    memory as the slot takes (TF 2.21; proven by `tests/unit/compat/test_jemalloc.py`).
    """
    make = optimizer.add_slot

    def add_slot(var, slot_name, initializer='zeros', **arguments):
        return make(var, slot_name, _in_place(initializer), **arguments)

    vars(optimizer)['add_slot'] = add_slot
    try:
        yield
    finally:
        del vars(optimizer)['add_slot']


def _in_place(initializer):
    """What has the values of an initializer of Keras's own optimizers, as far as it is known."""
    start = 0.0 if initializer == 'zeros' else getattr(initializer, 'value', None)
    if not isinstance(start, float):
        return initializer

    def values(shape, dtype):
        zeros = tensorflow_api.zeros(shape.as_list(), dtype)
        return zeros + start if start else zeros

    return values


def key_of(variable):
    """What an `OptimizerV2` knows a variable by."""
    return importlib.import_module(OPTIMIZER_V2.__module__)._var_key(variable)


def share_steps(optimizer, other):
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
def counted_elsewhere(optimizer):
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
