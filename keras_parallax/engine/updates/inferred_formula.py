# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""How far a user's optimizer reaches: over rows, over a whole variable, or over all of them.

Its formula is built twice in a graph of its own: for the model's variables as they are, and with
two pieces in place of each table. A table may have shards if the formula does to a piece what it
does to the whole, row by row. If it mixes variables, or it is not to be found out, then every
worker holds everything, as in plain Keras.
"""

from typing import Any, FrozenSet, List, Optional, Sequence, Tuple

import numpy as np

from keras_parallax.compat import graph_queries, keras_api, session_config
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.engine.updates import update_dependencies
from keras_parallax.engine.updates.optimizer_copies import Copies, named
from keras_parallax.engine.updates.requested_gradients import ExchangedGradients
from keras_parallax.engine.updates.row_independence import NotByRow, Rows, check_same
from keras_parallax.framework_types import Gradient, Operation, Optimizer, Variable
from keras_parallax.planning.classify import ANY_ROWS, Described, Reach

#: A stand-in for a larger table has so many rows; no formula is known to ask for more.
_MOST_ROWS = 10007


def reach_of(
    optimizer: Optimizer, variables: Tuple[Described, ...], tables: FrozenSet[str]
) -> Reach:
    """How far the formula of a user's optimizer reaches; arguments as `OptimizerAdapter.reach`."""
    name = type(optimizer).__name__
    if takes_slices(optimizer, variables):
        return Reach('%s computes with the rows of gradients as they come, repeats and all' % name)
    try:
        whole = _Built(optimizer, [_limited(variable) for variable in variables])
        mixed = whole.mixed()
        if mixed is not None:
            return Reach('%s computes the update of %s from %s too' % ((name,) + mixed))
        if whole.starts_oddly():
            return Reach('%s starts a variable of its own with other than one number' % name)
    except Exception as error:  # Whatever a user's code may raise here, it is told in the plan.
        return Reach('the formula of %s is not to be found out (%s)' % (name, _words(error)))
    try:
        pieces = _Built(optimizer, _in_pieces(variables, tables))
    except Exception as error:  # As of a formula that keeps slots by the names of variables.
        words = '%s takes no two variables of one name (%s)' % (name, _words(error))
        return Reach(None, frozenset(tables), words)
    reasons, place = {}, 0
    for number, variable in enumerate(variables):
        if variable.name not in tables:
            place += 1
            continue
        try:
            for piece in (place, place + 1):
                pieces.check_piece(piece, whole, number)
        except NotByRow as error:
            reasons[variable.name] = str(error)
        place += 2
    if not reasons:
        return ANY_ROWS
    first = sorted(reasons)[0]
    return Reach(None, frozenset(reasons), '%s %s' % (name, reasons[first]))


def takes_slices(optimizer: Optimizer, variables: Tuple[Described, ...]) -> bool:
    """Whether a formula looks into gradients that are `IndexedSlices`.

    There rows come as often as they were looked up, so a norm of the `values`, which is what
    `tf.clip_by_global_norm` takes, is another than that of the rows' sums. True if it cannot be
    told, too.
    """
    if not any(variable.rows for variable in variables):
        return False
    limited = [_limited(variable) for variable in variables]
    try:
        by_rows, whole = [_Built(optimizer, limited, rows=rows) for rows in (True, False)]
    except Exception:  # A user's code; with the gradients of plain Keras it raises in the step.
        return True
    slices = [gradient for gradient in by_rows.gradients if isinstance(gradient, tf.IndexedSlices)]
    signatures = [update_dependencies.signature(built.operations) for built in (by_rows, whole)]
    return (
        update_dependencies.looks_into(slices, by_rows.operations) or signatures[0] != signatures[1]
    )


def _words(error: Exception) -> str:
    lines = str(error).splitlines() or ['']
    return ('%s: %s' % (type(error).__name__, lines[0]))[:200]


def _limited(variable: Described) -> Described:
    if not variable.shape:
        return variable
    rows = min(variable.shape[0], _MOST_ROWS)
    return variable._replace(shape=(rows,) + tuple(variable.shape[1:]))


def _in_pieces(variables: Tuple[Described, ...], tables: FrozenSet[str]) -> List[Described]:
    """The variables with two pieces, of the same name, in place of each table."""
    in_pieces = []
    for variable in variables:
        if variable.name not in tables:
            in_pieces.append(_limited(variable))
            continue
        rows, rest = _limited(variable).shape[0], tuple(variable.shape[1:])
        taken = {rows}.union(rest)
        # More than a list of axes has.
        few = next(number for number in range(5, 99) if number not in taken)
        taken.add(few)
        many = next(number for number in range(max(rows // 2, 6), rows + 99) if number not in taken)
        in_pieces += [variable._replace(shape=(pieces,) + rest) for pieces in (few, many)]
    return in_pieces


def _gradient(of: Described, rows: bool) -> Any:
    """A stand-in for the gradient of a `Described` variable."""
    if not (rows and of.rows):
        return tf.placeholder(of.dtype, of.shape, name='gradient')
    values = tf.placeholder(of.dtype, [None] + list(of.shape[1:]), name='gradient')
    indices = tf.placeholder(tf.int32, [None], name='rows')
    return tf.IndexedSlices(values, indices, tf.constant(of.shape, tf.int32))


class _Built:
    """The updates of a copy of an optimizer, in a graph of their own.

    Args:
        optimizer: the Keras optimizer.
        described: the variables, as `classify.Described`; several may have one name.
        rows: whether gradients of rows are `IndexedSlices`, as in plain Keras.
    """

    variables: List[Variable]
    gradients: List[Gradient]
    kept: List[Variable]
    operations: List[Operation]

    def __init__(
        self, optimizer: Optimizer, described: Sequence[Described], rows: bool = False
    ) -> None:
        self.graph, self._described = tf.Graph(), described
        self._session = tf.Session(graph=self.graph, config=session_config.without_card())
        package = keras_api.package_of(optimizer)
        with self.graph.as_default(), self._session.as_default():
            loss = tf.placeholder(package.backend.floatx(), [], name='loss')
            self.variables, self.gradients = [], []
            for use in described:
                start = tf.random_uniform(use.shape, dtype=use.dtype)
                variable = tf.Variable(start, trainable=False, name=use.name)
                keras_api.with_shape(variable, use.shape)
                self.variables.append(named(variable, use.name + ':0'))
                self.gradients.append(_gradient(use, rows))
            copy = Copies(package).of(optimizer)
            # Clipping is ours to do, over all shards.
            exchanged = ExchangedGradients(
                loss,
                list(zip(self.variables, self.gradients)),
                lambda by: list(self.gradients),
                alone=False,
            )
            with exchanged.handed_out():
                updates = copy.get_updates(loss=loss, params=self.variables)
                self.operations = graph_queries.as_operations(updates)
            self.kept = [
                variable for variable in tf.global_variables() if variable not in self.variables
            ]
            if update_dependencies.in_branches(self.operations, self.variables + self.kept):
                raise ValueError('it writes variables in a branch or a loop')
            self.reads = update_dependencies.dependencies(
                self.operations, self.variables, self.kept, self.gradients
            )

    def mixed(self) -> Optional[Tuple[str, str]]:
        """A pair of names of variables, the first of which is computed from the second, if any."""
        everything = self.variables + self.kept
        for place, variable in enumerate(self.variables):
            pending, seen = [variable], set()
            while pending:
                for read in self.reads.get(pending.pop(), ()):
                    if read in seen:
                        continue
                    seen.add(read)
                    of = -1 - read if read < 0 else read
                    if of < len(self.variables) and of != place:
                        return self._described[place].name, self._described[of].name
                    if read >= len(self.variables):
                        pending.append(everything[read])
        return None

    def starts_oddly(self) -> bool:
        """Whether a variable that the optimizer has made starts with different numbers."""
        for variable in self.kept:
            start = variable.initial_value
            if start.op.type in ('Fill', 'ZerosLike', 'Empty'):
                continue
            value = np.asarray(self._session.run(start))
            if value.size and not (value == value.flat[0]).all():
                return True
        return False

    def check_piece(self, piece: int, whole: '_Built', number: int) -> None:
        """Checks that a piece of a variable is updated by row, as the whole one is.

        Args:
            piece: the piece's position.
            whole: the `_Built` of the variables as they are.
            number: the position of the variable there.

        Raises:
            NotByRow: it is not, or not for certain.
        """
        same = check_same(
            (self, self.variables[piece], self.gradients[piece]),
            (whole, whole.variables[number], whole.gradients[number]),
        )
        Rows(self, piece, same).check()
