"""Sparse updates of an `OptimizerV2` of Keras that differ from its own, and the formulas for them.

Where rows without a gradient are to rest: most of Keras's own leave them alone by themselves. In
Adam, Nadam, and RMSprop without momentum, the slots of all rows decay, and Adam moves all rows
(Keras 2.15 and 2.21; proven by `tests/unit/updates/test_row_rules.py`). Where rows are kept in
fewer bits than their slots, which no kernel takes. And where several workers write at a time.
"""

import contextlib
from typing import Callable, NamedTuple, Tuple

from keras_parallax.compat.keras_optimizers import key_of
from keras_parallax.compat.tensorflow_api import run_kernel, tf


class RowFormula(NamedTuple):
    """How one of Keras's own, or of ours, moves rows that have a gradient.

    Attributes:
        slots: the names of the slots that it uses.
        step: function `(coefficients, gradient, slots) -> (decrease, new_slots)`, given the
            `apply_state` of the dtype and tensors of the shape of the gradient.
        moves_all_rows: whether Keras's own sparse update moves all rows, or changes their slots.
    """

    slots: Tuple[str, ...]
    step: Callable
    moves_all_rows: bool = False


def _sgd(of, gradient, slots):
    del slots
    return of['lr_t'] * gradient, []


def _momentum(of, gradient, slots):
    velocity = of['momentum'] * slots[0] - of['lr_t'] * gradient
    return -velocity, [velocity]


def _nesterov(of, gradient, slots):
    velocity = of['momentum'] * slots[0] - of['lr_t'] * gradient
    return of['lr_t'] * gradient - of['momentum'] * velocity, [velocity]


def _adagrad(of, gradient, slots):
    total = slots[0] + tf.square(gradient)
    return of['lr_t'] * gradient / (tf.sqrt(total) + of['epsilon']), [total]


def _adadelta(of, gradient, slots):
    rho, epsilon = of['rho'], of['epsilon']
    mean = rho * slots[0] + (1 - rho) * tf.square(gradient)
    update = gradient * tf.sqrt(slots[1] + epsilon) / tf.sqrt(mean + epsilon)
    return of['lr_t'] * update, [mean, rho * slots[1] + (1 - rho) * tf.square(update)]


def _adam(of, gradient, slots):
    mean = of['beta_1_t'] * slots[0] + of['one_minus_beta_1_t'] * gradient
    square = of['beta_2_t'] * slots[1] + of['one_minus_beta_2_t'] * tf.square(gradient)
    new_slots, spread = [mean, square], square
    if len(slots) == 3:
        spread = tf.maximum(slots[2], square)
        new_slots.append(spread)
    return of['lr'] * mean / (tf.sqrt(spread) + of['epsilon']), new_slots


def _adamax(of, gradient, slots):
    mean = of['beta_1_t'] * slots[0] + of['one_minus_beta_1_t'] * gradient
    largest = tf.maximum(of['beta_2_t'] * slots[1], tf.abs(gradient))
    return -of['neg_scaled_lr'] * mean / (largest + of['epsilon']), [mean, largest]


def _nadam(of, gradient, slots):
    mean = of['beta_1_t'] * slots[0] + of['one_minus_beta_1_t'] * gradient
    square = of['beta_2_t'] * slots[1] + of['one_minus_beta_2_t'] * tf.square(gradient)
    blend = of['one_minus_m_t'] * (gradient / of['one_minus_m_schedule_new']) + of['m_t_1'] * (
        mean / of['one_minus_m_schedule_next']
    )
    spread = tf.sqrt(square / of['v_t_prime_denominator']) + of['epsilon']
    return of['lr_t'] * blend / spread, [mean, square]


def _rmsprop(of, gradient, slots):
    square = of['rho'] * slots[0] + of['one_minus_rho'] * tf.square(gradient)
    new_slots, spread = [square], square
    if len(slots) == 2:
        mean = of['rho'] * slots[1] + of['one_minus_rho'] * gradient
        new_slots.append(mean)
        spread = square - tf.square(mean)
    return of['lr_t'] * gradient / (tf.sqrt(spread) + of['epsilon']), new_slots


def _rmsprop_with_momentum(of, gradient, slots):
    """As TensorFlow's kernel, which has epsilon under the root."""
    square = of['rho'] * slots[0] + of['one_minus_rho'] * tf.square(gradient)
    new_slots, spread = [square], square
    if len(slots) == 3:
        mean = of['rho'] * slots[2] + of['one_minus_rho'] * gradient
        new_slots.append(mean)
        spread = square - tf.square(mean)
    step = of['momentum'] * slots[1] + of['lr_t'] * gradient * tf.rsqrt(spread + of['epsilon'])
    return step, [square, step] + new_slots[1:]


def _of_sgd(optimizer):
    if not optimizer._momentum:
        return RowFormula((), _sgd)
    return RowFormula(('momentum',), _nesterov if optimizer.nesterov else _momentum)


def _of_rmsprop(optimizer):
    centered = ('mg',) * bool(optimizer.centered)
    if optimizer._momentum:
        return RowFormula(('rms', 'momentum') + centered, _rmsprop_with_momentum)
    return RowFormula(('rms',) + centered, _rmsprop, moves_all_rows=True)


#: By the names of the classes: functions from an optimizer to its `RowFormula`.
_FORMULAS = {
    'SGD': _of_sgd,
    'RMSprop': _of_rmsprop,
    'Adagrad': lambda optimizer: RowFormula(('accumulator',), _adagrad),
    'Adadelta': lambda optimizer: RowFormula(('accum_grad', 'accum_var'), _adadelta),
    'Adam': lambda optimizer: RowFormula(
        ('m', 'v') + ('vhat',) * bool(optimizer.amsgrad), _adam, moves_all_rows=True
    ),
    'Adamax': lambda optimizer: RowFormula(('m', 'v'), _adamax),
    'Nadam': lambda optimizer: RowFormula(('m', 'v'), _nadam, moves_all_rows=True),
}


def _is_of_ours(optimizer):
    return hasattr(type(optimizer), 'row_formula')


def formula_of(optimizer):
    """The `RowFormula` of an `OptimizerV2`, or `None` if it is not known.

    Args:
        optimizer: the optimizer, maybe of a class that has a `row_formula`.
    """
    if _is_of_ours(optimizer):
        return RowFormula(*optimizer.row_formula())
    names = [cls.__name__ for cls in type(optimizer).__mro__]
    name = next((name for name in names if name in _FORMULAS), None)
    return name and _FORMULAS[name](optimizer)


def moves_all_rows(optimizer):
    """Whether a sparse update of an `OptimizerV2` moves all rows, or changes the slots of all."""
    formula = formula_of(optimizer)
    return formula is not None and formula.moves_all_rows


def _step(optimizer, var, indices, grad, apply_state=None):
    """What a row formula makes of rows: by how much to decrease them, and what writes slots."""
    formula = formula_of(optimizer)
    key = var.device, grad.dtype.base_dtype
    of = (apply_state or {}).get(key) or optimizer._fallback_apply_state(*key)
    slots = [optimizer.get_slot(var, name) for name in formula.slots]
    decrease, new = formula.step(of, grad, [tf.gather(slot, indices) for slot in slots])
    return decrease, [
        tf.scatter_update(slot, indices, values).op for slot, values in zip(slots, new)
    ]


@contextlib.contextmanager
def by_formula(optimizer, lazy, alone):
    """While open, an optimizer builds some sparse updates by its formula for touched rows.

    Those of Keras's own if rows without a gradient are to rest and would not, and those of ours if
    several workers write: by themselves they set rows, which would undo what another has done.

    Args:
        optimizer: an `OptimizerV2`.
        lazy: whether rows without a gradient are to rest.
        alone: whether no other worker updates the same variables.
    """
    if not (lazy and moves_all_rows(optimizer)) and (alone or not _is_of_ours(optimizer)):
        yield
        return

    def apply(grad, var, indices, apply_state=None):
        decrease, writes = _step(optimizer, var, indices, grad, apply_state)
        if alone:
            return tf.group(tf.scatter_sub(var, indices, decrease).op, *writes)
        return tf.group(_subtracted(var, indices, 1.0, decrease), *writes)

    vars(optimizer)['_resource_apply_sparse'] = apply
    try:
        yield
    finally:
        del vars(optimizer)['_resource_apply_sparse']


@contextlib.contextmanager
def rounded(optimizer, narrow):
    """While open, one whose formula is known builds updates of rows that are kept in fewer bits.

    Args:
        optimizer: an `OptimizerV2`.
        narrow: a list of triples: a variable, the dtype of its slots and gradients, and a function
            from the numbers of rows, and their values in that dtype, to the values to keep.
    """
    by_key = {key_of(variable): (dtype, keep) for variable, dtype, keep in narrow}
    if not narrow:
        yield
        return
    make, apply_wide = optimizer.add_slot, optimizer._resource_apply_sparse_duplicate_indices

    def apply(grad, var, indices, **arguments):
        if key_of(var) not in by_key:
            return apply_wide(grad, var, indices, **arguments)
        dtype, keep = by_key[key_of(var)]
        # Each row once, as they come from all ranks.
        decrease, writes = _step(optimizer, var, indices, grad)
        moved = keep(indices, tf.cast(tf.gather(var, indices), dtype) - decrease)
        return tf.group(tf.scatter_update(var, indices, moved).op, *writes)

    def add_slot(var, *arguments, **named):
        if key_of(var) in by_key:
            var = _OfDtype(var, by_key[key_of(var)][0])
        return make(var, *arguments, **named)

    own = {'add_slot': add_slot, '_resource_apply_sparse_duplicate_indices': apply}
    vars(optimizer).update(own)
    try:
        yield
    finally:
        for name in own:
            vars(optimizer).pop(name, None)


class _OfDtype:
    """A variable as Keras makes a slot of another dtype for it."""

    def __init__(self, variable, dtype):
        self._variable, self.dtype, self.true_dtype = variable, dtype, dtype

    def __getattr__(self, name):
        return getattr(self._variable, name)


@contextlib.contextmanager
def locked(optimizer):
    """While open, one of Keras's own builds updates of which none is lost to another worker's.

    Its kernels lock what they write; but what SGD without momentum adds to rows does not
    (`ResourceScatterAdd`, TF 2.21; proven by `tests/parallel/test_async.py`). A kernel that locks
    has the same formula. What takes several operations, as in Adam, may still mix with another's.

    Args:
        optimizer: an `OptimizerV2`.
    """
    before, adds = vars(optimizer).get('_use_locking', False), _adds_to_rows(optimizer)

    def apply(grad, var, indices, apply_state=None):
        key = var.device, var.dtype.base_dtype
        of = (apply_state or {}).get(key) or optimizer._fallback_apply_state(*key)
        return _subtracted(var, indices, of['lr_t'], grad)

    own = {'_use_locking': True}
    if adds:
        own['_resource_apply_sparse_duplicate_indices'] = apply
    vars(optimizer).update(own)
    try:
        yield
    finally:
        vars(optimizer)['_use_locking'] = before
        vars(optimizer).pop('_resource_apply_sparse_duplicate_indices', None)


@contextlib.contextmanager
def given_each_row_once(optimizer):
    """While open, an optimizer takes rows as they come, and looks for none that comes twice.

    Keras would sum what comes for a row first, by operations that copy all values. Of rows that
    come once the sum is the same, to the bit.

    Args:
        optimizer: an `OptimizerV2`, one of Keras's own or of ours.
    """
    name = '_resource_apply_sparse_duplicate_indices'
    if name in vars(optimizer) or _adds_to_rows(optimizer):
        yield
        return
    vars(optimizer)[name] = optimizer._resource_apply_sparse
    try:
        yield
    finally:
        vars(optimizer).pop(name, None)


def _adds_to_rows(optimizer):
    """Whether it is SGD without momentum, which adds to rows whatever comes for them."""
    is_sgd = any(cls.__name__ == 'SGD' for cls in type(optimizer).__mro__)
    return is_sgd and not optimizer._momentum


def _subtracted(variable, rows, rate, values):
    """Subtracts values times a rate from rows of a variable by a kernel that locks it."""
    return run_kernel(
        'sparse_apply_proximal_gradient_descent',
        [variable],
        alpha=rate,
        l1=0.0,
        l2=0.0,
        grad=values,
        indices=rows,
    )
