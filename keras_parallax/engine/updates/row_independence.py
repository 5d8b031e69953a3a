# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Whether the updates of a variable are computed row by row: a walk through their graph."""

from typing import Any, Dict, List, Tuple

import numpy as np
from typing_extensions import Protocol

from keras_parallax.compat import tensorflow_api
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.engine.updates.update_dependencies import writes_in
from keras_parallax.framework_types import Array, Gradient, Operation, Tensor, Variable

_VARIABLES = {'Variable', 'VariableV2', 'VarHandleOp'}


#: Each entry of the output is of the entries of the inputs at the same place, after broadcasting.
_BY_ENTRY = set(
    'Identity StopGradient Snapshot Cast Neg Abs Sign Square Sqrt Rsqrt Exp Expm1 '
    'Log Log1p Reciprocal Inv Sigmoid Tanh Relu Softplus Floor Ceil Round Rint Sin Cos Erf '
    'ZerosLike OnesLike IsNan IsInf IsFinite LogicalNot CheckNumerics Add Sub Mul Div RealDiv '
    'FloorDiv TruncateDiv FloorMod Mod Pow Maximum Minimum SquaredDifference Greater GreaterEqual '
    'Less LessEqual Equal NotEqual LogicalAnd LogicalOr AddN AddV2 Select DivNoNan Merge Assign '
    'AssignAdd AssignSub AssignVariableOp AssignAddVariableOp AssignSubVariableOp'.split()
)


_REDUCTIONS = {'Sum', 'Mean', 'Max', 'Min', 'Prod', 'All', 'Any'}


#: Differ between the whole and a piece without meaning anything.
_IGNORED = {'shape', '_class', 'shared_name', 'container', '_output_shapes', 'value'}


class NotByRow(Exception):
    """An update is not computed row by row, or not for certain; says why."""


class BuiltUpdates(Protocol):
    """The updates of an optimizer, in a graph of their own."""

    variables: List[Variable]
    gradients: List[Gradient]
    kept: List[Variable]
    operations: List[Operation]


def check_same(
    piece: Tuple[BuiltUpdates, Variable, Any], whole: Tuple[BuiltUpdates, Variable, Any]
) -> Dict[Operation, Operation]:
    """Checks that the updates of a piece of a variable are those of the whole one.

    Args:
        piece: a triple: the built updates, the variable, and its gradient.
        whole: the same of the whole variable.

    Returns:
        A dict from the operations of variables in the updates of the piece to those of the whole.

    Raises:
        NotByRow: they differ.
    """
    (built, variable, gradient), (built_whole, variable_whole, gradient_whole) = piece, whole
    same = {
        tensorflow_api.storage(variable).op: tensorflow_api.storage(variable_whole).op,
        gradient.op: gradient_whole.op,
    }
    variables = {tensorflow_api.storage(of).op: of for of in built.variables + built.kept}
    of_whole = {
        tensorflow_api.storage(of).op: of for of in built_whole.variables + built_whole.kept
    }
    pending, compared, done = [(variable, variable_whole)], set(), set()
    while pending:
        in_piece, in_whole = pending.pop()
        if in_piece in done:
            continue
        done.add(in_piece)
        writes = [
            writes_in(in_piece, built.operations),
            writes_in(in_whole, built_whole.operations),
        ]
        if len(writes[0]) != len(writes[1]):
            raise NotByRow('treats variables of few rows in another way')
        operations = list(zip(*writes))
        while operations:
            of_piece, other = operations.pop()
            if (of_piece, other) in compared:
                continue
            compared.add((of_piece, other))
            _compare(of_piece, other)
            if of_piece in same or of_piece.type in _VARIABLES:
                if same.setdefault(of_piece, other) is not other:
                    raise NotByRow('treats variables of few rows in another way')
                if of_piece in variables:
                    if other not in of_whole:
                        raise NotByRow('treats variables of few rows in another way')
                    pending.append((variables[of_piece], of_whole[other]))
                continue
            operations += [(i.op, j.op) for i, j in zip(of_piece.inputs, other.inputs)]
    return same


def _compare(of_piece: Operation, of_whole: Operation) -> None:
    both = of_piece, of_whole
    if of_piece.type != of_whole.type or len(of_piece.inputs) != len(of_whole.inputs):
        raise NotByRow('treats variables of few rows in another way')
    if of_piece.type == 'Const':
        values = [tensorflow_api.constant_value(operation.outputs[0]) for operation in both]
        if not _equal_but_for_rows(of_piece, *values):
            raise NotByRow('computes with the number of rows, or the place of the variable')
        return
    attributes = [
        {name: value for name, value in operation.node_def.attr.items() if name not in _IGNORED}
        for operation in both
    ]
    if attributes[0] != attributes[1]:
        raise NotByRow('treats variables of few rows in another way')


def _equal_but_for_rows(operation: Operation, value: Array, whole: Array) -> bool:
    if value.shape == whole.shape and (value == whole).all():
        return True
    if value.ndim and value.size and whole.size:
        uniform = (value == value.flat[0]).all() and (whole == whole.flat[0]).all()
        if uniform and value.flat[0] == whole.flat[0]:
            return True
    # The dimensions of what is filled with one number.
    users = tensorflow_api.consumers(operation.outputs[0])
    return bool(users) and all(
        user.type == 'Fill' and user.inputs[0].op is operation for user in users
    )


class Rows:
    """A walk through the updates of a piece of a variable.

    Args:
        built: the built updates.
        piece: the piece's position.
        same: as `check_same` returns it.
    """

    _known: Dict[Tensor, bool]

    def __init__(self, built: BuiltUpdates, piece: int, same: Dict[Operation, Operation]) -> None:
        self._built, self._same = built, same
        self._variable, self._gradient = built.variables[piece], built.gradients[piece]
        self._kept = {tensorflow_api.storage(of).op: of for of in built.kept}
        self._known = {}

    def check(self) -> None:
        """Raises `NotByRow` unless each row is computed from that row of variable and slots."""
        for operation in self._same:
            variable = self._kept.get(operation)
            if operation is tensorflow_api.storage(self._variable).op:
                variable = self._variable
            if variable is None:
                continue
            for write in writes_in(variable, self._built.operations):
                self._check_write(variable, write)

    def _check_write(self, variable: Variable, write: Operation) -> None:
        if write.type not in _BY_ENTRY:
            raise NotByRow('writes by %s' % write.type)
        by_row = self._of_variable(tensorflow_api.storage(variable).op)
        value = write.inputs[1]
        if self._is_by_row(value):
            if not by_row:
                raise NotByRow('keeps a number of all rows')
            if value.shape.ndims != variable.shape.ndims:
                raise NotByRow('changes the shape of a variable')

    def _is_by_row(self, tensor: Tensor) -> bool:
        """Whether a tensor has a row for each one of the variable, rather than none of its values.

        Raises:
            NotByRow: it has something of several rows.
        """
        if tensor not in self._known:
            self._known[tensor] = self._look(tensor.op, tensor)
        return self._known[tensor]

    def _of_variable(self, operation: Operation) -> bool:
        if operation in (tensorflow_api.storage(self._variable).op, self._gradient.op):
            return True
        kept, whole = self._kept.get(operation), self._same.get(operation)
        if kept is None or whole is None:
            return False
        shape = kept.shape.as_list()
        if shape == self._variable.shape.as_list():
            return True
        if shape != _shape_of(whole):
            raise NotByRow('keeps numbers of rows in another shape than the variable')
        return False

    def _look(self, operation: Operation, tensor: Tensor) -> bool:
        if operation.type in _VARIABLES or operation is self._gradient.op:
            return self._of_variable(operation)
        by_row = [self._is_by_row(given) for given in operation.inputs]
        if operation.type == 'Const':
            value = tensorflow_api.constant_value(tensor)
            rows = self._variable.shape.as_list()[0]
            if value.ndim and value.shape[0] == rows and not (value == value[:1]).all():
                raise NotByRow('has other constants for other rows')
            return False
        if operation.type == 'ReadVariableOp':
            return by_row[0]
        if not any(by_row):
            if tensorflow_api.op_def(operation).is_stateful:
                raise NotByRow('draws numbers or runs code of its own (%s)' % operation.type)
            return False
        if operation.type == 'Switch' and by_row[-1]:
            raise NotByRow('chooses by the values of a variable')
        if operation.type == 'Switch' or operation.type in _BY_ENTRY:
            return self._by_entry(operation, tensor, by_row)
        if operation.type in _REDUCTIONS:
            return self._reduced(operation, by_row)
        raise NotByRow('computes with whole variables (%s)' % operation.type)

    def _by_entry(self, operation: Operation, tensor: Tensor, by_row: List[bool]) -> bool:
        for given, of_rows in zip(operation.inputs, by_row):
            if of_rows and given.shape.ndims != tensor.shape.ndims:
                # NumPy's rule aligns the last axes.
                raise NotByRow('computes with whole variables (%s)' % operation.type)
        return True

    def _reduced(self, operation: Operation, by_row: List[bool]) -> bool:
        axes = tensorflow_api.constant_value(operation.inputs[1])
        dimensions = operation.inputs[0].shape.ndims
        if by_row[1] or axes is None or dimensions is None:
            raise NotByRow('computes with whole variables (%s)' % operation.type)
        if any(axis % dimensions == 0 for axis in np.ravel(axes)):
            raise NotByRow('computes with whole variables (%s over all rows)' % operation.type)
        return True


def _shape_of(operation: Operation) -> List[int]:
    shape = tf.TensorShape(operation.get_attr('shape'))
    return shape.as_list()
