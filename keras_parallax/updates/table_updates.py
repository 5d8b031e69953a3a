"""Applies aggregated gradients: dense ones by Keras itself, rows by a rule or by Keras itself."""

from typing import Any, NamedTuple, Optional

from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.errors import PlanError
from keras_parallax.planning.classify import WHOLE_TABLE
from keras_parallax.planning.plan import Update
from keras_parallax.tables import loss_analysis
from keras_parallax.tables.id_index import index_of
from keras_parallax.updates import stochastic_rounding
from keras_parallax.updates.adapter_base import is_of_ours
from keras_parallax.updates.optimizer_adapter import adapter_of
from keras_parallax.updates.row_rules import RowRule

EXACT, LAZY = 'exact', 'lazy'


class UpdateWay(NamedTuple):
    """How a table is updated.

    Attributes:
        rule: the `RowRule` by which touched rows move; `None` if the optimizer itself moves them.
        words: that in words.
        lazy: whether rows without a gradient rest, although they would not in Keras.
        optimizer: the optimizer of the rule, if it is not the model's own.
        whole: whether all rows, or their slots, are rewritten every step.
        rounds: whether the optimizer itself can move rows that are kept in fewer bits.
    """

    rule: Optional[RowRule]
    words: str
    lazy: bool = False
    optimizer: Any = None
    whole: bool = False
    rounds: bool = False

    @property
    def rows_alone(self):
        """Whether nothing but rows with a gradient is to move."""
        return self.lazy or self.rule is not None


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
    adapter = adapter_of(optimizer)
    rule = adapter.rule
    name = type(optimizer).__name__
    if sparse_update == LAZY:
        if not adapter.rows_alone:
            raise PlanError(
                "sparse_update='lazy' needs the formula of %s for single rows, which is known for "
                "Keras's own optimizers only; use sparse_update='exact'." % name
            )
        if constrained == WHOLE_TABLE:
            raise PlanError(
                "sparse_update='lazy' moves single rows, but a constraint of the table is for the "
                "whole of it; use sparse_update='exact', or a constraint along axis 1."
            )
        if is_of_ours(optimizer):
            words = "touched rows only: 'lazy'"
        else:
            words = "touched rows only: 'lazy', not the numbers of Keras's %s" % name
        return UpdateWay(rule, words, lazy=True, rounds=adapter.rounds_rows)
    if adapter.takes_rows and is_of_ours(optimizer) and not penalized:
        words = 'touched rows only, which is exact for %s' % name
        return UpdateWay(None, words, rounds=adapter.rounds_rows)
    if adapter.takes_rows:
        whose = 'Keras' if adapter.inner is None else 'TensorFlow'
        words = "%s's own sparse update (%s)" % (whose, adapter.name)
        if penalized:
            words += ' of all rows, because its regularizer moves every row'
        elif adapter.moves_all_rows:
            words += ', which moves all rows or their slots'
        whole = penalized or adapter.moves_all_rows
        return UpdateWay(None, words, whole=whole, rounds=adapter.rounds_rows and not whole)
    if rule is not None and not penalized and not constrained and rule.exact_if(optimizer):
        whose = '' if is_of_ours(optimizer) else "Keras's "
        return UpdateWay(rule, 'touched rows only, which is exact for %s%s' % (whose, name))
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
        whole=True,
    )


def way_of_table(optimizer, chosen, sparse_update, name, penalized, constrained):
    """Chooses how a table is updated, maybe by an optimizer of its own.

    Args:
        optimizer: the model's optimizer.
        chosen: the `TableOptimizers`.
        sparse_update: as `choose_way` takes it.
        name: the table's name.
        penalized: as `choose_way` takes it.
        constrained: as `choose_way` takes it.

    Returns:
        An `UpdateWay`.

    Raises:
        PlanError: as `choose_way`, or the table's own optimizer would move all rows.
    """
    own = chosen.of(name)
    way = choose_way(own or optimizer, sparse_update, penalized, constrained)
    if own is None:
        return way
    if way.whole:
        raise PlanError(
            'The optimizer of the table %s moves touched rows only, but there %s. Give '
            "sparse_update='lazy', or leave the table to the optimizer of the model."
            % (name, way.words)
        )
    words = '%s, the optimizer of this table' % way.words
    return way._replace(optimizer=own, words=words)


def update_of(optimizer, sparse_update, name, variable, record, chosen):
    """Tells how an optimizer updates a table, for the plan's summary.

    Args:
        optimizer: a Keras optimizer.
        sparse_update: `'exact'` or `'lazy'`.
        name: the table's name.
        variable: the table's variable.
        record: its `WeightRecord`, or `None`.
        chosen: the `TableOptimizers`.

    Returns:
        A `plan.Update`.

    Raises:
        PlanError: as `choose_way`.
    """
    way = _way_of_variable(optimizer, (sparse_update, chosen), name, variable, record)
    adapter = adapter_of(way.optimizer or optimizer)
    return Update(
        way.words,
        whole=way.whole,
        slots=adapter.slots_of(variable.shape.as_list())[1],
    )


def _way_of_variable(optimizer, settings, name, variable, record):
    """As `way_of_table`, of the variable of a table."""
    sparse_update, chosen = settings
    return way_of_table(
        optimizer,
        chosen,
        sparse_update,
        name,
        penalized=bool(record and record.penalties),
        constrained=loss_analysis.reach_of_constraint(
            getattr(variable, 'constraint', None), len(variable.shape)
        ),
    )


def require_row_rules(plan, optimizer, settings, variables, records):
    """Refuses a plan by which servers keep rows in fewer bits that are not moved one by one.

    Args:
        plan: the `Plan`.
        optimizer: as in `updates_of`.
        settings: as in `updates_of`.
        variables: the variables of the plan, in order.
        records: as in `updates_of`.

    Raises:
        PlanError: there is such a table.
    """
    for planned, variable in zip(plan.variables, variables):
        if planned.stored_dtype == planned.dtype:
            continue
        if index_of(variable) is not None:
            raise PlanError(
                '%s is the table of a DynamicEmbedding, which does not go with row_dtype=%r yet; '
                'give row_dtype as a dict that names other tables.'
                % (planned.name, planned.row_dtype)
            )
        record = records.get(variable)
        way = _way_of_variable(optimizer, settings, planned.name, variable, record)
        if way.rule is None and not way.rounds:
            raise PlanError(
                'row_dtype=%r needs an optimizer that moves single rows of %s, but its update is '
                'this: %s. Use SGD or Adagrad of Keras, one of kp.optimizers, or another of Keras '
                "with sparse_update='lazy'; or leave the table out of row_dtype."
                % (planned.row_dtype, planned.name, way.words)
            )


def updates_of(optimizer, settings, variables, tables, records):
    """Tells how an optimizer updates each variable of a model, for the plan.

    Args:
        optimizer: a Keras optimizer.
        settings: a pair of `'exact'` or `'lazy'`, and the `TableOptimizers`.
        variables: a dict from names to variables.
        tables: the names of those whose rows are moved.
        records: a mapping from variables to their `WeightRecord`s.

    Returns:
        A dict from names to `plan.Update`s.

    Raises:
        PlanError: as `choose_way`.
    """
    (sparse_update, chosen), slots_of = settings, adapter_of(optimizer).slots_of
    return {
        name: update_of(optimizer, sparse_update, name, variable, records.get(variable), chosen)
        if name in tables
        else Update(
            'the whole variable, as in Keras',
            whole=True,
            slots=slots_of(variable.shape.as_list())[0],
        )
        for name, variable in variables.items()
    }


class PartUpdate(NamedTuple):
    """The gradient of one `OwnedShard` as an update takes it.

    Attributes:
        part: the `OwnedShard`.
        gradient: `IndexedSlices` with each row once, or a tensor of the part's whole shape.
        penalty: what of it is a regularizer's, a tensor of the part's whole shape, or `None`.
    """

    part: object
    gradient: object
    penalty: object = None


def with_penalty(part_gradient, factor, way, takes_rows, clipvalue=None):
    """Adds the regularizer's gradient to that of a part, and chooses its form.

    Args:
        part_gradient: a `PartGradient`.
        factor: that of the table's penalty in the total loss, a scalar, or `None`.
        way: the `UpdateWay` of its table.
        takes_rows: whether the optimizer moves rows itself.
        clipvalue: the bound of an entry of the penalty's gradient, or `None`.

    Returns:
        A `PartUpdate`.
    """
    part, gradients = part_gradient
    if not part.table.by_row:
        return PartUpdate(part, gradients)
    rows, values = gradients
    variable = part.variable
    penalty = None if factor is None else _penalty_gradient(part, factor)
    if penalty is not None and clipvalue is not None:
        penalty = tf.clip_by_value(penalty, -clipvalue, clipvalue)
    with tf.device(variable.device):
        if way.rows_alone and penalty is not None:
            values += tf.gather(penalty, rows)
        if way.rows_alone or (takes_rows and penalty is None):
            return PartUpdate(part, tf.IndexedSlices(values, rows, tf.shape(variable)))
        shape = variable.shape.as_list()
        gradient = tf.unsorted_segment_sum(values, rows, shape[0])
        gradient.set_shape(shape)
        if penalty is not None:
            gradient += penalty
        if takes_rows:
            # As TensorFlow joins the two: a row that a penalty moves is a touched one.
            gradient = tf.IndexedSlices(gradient, tf.range(shape[0]), tf.shape(variable))
        return PartUpdate(part, gradient, penalty)


def _penalty_gradient(part, factor):
    """Gradient of the regularizer with respect to a part, of the part's shape, or `None`."""
    with tf.device(part.variable.device):
        rows = tf.cast(part.variable.value(), part.table.dtype)
        (gradient,) = tf.gradients(part.table.regularizer(rows), rows)
        return None if gradient is None else factor * gradient


def apply_by_row(optimizer, rule, update, slots, sync):
    """Builds the row-wise update of one part.

    Args:
        optimizer: a Keras optimizer.
        rule: its `RowRule`.
        update: a `PartUpdate` whose gradient is `IndexedSlices`.
        slots: the variables that hold the slots which the rule uses, of the part's shape.
        sync: whether nobody else writes rows at the same time.

    Returns:
        A list of operations.
    """
    part, gradient, _ = update
    table = part.table
    # After the gradient, and so after the model's own lookup: an id outside the table must fail
    # there, where it can be told which layer looked it up.
    with tf.control_dependencies([gradient.values]):
        rows = tf.identity(gradient.indices)
    with tf.device(part.variable.device):
        old = [tf.gather(slot, rows) for slot in slots]
        decrease, new = rule.step(optimizer, gradient.values, old)
        operations = [_write_rows(slot, rows, value) for slot, value in zip(slots, new)]
        if not sync and table.constraint is None and not table.is_narrow:
            # Locked, so that nothing is lost when workers apply their pushes as they come. Else
            # slower: of 80,000 rows of 16 numbers 18 ms, what stands below 9.
            operations.append(tf.scatter_sub(part.variable, rows, decrease, use_locking=True))
            return operations
        moved = tf.cast(tf.gather(part.variable, rows), table.dtype) - decrease
        if table.constraint is not None:
            moved = table.constraint(moved)
        if table.is_narrow:
            moved = rounding(optimizer, table, part.shard)(rows, moved)
        operations.append(_write_rows(part.variable, rows, moved))
    return operations


def rounding(optimizer, table, shard):
    """A function from the numbers of rows of a shard, and their values, to what is kept of them.

    Args:
        optimizer: the Keras optimizer, which counts the steps.
        table: the `Table`, whose rows are kept in fewer bits.
        shard: the number of the shard.
    """

    def keep(rows, values):
        of_table = tf.cast(rows, tf.int64) * len(table.shards) + shard
        step = tf.cast(optimizer.iterations, tf.int64)
        noise = stochastic_rounding.noise_of(of_table, table.row_shape, step, table.name)
        return stochastic_rounding.rounded(values, noise)

    return keep


def _write_rows(variable, rows, values):
    return tf.scatter_update(variable, rows, values)
