# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Clips aggregated gradients as Keras clips them."""

from typing import AbstractSet, Any, Callable, Dict, List, NamedTuple, Optional, Tuple

from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.engine.updates.part_updates import PartUpdate
from keras_parallax.framework_types import Gradient, Optimizer, Tensor, Variable


class Bounds(NamedTuple):
    """How an optimizer that takes rows clips gradients, as its arguments of these names say."""

    clipvalue: Optional[float] = None
    clipnorm: Optional[float] = None
    global_clipnorm: Optional[float] = None

    @property
    def clips(self) -> bool:
        """Whether there is a bound."""
        return any(bound is not None for bound in self)


def bounds_of(optimizer: Optimizer) -> Bounds:
    """The `Bounds` of an optimizer; those that it does not know are `None`."""
    return Bounds(*[getattr(optimizer, name, None) for name in Bounds._fields])


def clipped_as_they_come(
    dense: Dict[Variable, Gradient],
    parts: List[PartUpdate],
    bounds: Bounds,
    row_squares: Callable[[Dict[Any, Tensor]], Dict[Any, Tensor]],
    looked_up: AbstractSet[Any] = frozenset(),
) -> Tuple[Dict[Variable, Gradient], List[PartUpdate]]:
    """Clips gradients as Keras 2.4 and later do: rows by their norm before repeats are summed.

    `tf.clip_by_norm` and `tf.clip_by_global_norm` take the values of `IndexedSlices` as they are.
    Values of rows were clipped by `clipvalue` where they came from (`StepGradients`).

    Args:
        dense: dict from variables to tensors or `IndexedSlices`.
        parts: a list of `PartUpdate`s, with those of one table's shards spread over the workers.
        bounds: the optimizer's `Bounds`.
        row_squares: function that gives, for every gradient that is of rows, the squared norm of
            those of the joined batch, and the sum over workers of numbers of tables: from a dict of
            this worker's to a dict from variables and tables to scalars.
        looked_up: the variables in `dense`, and the tables that are exchanged whole, whose
            gradients are of rows.

    Returns:
        The pair `(dense, parts)`, clipped.
    """
    clipvalue, clipnorm, global_clipnorm = bounds
    if clipvalue is not None:
        dense = {
            variable: gradient
            if variable in looked_up
            else tf.clip_by_value(gradient, -clipvalue, clipvalue)
            for variable, gradient in dense.items()
        }
        parts = [
            update
            if update.part.table.by_row or update.part.table in looked_up
            else _mapped(update, lambda values: tf.clip_by_value(values, -clipvalue, clipvalue))
            for update in parts
        ]
    if clipnorm is None and global_clipnorm is None:
        return dense, parts
    own: Dict[Any, List[Tensor]] = {}
    for update in parts:
        table = update.part.table
        of_part = update.penalty if table.by_row else update.gradient
        if of_part is not None and table not in looked_up:
            own.setdefault(table, []).append(_square_sum(of_part))
    squares = {variable: _square_sum(gradient) for variable, gradient in dense.items()}
    squares.update(row_squares({table: tf.add_n(sums) for table, sums in own.items()}))
    if clipnorm is not None:
        factors = {
            variable: clipnorm / tf.maximum(tf.sqrt(square), clipnorm)
            for variable, square in squares.items()
        }
    else:
        norm = tf.sqrt(tf.add_n(list(squares.values())))
        factors = dict.fromkeys(squares, global_clipnorm / tf.maximum(norm, global_clipnorm))
    return (
        {variable: _times(gradient, factors[variable]) for variable, gradient in dense.items()},
        [_scaled(update, factors[update.part.table]) for update in parts],
    )


def clipped(
    dense: List[Any],
    parts: List[PartUpdate],
    optimizer: Optimizer,
    together: bool,
    sum_over_ranks: Callable[[Dict[Any, Tensor]], Dict[Any, Tensor]],
) -> Tuple[List[Any], List[PartUpdate]]:
    """Clips aggregated gradients as Keras clips them, sparse ones by their norm over all shards.

    Args:
        dense: a list of tensors, or of `IndexedSlices` with each row once.
        parts: a list of `PartUpdate`s, with those of one table's shards spread over the workers.
        optimizer: the Keras optimizer, with or without `clipnorm` and `clipvalue`.
        together: whether `clipnorm` bounds the norm of all gradients together (`keras` 2.2.4) or
            of each variable's (`tf.keras`).
        sum_over_ranks: function that sums a vector of one number a table over the owners of its
            shards, given this worker's squared norms as a dict from tables to scalars.

    Returns:
        The pair `(dense, parts)`, clipped.
    """
    clipnorm = getattr(optimizer, 'clipnorm', None)
    # Keras takes a bound of 0 for no clipping; tf.keras clips to 0.
    if clipnorm is not None and (clipnorm > 0 or not together):
        of_shards: Dict[Any, List[Tensor]] = {}
        for update in parts:
            of_shards.setdefault(update.part.table, []).append(_square_sum(update.gradient))
        squares = sum_over_ranks({table: tf.add_n(sums) for table, sums in of_shards.items()})
        dense_squares = list(map(_square_sum, dense))
        if together:
            norm = tf.sqrt(tf.add_n(dense_squares + list(squares.values())))
            factor = tf.where(norm >= clipnorm, clipnorm / norm, tf.ones_like(norm))
            dense = [_times(gradient, factor) for gradient in dense]
            parts = [_scaled(update, factor) for update in parts]
        else:
            dense = [
                _times(gradient, clipnorm / tf.maximum(tf.sqrt(square), clipnorm))
                for gradient, square in zip(dense, dense_squares)
            ]
            parts = [
                _scaled(
                    update,
                    clipnorm / tf.maximum(tf.sqrt(squares[update.part.table]), clipnorm),
                )
                for update in parts
            ]
    clipvalue = getattr(optimizer, 'clipvalue', None)
    if clipvalue is not None and (clipvalue > 0 or not together):
        dense = [
            _changed(gradient, lambda values: tf.clip_by_value(values, -clipvalue, clipvalue))
            for gradient in dense
        ]
        parts = [
            _mapped(update, lambda values: tf.clip_by_value(values, -clipvalue, clipvalue))
            for update in parts
        ]
    return dense, parts


def _square_sum(gradient: Gradient) -> Tensor:
    values = gradient.values if isinstance(gradient, tf.IndexedSlices) else gradient
    return tf.reduce_sum(tf.square(values))


def _scaled(update: PartUpdate, factor: Tensor) -> PartUpdate:
    return _mapped(update, lambda values: values * factor)


def _mapped(update: PartUpdate, function: Callable[[Tensor], Tensor]) -> PartUpdate:
    return update._replace(gradient=_changed(update.gradient, function))


def _times(gradient: Gradient, factor: Tensor) -> Gradient:
    return _changed(gradient, lambda values: values * factor)


def _changed(gradient: Gradient, function: Callable[[Tensor], Tensor]) -> Gradient:
    """A function of a gradient: of a tensor, or of the values of `IndexedSlices`."""
    if not isinstance(gradient, tf.IndexedSlices):
        return function(gradient)
    return tf.IndexedSlices(function(gradient.values), gradient.indices, gradient.dense_shape)
