# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What is known of an optimizer: its formula for rows, and what each family of classes does."""

from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

from keras_parallax.compat.optimizer_v2_rows import RowFormula
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.engine.updates.fused_kernels import FusedKernel

#: What a formula returns: what to subtract from the rows, and the new rows of the slots.
Moved = Tuple[tf.Tensor, List[tf.Tensor]]

#: A row formula: function of hyperparameters, rows of the gradient and rows of the slots, which are
#: tensors of shape `[n] + row_shape`.
Formula = Callable[[Any, tf.Tensor, List[tf.Tensor]], Moved]


def _same_shape(shape: List[int]) -> List[int]:
    return list(shape)


def _never(optimizer: Any) -> bool:
    return False


class RowRule(NamedTuple):
    """How an optimizer of Keras 2.2.4, or one of `kp.optimizers`, moves rows.

    Attributes:
        formula: the row formula.
        hyperparameters: function from an optimizer to the hyperparameters that the formula takes.
        keeps: the number of slots that Keras keeps for a variable.
        uses: function from an optimizer to how many of these slots, the first ones, the formula
            uses.
        exact_if: function from an optimizer to whether a row without a gradient stands still in
            plain Keras. Then an update of the touched rows alone gives Keras's numbers.
        slot_shape: function from the shape of a variable to the shape of a slot, both lists. A slot
            has a row for each row of the variable.
        rests_at_zero: function from an optimizer to whether a row and its slots stand still if the
            row's gradient is zero.
        keeps_numbers: whether the optimizer keeps numbers besides slots that only its own updates
            write. Then it cannot be the optimizer of a table.
        kernel: the kernel of TensorFlow that has the same formula for a whole variable, or `None`.
    """

    formula: Formula
    hyperparameters: Callable[[Any], Any]
    keeps: int
    uses: Callable[[Any], int]
    exact_if: Callable[[Any], bool] = _never
    slot_shape: Callable[[List[int]], List[int]] = _same_shape
    rests_at_zero: Callable[[Any], bool] = _never
    keeps_numbers: bool = False
    kernel: Optional[FusedKernel] = None

    def step(self, optimizer: Any, gradient: tf.Tensor, slots: List[tf.Tensor]) -> Moved:
        """By how much to decrease rows, and the new rows of the slots."""
        return self.formula(self.hyperparameters(optimizer), gradient, slots)


class RowsOfV2(NamedTuple):
    """How an `OptimizerV2` with given options moves rows.

    Attributes:
        slots: the names of the slots that it keeps for a variable, which the formula uses.
        formula: the row formula, or `None` if Keras's own updates are the only ones.
        hyperparameters: function from the coefficients that Keras prepares for a dtype
            (`apply_state`) to the hyperparameters that the formula takes.
        moves_all_rows: whether Keras's sparse update moves all rows, or changes all their slots.
        takes_zero_for_none: whether Keras's dense update, given a gradient of zeros for a row, does
            to the row and its slots what the sparse update does to a row without a gradient.
        keeps_numbers: as of `RowRule`.
    """

    slots: Tuple[str, ...]
    formula: Optional[Formula] = None
    hyperparameters: Optional[Callable[[Dict[str, tf.Tensor]], Any]] = None
    moves_all_rows: bool = False
    takes_zero_for_none: bool = False
    keeps_numbers: bool = False

    @property
    def row_formula(self) -> Optional[RowFormula]:
        """The formula as an update of Keras's takes it, given Keras's coefficients."""
        formula, hyperparameters = self.formula, self.hyperparameters
        if formula is None or hyperparameters is None:
            return None
        return RowFormula(self.slots, lambda of, *rows: formula(hyperparameters(of), *rows))


class RowsOfTensorFlow(NamedTuple):
    """How a `tf.train.Optimizer` moves rows; its own updates are the only ones.

    Attributes:
        takes_zero_for_none: as of `RowsOfV2`.
    """

    takes_zero_for_none: bool = False


class RowsOfKeras3(NamedTuple):
    """How an optimizer of Keras 3 with given options moves rows.

    Attributes:
        slots: the names of the slots that the formula uses, each with its start value.
        formula: the row formula.
        hyperparameters: function from the learning rate and the number of the step, from 1, to the
            hyperparameters that the formula takes: a NamedTuple of Python numbers. Its numbers of
            type `float` are fed in each step; other members are the same in all steps.
        moves_all_rows: whether a row without a gradient moves, or its slots change.
    """

    slots: Tuple[Tuple[str, float], ...]
    formula: Formula
    hyperparameters: Callable[[float, int], Any]
    moves_all_rows: bool = False


class KnownOptimizer(NamedTuple):
    """All that is known of an optimizer, by families. A class that is not listed has no entry.

    Attributes:
        keras: the `RowRule`s of classes of Keras 2.2.4 and of `kp.optimizers`, by their names.
        optimizer_v2: functions from an `OptimizerV2` to its `RowsOfV2`, by the names of classes.
        tensorflow: the `RowsOfTensorFlow` of classes of `tf.train` and `tf.contrib.opt`, by their
            names. Their sparse updates move each row by itself.
        keras3: functions from an optimizer of Keras 3 to its `RowsOfKeras3`, by the names of
            classes.
    """

    keras: Dict[str, RowRule] = {}
    optimizer_v2: Dict[str, Callable[[Any], RowsOfV2]] = {}
    tensorflow: Dict[str, RowsOfTensorFlow] = {}
    keras3: Dict[str, Callable[[Any], RowsOfKeras3]] = {}
