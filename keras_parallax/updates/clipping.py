"""Clips aggregated gradients as Keras clips them."""

from typing import NamedTuple, Optional

from keras_parallax.compat.tensorflow_api import tf


class Bounds(NamedTuple):
    """How an optimizer that takes rows clips gradients, as its arguments of these names say."""

    clipvalue: Optional[float] = None
    clipnorm: Optional[float] = None
    global_clipnorm: Optional[float] = None

    @property
    def clips(self):
        """Whether there is a bound."""
        return any(bound is not None for bound in self)


def bounds_of(optimizer):
    """The `Bounds` of an optimizer; those that it does not know are `None`."""
    return Bounds(*[getattr(optimizer, name, None) for name in Bounds._fields])


def clipped_as_they_come(dense, parts, bounds, row_squares):
    """Clips gradients as Keras 2.4 and later do: rows by their norm before repeats are summed.

    `tf.clip_by_norm` and `tf.clip_by_global_norm` take the values of `IndexedSlices` as they are.
    Values of rows were clipped by `clipvalue` where they came from (`StepGradients`).

    Args:
        dense: dict from variables to tensors.
        parts: a list of `PartUpdate`s, with those of one table's shards spread over the ranks.
        bounds: the optimizer's `Bounds`.
        row_squares: function that gives, for every gradient that is of rows, the squared norm of
            those of the joined batch, and the sum over ranks of numbers of tables: from a dict of
            this rank's to a dict from variables and tables to scalars.

    Returns:
        The pair `(dense, parts)`, clipped.
    """
    clipvalue, clipnorm, global_clipnorm = bounds
    if clipvalue is not None:
        dense = {
            variable: tf.clip_by_value(gradient, -clipvalue, clipvalue)
            for variable, gradient in dense.items()
        }
        parts = [
            update
            if update.part.table.by_row
            else _mapped(update, lambda values: tf.clip_by_value(values, -clipvalue, clipvalue))
            for update in parts
        ]
    if clipnorm is None and global_clipnorm is None:
        return dense, parts
    own = {}
    for update in parts:
        table = update.part.table
        of_part = update.penalty if table.by_row else update.gradient
        if of_part is not None:
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
        {variable: gradient * factors[variable] for variable, gradient in dense.items()},
        [_scaled(update, factors[update.part.table]) for update in parts],
    )


def clipped(dense, parts, optimizer, together, sum_over_ranks):
    """Clips aggregated gradients as Keras clips them, sparse ones by their norm over all shards.

    Args:
        dense: a list of tensors.
        parts: a list of `PartUpdate`s, with those of one table's shards spread over the ranks.
        optimizer: the Keras optimizer, with or without `clipnorm` and `clipvalue`.
        together: whether `clipnorm` bounds the norm of all gradients together (`keras` 2.2.4) or
            of each variable's (`tf.keras`).
        sum_over_ranks: function that sums a vector of one number a table over the owners of its
            shards, given this rank's squared norms as a dict from tables to scalars.

    Returns:
        The pair `(dense, parts)`, clipped.
    """
    clipnorm = getattr(optimizer, 'clipnorm', None)
    # Keras takes a bound of 0 for no clipping; tf.keras clips to 0.
    if clipnorm is not None and (clipnorm > 0 or not together):
        of_shards = {}
        for update in parts:
            of_shards.setdefault(update.part.table, []).append(_square_sum(update.gradient))
        squares = sum_over_ranks({table: tf.add_n(sums) for table, sums in of_shards.items()})
        dense_squares = [tf.reduce_sum(tf.square(gradient)) for gradient in dense]
        if together:
            norm = tf.sqrt(tf.add_n(dense_squares + list(squares.values())))
            factor = tf.where(norm >= clipnorm, clipnorm / norm, tf.ones_like(norm))
            dense = [gradient * factor for gradient in dense]
            parts = [_scaled(update, factor) for update in parts]
        else:
            dense = [
                gradient * clipnorm / tf.maximum(tf.sqrt(square), clipnorm)
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
        dense = [tf.clip_by_value(gradient, -clipvalue, clipvalue) for gradient in dense]
        parts = [
            _mapped(update, lambda values: tf.clip_by_value(values, -clipvalue, clipvalue))
            for update in parts
        ]
    return dense, parts


def _square_sum(gradient):
    values = gradient.values if isinstance(gradient, tf.IndexedSlices) else gradient
    return tf.reduce_sum(tf.square(values))


def _scaled(update, factor):
    return _mapped(update, lambda values: values * factor)


def _mapped(update, function):
    gradient = update.gradient
    if isinstance(gradient, tf.IndexedSlices):
        gradient = tf.IndexedSlices(
            function(gradient.values), gradient.indices, gradient.dense_shape
        )
    else:
        gradient = function(gradient)
    return update._replace(gradient=gradient)
