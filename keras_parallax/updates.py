"""Applies aggregated gradients: dense ones by Keras itself, rows by a rule or by Keras itself."""

from typing import NamedTuple, Optional

from keras_parallax import compat, row_rules, uses
from keras_parallax.classify import WHOLE_TABLE
from keras_parallax.compat import tf
from keras_parallax.errors import PlanError
from keras_parallax.summary import Update

EXACT, LAZY = 'exact', 'lazy'


class UpdateWay(NamedTuple):
    """How a table is updated: by a `RowRule` on touched rows, or (`rule=None`) whole by Keras."""

    rule: Optional[row_rules.RowRule]
    words: str


def choose_way(optimizer, sparse_update, penalized, constrained):
    """Chooses how an optimizer updates a table.

    Args:
        optimizer: a Keras optimizer.
        sparse_update: `'exact'` or `'lazy'`.
        penalized: whether a regularizer gives every row a gradient.
        constrained: how far a constraint reaches: `None`, `BY_ROW` or `WHOLE_TABLE`.

    Returns:
        An `UpdateWay`.

    Raises:
        PlanError: lazy updates with an optimizer whose formula is not known, or with a constraint
            that does not work row by row.
    """
    rule = row_rules.rule_for(optimizer)
    name = type(optimizer).__name__
    if sparse_update == LAZY:
        if rule is None:
            raise PlanError(
                "sparse_update='lazy' needs the formula of %s for single rows, which is known for "
                "Keras's own optimizers only; use sparse_update='exact'." % name
            )
        if constrained == WHOLE_TABLE:
            raise PlanError(
                "sparse_update='lazy' moves single rows, but a constraint of the table is for the "
                "whole of it; use sparse_update='exact', or a constraint along axis 1."
            )
        return UpdateWay(rule, "touched rows only: 'lazy', not the numbers of Keras's %s" % name)
    if compat.tensorflows(optimizer) is not None:
        return UpdateWay(
            None, "TensorFlow's own sparse update (%s)" % compat.name_of_optimizer(optimizer)
        )
    if rule is not None and not penalized and not constrained and rule.exact_if(optimizer):
        return UpdateWay(rule, "touched rows only, which is exact for Keras's %s" % name)
    cause = (
        'its regularizer moves every row'
        if penalized
        else 'its constraint is for every row'
        if constrained
        else '%s moves every row' % name
    )
    return UpdateWay(
        None,
        'the whole table and its slots are rewritten every step, as in Keras, because %s; '
        "sparse_update='lazy' moves touched rows only" % cause,
    )


def update_of(optimizer, sparse_update, variable, record):
    """Tells how an optimizer updates a table, for the plan's summary.

    Args:
        optimizer: a Keras optimizer.
        sparse_update: `'exact'` or `'lazy'`.
        variable: the table's variable.
        record: its `WeightRecord`, or `None`.

    Returns:
        A `summary.Update`.

    Raises:
        PlanError: as `choose_way`.
    """
    way = choose_way(
        optimizer,
        sparse_update,
        penalized=bool(record and record.penalties),
        constrained=uses.reach_of_constraint(
            getattr(variable, 'constraint', None), len(variable.shape)
        ),
    )
    rule = row_rules.rule_for(optimizer)
    by_tensorflow = compat.tensorflows(optimizer) is not None
    return Update(
        way.words,
        whole=way.rule is None and not by_tensorflow,
        slots=rule.uses(optimizer) if rule else None,
    )


class PartUpdate(NamedTuple):
    """The gradient of one `Part` as an update takes it.

    Attributes:
        part: the `Part`.
        gradient: `IndexedSlices` with each row once, or a tensor of the part's whole shape.
    """

    part: object
    gradient: object


def with_penalty(part_gradient, loss, way, by_tensorflow):
    """Adds the regularizer's gradient to that of a part, and chooses its form.

    Args:
        part_gradient: a `PartGradient`.
        loss: the total loss, to find the factor that the penalty has in it.
        way: the `UpdateWay` of its table.
        by_tensorflow: whether the optimizer is one of TensorFlow's, which takes rows.

    Returns:
        A `PartUpdate`.
    """
    part, gradients = part_gradient
    if not part.table.by_row:
        return PartUpdate(part, gradients)
    rows, values = gradients
    variable = part.variable
    penalty = _penalty_gradient(part, loss)
    with tf.device(variable.device):
        if way.rule is not None and penalty is not None:
            values += tf.gather(penalty, rows)
        if way.rule is not None or (by_tensorflow and penalty is None):
            return PartUpdate(part, tf.IndexedSlices(values, rows, tf.shape(variable)))
        shape = variable.shape.as_list()
        gradient = tf.unsorted_segment_sum(values, rows, shape[0])
        gradient.set_shape(shape)
        if penalty is not None:
            gradient += penalty
        if by_tensorflow:
            # As TensorFlow joins the two: a row that a penalty moves is a touched one.
            gradient = tf.IndexedSlices(gradient, tf.range(shape[0]), tf.shape(variable))
        return PartUpdate(part, gradient)


def _penalty_gradient(part, loss):
    """Gradient of the regularizer with respect to a part, of the part's shape, or `None`."""
    table = part.table
    terms = table.penalty_terms
    found = tf.gradients(loss, terms) if terms else []
    factors = [factor for factor in found if factor is not None]
    if not factors:
        return None
    with tf.device(part.variable.device):
        rows = part.variable.value()
        (gradient,) = tf.gradients(table.regularizer(rows), rows)
        return None if gradient is None else tf.add_n(factors) * gradient


def apply_by_row(optimizer, rule, update, slots):
    """Builds the row-wise update of one part.

    Args:
        optimizer: a Keras optimizer.
        rule: its `RowRule`.
        update: a `PartUpdate` whose gradient is `IndexedSlices`.
        slots: the variables that hold the slots which the rule uses, of the part's shape.

    Returns:
        A list of operations.
    """
    part, gradient = update
    # After the gradient, and so after the model's own lookup: an id outside the table must fail
    # there, where it can be told which layer looked it up.
    with tf.control_dependencies([gradient.values]):
        rows = tf.identity(gradient.indices)
    with tf.device(part.variable.device):
        old = [tf.gather(slot, rows) for slot in slots]
        decrease, new = rule.step(optimizer, gradient.values, old)
        operations = [_write_rows(slot, rows, value) for slot, value in zip(slots, new)]
        constraint = part.table.constraint
        if constraint is None:
            # Locked, so that nothing is lost when workers apply their pushes as they come.
            operations.append(tf.scatter_sub(part.variable, rows, decrease, use_locking=True))
        else:
            moved = constraint(tf.gather(part.variable, rows) - decrease)
            operations.append(_write_rows(part.variable, rows, moved))
    return operations


def _write_rows(variable, rows, values):
    return tf.scatter_update(variable, rows, values)


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
        mine = {}
        for update in parts:
            mine.setdefault(update.part.table, []).append(_square_sum(update.gradient))
        squares = sum_over_ranks({table: tf.add_n(found) for table, found in mine.items()})
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
