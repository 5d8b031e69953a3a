"""Sparse updates of an `OptimizerV2` of Keras that differ from its own.

Where rows without a gradient are to rest: most of Keras's own leave them alone by themselves. In
Adam, Nadam, and RMSprop without momentum, the slots of all rows decay, and Adam moves all rows
(Keras 2.15 and 2.21; proven by `tests/unit/updates/test_row_rules.py`). Their formulas are here,
for the rows that have a gradient. And where several workers write at a time.
"""

import contextlib

from keras_parallax.compat.tensorflow_api import run_kernel, tf


def _adam(of, gradient, slots):
    mean = of['beta_1_t'] * slots[0] + of['one_minus_beta_1_t'] * gradient
    square = of['beta_2_t'] * slots[1] + of['one_minus_beta_2_t'] * tf.square(gradient)
    new_slots, spread = [mean, square], square
    if len(slots) == 3:
        spread = tf.maximum(slots[2], square)
        new_slots.append(spread)
    return of['lr'] * mean / (tf.sqrt(spread) + of['epsilon']), new_slots


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


def _formula_of(optimizer):
    """The formula for touched rows and the names of its slots, or `None` if Keras's own is it."""
    names = {cls.__name__ for cls in type(optimizer).__mro__}
    if 'Adam' in names:
        return _adam, ['m', 'v'] + ['vhat'] * bool(optimizer.amsgrad)
    if 'Nadam' in names:
        return _nadam, ['m', 'v']
    if 'RMSprop' in names and not optimizer._momentum:
        return _rmsprop, ['rms'] + ['mg'] * bool(optimizer.centered)
    return None


def moves_all_rows(optimizer):
    """Whether a sparse update of an `OptimizerV2` moves all rows, or changes the slots of all."""
    return _formula_of(optimizer) is not None


@contextlib.contextmanager
def rows_alone(optimizer):
    """While open, one of Keras's own builds sparse updates of touched rows and their slots only.

    Args:
        optimizer: an `OptimizerV2`.
    """
    formula = _formula_of(optimizer)
    if formula is None:
        yield
        return
    step, names = formula

    def apply(grad, var, indices, apply_state=None):
        key = var.device, var.dtype.base_dtype
        of = (apply_state or {}).get(key) or optimizer._fallback_apply_state(*key)
        slots = [optimizer.get_slot(var, name) for name in names]
        decrease, new = step(of, grad, [tf.gather(slot, indices) for slot in slots])
        moved = optimizer._resource_scatter_add(var, indices, -decrease)
        updates = [
            optimizer._resource_scatter_update(slot, indices, values)
            for slot, values in zip(slots, new)
        ]
        return tf.group(moved, *updates)

    vars(optimizer)['_resource_apply_sparse'] = apply
    try:
        yield
    finally:
        del vars(optimizer)['_resource_apply_sparse']


@contextlib.contextmanager
def locked(optimizer):
    """While open, one of Keras's own builds updates of which none is lost to another worker's.

    Its kernels lock what they write; but what SGD without momentum adds to rows does not
    (`ResourceScatterAdd`, TF 2.21; proven by `tests/parallel/test_async.py`). A kernel that locks
    has the same formula. What takes several operations, as in Adam, may still mix with another's.

    Args:
        optimizer: an `OptimizerV2`.
    """
    before = vars(optimizer).get('_use_locking', False)
    adds = any(cls.__name__ == 'SGD' for cls in type(optimizer).__mro__) and not optimizer._momentum

    def apply(grad, var, indices, apply_state=None):
        key = var.device, var.dtype.base_dtype
        of = (apply_state or {}).get(key) or optimizer._fallback_apply_state(*key)
        return run_kernel(
            'sparse_apply_proximal_gradient_descent',
            [var],
            alpha=of['lr_t'],
            l1=0.0,
            l2=0.0,
            grad=grad,
            indices=indices,
        )

    own = {'_use_locking': True}
    if adds:
        own['_resource_apply_sparse_duplicate_indices'] = apply
    vars(optimizer).update(own)
    try:
        yield
    finally:
        vars(optimizer)['_use_locking'] = before
        vars(optimizer).pop('_resource_apply_sparse_duplicate_indices', None)
