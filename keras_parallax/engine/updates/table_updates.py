# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Applies aggregated gradients: dense ones by Keras itself, rows by a rule or by Keras itself."""

from typing import (
    Callable,
    Container,
    Dict,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
)

from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.engine.tables import loss_analysis
from keras_parallax.engine.tables.exchanged import OwnedShard, PartGradient
from keras_parallax.engine.tables.id_index import index_of
from keras_parallax.engine.tables.scope_interface import RecordInterface
from keras_parallax.engine.tables.table import Table
from keras_parallax.engine.updates import stochastic_rounding
from keras_parallax.engine.updates.adapter_base import is_of_ours
from keras_parallax.engine.updates.optimizer_adapter import adapter_of
from keras_parallax.engine.updates.optimizers import RowRule
from keras_parallax.engine.updates.part_updates import PartUpdate as PartUpdate
from keras_parallax.engine.updates.table_optimizers import TableOptimizers
from keras_parallax.errors import PlanError
from keras_parallax.framework_types import Operation, Optimizer, Tensor, Variable
from keras_parallax.planning.classify import WHOLE_TABLE
from keras_parallax.planning.plan import Plan
from keras_parallax.planning.planned_variables import Update

EXACT, LAZY = 'exact', 'lazy'


class UpdateMethod(NamedTuple):
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
    optimizer: Optimizer = None
    whole: bool = False
    rounds: bool = False

    @property
    def rows_alone(self) -> bool:
        """Whether nothing but rows with a gradient is to move."""
        return self.lazy or self.rule is not None


def choose_method(
    optimizer: Optimizer, sparse_update: str, penalized: bool, constrained: Optional[str]
) -> UpdateMethod:
    """Chooses how an optimizer updates a table.

    Args:
        optimizer: a Keras optimizer.
        sparse_update: `'exact'` or `'lazy'`.
        penalized: whether a regularizer gives every row a gradient.
        constrained: how far a constraint reaches: `None`, `BY_ROW` or `WHOLE_TABLE`.

    Returns:
        An `UpdateMethod`.

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
        return UpdateMethod(rule, words, lazy=True, rounds=adapter.rounds_rows)
    if adapter.takes_rows and is_of_ours(optimizer) and not penalized:
        words = 'touched rows only, which is exact for %s' % name
        return UpdateMethod(None, words, rounds=adapter.rounds_rows)
    if adapter.takes_rows:
        whose = 'Keras' if adapter.inner is None else 'TensorFlow'
        words = "%s's own sparse update (%s)" % (whose, adapter.name)
        if penalized:
            words += ' of all rows, because its regularizer moves every row'
        elif adapter.moves_all_rows:
            words += ', which moves all rows or their slots'
        whole = penalized or adapter.moves_all_rows
        return UpdateMethod(None, words, whole=whole, rounds=adapter.rounds_rows and not whole)
    if rule is not None and not penalized and not constrained and rule.exact_if(optimizer):
        whose = '' if is_of_ours(optimizer) else "Keras's "
        return UpdateMethod(rule, 'touched rows only, which is exact for %s%s' % (whose, name))
    cause = (
        'its regularizer moves every row'
        if penalized
        else 'its constraint is for every row'
        if constrained
        else '%s moves every row' % name
    )
    return UpdateMethod(
        None,
        'the whole table and its slots are rewritten every step, as in Keras, because %s; '
        "sparse_update='lazy' moves touched rows only" % cause,
        whole=True,
    )


def method_of_table(
    optimizer: Optimizer,
    chosen: TableOptimizers,
    sparse_update: str,
    name: str,
    penalized: bool,
    constrained: Optional[str],
) -> UpdateMethod:
    """Chooses how a table is updated, maybe by an optimizer of its own.

    Args:
        optimizer: the model's optimizer.
        chosen: the `TableOptimizers`.
        sparse_update: as `choose_method` takes it.
        name: the table's name.
        penalized: as `choose_method` takes it.
        constrained: as `choose_method` takes it.

    Returns:
        An `UpdateMethod`.

    Raises:
        PlanError: as `choose_method`, or the table's own optimizer would move all rows.
    """
    own = chosen.of(name)
    method = choose_method(own or optimizer, sparse_update, penalized, constrained)
    if own is None:
        return method
    if method.whole:
        raise PlanError(
            'The optimizer of the table %s moves touched rows only, but there %s. Give '
            "sparse_update='lazy', or leave the table to the optimizer of the model."
            % (name, method.words)
        )
    words = '%s, the optimizer of this table' % method.words
    return method._replace(optimizer=own, words=words)


def update_of(
    optimizer: Optimizer,
    sparse_update: str,
    name: str,
    variable: Variable,
    record: Optional[RecordInterface],
    chosen: TableOptimizers,
) -> Update:
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
        PlanError: as `choose_method`.
    """
    method = _method_of_variable(optimizer, (sparse_update, chosen), name, variable, record)
    adapter = adapter_of(method.optimizer or optimizer)
    return Update(
        method.words,
        whole=method.whole,
        slots=adapter.slots_of(variable.shape.as_list())[1],
    )


def _method_of_variable(
    optimizer: Optimizer,
    settings: Tuple[str, TableOptimizers],
    name: str,
    variable: Variable,
    record: Optional[RecordInterface],
) -> UpdateMethod:
    """As `method_of_table`, of the variable of a table."""
    sparse_update, chosen = settings
    return method_of_table(
        optimizer,
        chosen,
        sparse_update,
        name,
        penalized=bool(record and record.penalties),
        constrained=loss_analysis.reach_of_constraint(
            getattr(variable, 'constraint', None), len(variable.shape)
        ),
    )


def require_row_rules(
    plan: Plan,
    optimizer: Optimizer,
    settings: Tuple[str, TableOptimizers],
    variables: Sequence[Variable],
    records: Mapping[Variable, RecordInterface],
) -> None:
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
        method = _method_of_variable(optimizer, settings, planned.name, variable, record)
        if method.rule is None and not method.rounds:
            raise PlanError(
                'row_dtype=%r needs an optimizer that moves single rows of %s, but its update is '
                'this: %s. Use SGD or Adagrad of Keras, one of kp.optimizers, or another of Keras '
                "with sparse_update='lazy'; or leave the table out of row_dtype."
                % (planned.row_dtype, planned.name, method.words)
            )


def updates_of(
    optimizer: Optimizer,
    settings: Tuple[str, TableOptimizers],
    variables: Mapping[str, Variable],
    tables: Container[str],
    records: Mapping[Variable, RecordInterface],
    row_masks: Container[str] = frozenset(),
) -> Dict[str, Update]:
    """Tells how an optimizer updates each variable of a model, for the plan.

    Args:
        optimizer: a Keras optimizer.
        settings: a pair of `'exact'` or `'lazy'`, and the `TableOptimizers`.
        variables: a dict from names to variables.
        tables: the names of those whose rows are moved.
        records: a mapping from variables to their `WeightRecord`s.
        row_masks: the names of those whose looked-up rows the optimizer must know, also where every
            worker holds them.

    Returns:
        A dict from names to `plan.Update`s.

    Raises:
        PlanError: as `choose_method`.
    """
    (sparse_update, chosen), adapter = settings, adapter_of(optimizer)

    def of_dense(name: str, variable: Variable) -> Update:
        slots = adapter.slots_of(variable.shape.as_list())[0]
        if name in row_masks:
            words = 'the rows that a batch looks up, as in Keras'
            return Update(words, whole=adapter.moves_all_rows, slots=slots)
        return Update('the whole variable, as in Keras', whole=True, slots=slots)

    return {
        name: update_of(optimizer, sparse_update, name, variable, records.get(variable), chosen)
        if name in tables
        else of_dense(name, variable)
        for name, variable in variables.items()
    }


def with_penalty(
    part_gradient: PartGradient,
    factor: Optional[Tensor],
    method: UpdateMethod,
    takes_rows: bool,
    clipvalue: Optional[float] = None,
) -> PartUpdate:
    """Adds the regularizer's gradient to that of a part, and chooses its form.

    Args:
        part_gradient: a `PartGradient`.
        factor: that of the table's penalty in the total loss, a scalar, or `None`.
        method: the `UpdateMethod` of its table.
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
        if method.rows_alone and penalty is not None:
            values += tf.gather(penalty, rows)
        if method.rows_alone or (takes_rows and penalty is None):
            return PartUpdate(part, tf.IndexedSlices(values, rows, tf.shape(variable)))
        shape = variable.shape.as_list()
        gradient = tf.unsorted_segment_sum(values, rows, shape[0])
        gradient.set_shape(shape)
        if penalty is not None:
            gradient += penalty
        # TensorFlow's optimizers refuse `IndexedSlices` for a variable with a constraint. With a
        # penalty the gradient is a tensor in plain Keras of TensorFlow 2, too.
        if takes_rows and part.table.constraint is None:
            # As TensorFlow joins the two: a row that a penalty moves is a touched one.
            gradient = tf.IndexedSlices(gradient, tf.range(shape[0]), tf.shape(variable))
        return PartUpdate(part, gradient, penalty)


def _penalty_gradient(part: OwnedShard, factor: Tensor) -> Optional[Tensor]:
    """Gradient of the regularizer with respect to a part, of the part's shape, or `None`."""
    with tf.device(part.variable.device):
        rows = tf.cast(part.variable.value(), part.table.dtype)
        (gradient,) = tf.gradients(part.table.regularizer(rows), rows)
        return None if gradient is None else factor * gradient


def apply_by_row(
    optimizer: Optimizer, rule: RowRule, update: PartUpdate, slots: Sequence[Variable], sync: bool
) -> List[Operation]:
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


def rounding(optimizer: Optimizer, table: Table, shard: int) -> Callable[[Tensor, Tensor], Tensor]:
    """A function from the numbers of rows of a shard, and their values, to what is kept of them.

    Args:
        optimizer: the Keras optimizer, which counts the steps.
        table: the `Table`, whose rows are kept in fewer bits.
        shard: the number of the shard.
    """

    def keep(rows: Tensor, values: Tensor) -> Tensor:
        of_table = tf.cast(rows, tf.int64) * len(table.shards) + shard
        step = tf.cast(optimizer.iterations, tf.int64)
        noise = stochastic_rounding.noise_of(of_table, table.row_shape, step, table.name)
        return stochastic_rounding.rounded(values, noise)

    return keep


def _write_rows(variable: Variable, rows: Tensor, values: Tensor) -> Operation:
    return tf.scatter_update(variable, rows, values)
