# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Updates of rows that an `OptimizerV2` of Keras builds otherwise in our steps than by itself.

Four things differ. Rows without a gradient rest if the user asks for lazy updates; most optimizers
of Keras leave these rows alone by themselves, but in Adam, Nadam, and RMSprop without momentum, the
slots of all rows decay, and Adam moves all rows (Keras 2.15 and 2.21; proven by
`tests/unit/engine/updates/optimizers/test_formulas.py`). Rows may be stored in fewer bits than
their slots, which no kernel takes. Several workers may write at the same time. And each row comes
once. The row formulas are in `engine/updates/optimizers/`.
"""

from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

from keras_parallax.compat.keras_optimizers import has_momentum, in_place, key_of
from keras_parallax.compat.stand_ins import stand_in
from keras_parallax.compat.tensorflow_api import run_kernel, tf
from keras_parallax.framework_types import Mixin, Operation, Tensor, Variable


class RowFormula(NamedTuple):
    """How an optimizer moves rows that have a gradient.

    Attributes:
        slots: the names of the slots that it uses.
        step: function `(coefficients, gradient, slots) -> (decrease, new_slots)`, given the
            `apply_state` of the dtype and tensors of the shape of the gradient.
    """

    slots: Tuple[str, ...]
    step: Callable[..., Tuple[tf.Tensor, List[tf.Tensor]]]


class NarrowRows(NamedTuple):
    """A variable whose rows are kept in fewer bits than its slots.

    Attributes:
        variable: the variable.
        dtype: the dtype of its slots and gradients.
        keep: function from the numbers of rows, and their values in that dtype, to the values to
            keep.
    """

    variable: tf.Variable
    dtype: tf.DType
    keep: Callable[[tf.Tensor, tf.Tensor], tf.Tensor]


def updating(
    optimizer: Any,
    cls: type,
    formula: Optional[RowFormula] = None,
    by_formula: bool = False,
    alone: bool = True,
    narrow: Sequence[NarrowRows] = (),
) -> Any:
    """A stand-in for an `OptimizerV2` that builds updates; the optimizer stays as it is.

    The stand-in takes gradients that are clipped already, and each row of a variable once.

    Args:
        optimizer: the optimizer, one of Keras's own or of ours.
        cls: its class, without our wrapper.
        formula: its `RowFormula`, if that is known.
        by_formula: whether rows move by the formula instead of by the optimizer's own update. This
            is for lazy updates by an optimizer that moves all rows by itself, and for optimizers of
            ours if several workers write: their own updates set rows, which would undo what another
            worker has done.
        alone: whether no other worker updates the same variables at a time.
        narrow: the variables whose rows are kept in fewer bits than their slots.
    """
    of_narrow = {key_of(one.variable): one for one in narrow}
    methods = _ByFormula if by_formula else _Updating
    locking = {} if alone else {'_use_locking': property(lambda self: True)}
    settings = _Settings(
        formula, alone, of_narrow, cls.__name__ == 'SGD' and not has_momentum(optimizer)
    )
    return stand_in(optimizer, methods, cls, _settings=settings, **locking)


class _Settings(NamedTuple):
    """How a stand-in updates rows.

    Attributes:
        formula, alone: as `updating` takes them.
        narrow: dict from the keys of variables to `NarrowRows`.
        adds_to_rows: whether the optimizer is SGD without momentum, whose update adds to rows, so
            that Keras sums no rows for it.
    """

    formula: Optional[RowFormula]
    alone: bool
    narrow: Dict[Any, NarrowRows]
    adds_to_rows: bool


class _Updating(Mixin):
    """The methods of a stand-in that differ from those of the optimizer."""

    __slots__ = ()
    _settings = _Settings(None, True, {}, False)

    def add_slot(
        self, var: Any, slot_name: str, initializer: Any = 'zeros', **arguments: Any
    ) -> Any:
        """Adds a slot of the dtype of the gradients, with initial values made on its device."""
        if key_of(var) in self._settings.narrow:
            var = _OfDtype(var, self._settings.narrow[key_of(var)].dtype)
        return super().add_slot(var, slot_name, in_place(initializer), **arguments)

    def _transform_gradients(self, grads_and_vars: Any) -> Any:
        # The gradients are clipped already.
        return grads_and_vars

    def _resource_apply_sparse_duplicate_indices(
        self, grad: Tensor, var: Variable, indices: Tensor, **arguments: Any
    ) -> Operation:
        """Moves rows that come once, so that repeated rows need not be summed.

        Keras sums them by operations that copy all values. The sum of one value is the same to the
        bit.
        """
        settings = self._settings
        # Without waiting, Adam would decay the slots of all rows as soon as a worker begins its
        # step, while another worker still saves them (`tests/parallel/test_saving.py`, adam, with
        # TensorFlow 2).
        with tf.control_dependencies([grad, var, indices]):
            if key_of(var) in settings.narrow:
                return self._move_narrow_rows(grad, var, indices)
            if not settings.adds_to_rows:
                return self._resource_apply_sparse(grad, var, indices, **arguments)
            if settings.alone:
                return super()._resource_apply_sparse_duplicate_indices(
                    grad, var, indices, **arguments
                )
            # Keras's kernels lock what they write, but the one that adds to rows does not
            # (`ResourceScatterAdd`, TF 2.21; proven by `tests/parallel/test_async.py`). An update
            # of several operations, such as Adam's, may still mix with another worker's.
            rate = _coefficients(self, var, var.dtype, **arguments)['lr_t']
            return _subtracted(var, indices, rate, grad)

    def _move_narrow_rows(self, grad: Tensor, var: Variable, indices: Tensor) -> Operation:
        _, dtype, keep = self._settings.narrow[key_of(var)]
        decrease, writes = _step(self, self._settings.formula, var, indices, grad)
        moved = keep(indices, tf.cast(tf.gather(var, indices), dtype) - decrease)
        return tf.group(tf.scatter_update(var, indices, moved).op, *writes)


class _ByFormula(_Updating):
    """The methods of a stand-in that moves rows by the formula."""

    __slots__ = ()

    def _resource_apply_sparse(
        self, grad: Tensor, var: Variable, indices: Tensor, apply_state: Any = None
    ) -> Operation:
        decrease, writes = _step(self, self._settings.formula, var, indices, grad, apply_state)
        if self._settings.alone:
            return tf.group(tf.scatter_sub(var, indices, decrease).op, *writes)
        return tf.group(_subtracted(var, indices, 1.0, decrease), *writes)


class _OfDtype:
    """A variable as Keras makes a slot of another dtype for it."""

    def __init__(self, variable: Variable, dtype: Any) -> None:
        self._variable, self.dtype, self.true_dtype = variable, dtype, dtype

    def __getattr__(self, name: str) -> Any:
        return getattr(self._variable, name)


def _coefficients(
    optimizer: Any, var: Variable, dtype: Any, apply_state: Any = None
) -> Dict[str, Any]:
    """The coefficients that Keras has prepared for the device of a variable and a dtype."""
    key = var.device, dtype.base_dtype
    return (apply_state or {}).get(key) or optimizer._fallback_apply_state(*key)


def _step(
    optimizer: Any,
    formula: Any,
    var: Variable,
    indices: Tensor,
    grad: Tensor,
    apply_state: Any = None,
) -> Tuple[Tensor, List[Operation]]:
    """What a row formula makes of rows: by how much to decrease them, and what writes slots."""
    of = _coefficients(optimizer, var, grad.dtype, apply_state)
    slots = [optimizer.get_slot(var, name) for name in formula.slots]
    decrease, new = formula.step(of, grad, [tf.gather(slot, indices) for slot in slots])
    return decrease, [
        tf.scatter_update(slot, indices, values).op for slot, values in zip(slots, new)
    ]


def _subtracted(variable: Variable, rows: Tensor, rate: Any, values: Tensor) -> Operation:
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
