# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The former storage of a sharded table: whatever uses it is made to use the shards.

Layers, savers and the user's own operations were built on an ordinary variable, and others are
built on its name or on the tensors that it had, at any time. So the graph is looked through before
a session runs what is new in it: who reads the storage gets the shards' rows, who writes to it
writes to the shards, and what can be neither says so when it is run.

A variable is made with an initializer and a read, which few graphs use again once its table has
shards. They rest until somebody needs them, for a model may have hundreds of tables.
"""

import contextlib
from typing import (
    AbstractSet,
    Any,
    Dict,
    Iterable,
    Iterator,
    List,
    NamedTuple,
    Sequence,
    Set,
    Tuple,
)

from keras_parallax.compat import graph_queries, tensorflow_api
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.engine.tables import script_writes
from keras_parallax.engine.tables.pull import REFUSAL_MARK, redirect_readers
from keras_parallax.engine.tables.table import Table, former_of, whole_of
from keras_parallax.framework_types import Operation, Tensor

#: Operations that hand the storage itself on.
_ENTRANCES = graph_queries.ENTRANCES | {'RefIdentity'}


_INITIALIZED = {'IsVariableInitialized', 'VarIsInitializedOp'}


_GATHER = 'ResourceGather'


class _Whole(NamedTuple):
    """A read of the whole table.

    Attributes:
        value: the tensor, the same one wherever the table lies.
        after: operations that come before the read.
    """

    value: tf.Tensor
    after: Tuple[tf.Operation, ...]


class _Written(NamedTuple):
    """An operation that wrote to the storage, and what it now waits for in its place.

    Attributes:
        operation: the operation.
        ready: makes ready what it writes to.
        write: the `Write`.
    """

    operation: tf.Operation
    ready: tf.Operation
    write: script_writes.Write


class _Alias(NamedTuple):
    """A tensor that stands for the storage, after some operations have written to it."""

    tensor: tf.Tensor
    after: Tuple[tf.Operation, ...]


class FormerStorage:
    """What uses the former storage of a sharded table.

    Args:
        table: the `Table`, with its shards made.
        storage: the tensor that stands for the storage.
        own: operations that are to use the storage itself.

    Attributes:
        resting: operations on the storage that nobody uses, a set: the variable's initializer, and
            reads without a reader. They are left alone until a run needs them (`wake`).
    """

    resting: Set[Operation]
    _wholes: List[_Whole]
    _written: List[_Written]
    _replaced: Dict[Tensor, Tensor]
    _nowhere: Dict[bool, Tuple[Tensor, Operation]]

    def __init__(self, table: Table, storage: Tensor, own: Iterable[Operation]) -> None:
        self._table, self._wholes, self._written = table, [], []
        self._aliases = [_Alias(storage, ()), _Alias(table.handle, ())]
        self._seen, self._replaced, self._nowhere = set(own), {}, {}
        self.resting = set(filter(self._may_rest, tensorflow_api.consumers(storage))) - self._seen

    @property
    def whole(self) -> Tensor:
        """The whole table, a tensor, brought together from its shards."""
        return self._read()

    @property
    def wholes(self) -> List[tf.Tensor]:
        """The tensors of the whole table that models compute with: one, and those after writes."""
        return [whole.value for whole in self._wholes]

    @property
    def storage(self) -> tf.Tensor:
        """The tensor that stands for the storage."""
        return self._aliases[0].tensor

    @property
    def written(self) -> List[Operation]:
        """The operations that write to the table, a list."""
        return [written.operation for written in self._written]

    @contextlib.contextmanager
    def own(self) -> Iterator[None]:
        """While open, what is built to use the storage uses the storage itself for good."""
        storage = self._aliases[0].tensor
        users = set(tensorflow_api.consumers(storage))
        yield
        self.leave(set(tensorflow_api.consumers(storage)) - users)

    def leave(self, operations: Iterable[Operation]) -> None:
        """Has operations that use the storage use the storage itself for good."""
        self._seen.update(operations)
        self.resting -= self._seen

    def wake(self, operations: AbstractSet[Operation]) -> bool:
        """Has the next `redirect` see to those of some operations that rest, for a run needs them.

        Returns whether there were any. Sessions that know them must be opened anew then.
        """
        woken = self.resting & operations
        self.resting -= woken
        return bool(woken)

    def replace(self, tensor: Tensor, replacement: Tensor) -> None:
        """Has whatever reads a tensor, now or later, read another.

        An operation has read it from the storage; others may wait for the operation.
        """
        self._seen.add(tensor.op)
        self._replaced[tensor] = replacement
        redirect_readers(tensor, replacement)
        if not tensorflow_api.is_in_control_flow(tensor):
            self._make_harmless(tensor.op)

    def fetches(self) -> Dict[Tensor, Tensor]:
        """What a session is to give for tensors that are not computed any more, a dict."""
        given = {alias.tensor: self._read(alias.after) for alias in self._aliases[2:]}
        resting = {}
        if self._table.is_sharded:
            reads = filter(_is_read, self.resting)
            resting = {read.outputs[0]: self._table.variable for read in reads}
        return {**resting, **self._replaced, **given}

    def redirect_reads(self) -> None:
        """Has what reads the storage, or has it as a reference, read the shards."""
        for read in filter(_is_read, self.resting):
            # Sessions may know the read, but not yet who reads it.
            if read.outputs[0] not in self._replaced and tensorflow_api.consumers(read.outputs[0]):
                self._replaced[read.outputs[0]] = self._read(tuple(read.control_inputs))
        for tensor, replacement in self._replaced.items():
            redirect_readers(tensor, replacement)
        for alias in self._aliases:  # To which more are added.
            for operation in self._uses(alias):
                if operation.type in _ENTRANCES:
                    self._seen.add(operation)
                    self._aliases += [_Alias(output, alias.after) for output in operation.outputs]
                elif not tensorflow_api.writes_to(operation, alias.tensor):
                    self._seen.add(operation)
                    with tensorflow_api.inside_loop_of(operation):
                        self._redirect_read(operation, alias)

    def redirect_writes(self) -> bool:
        """Has what writes to the storage write to the shards, or say that it cannot.

        Returns whether there was anything.
        """
        users = [(user, alias) for alias in self._aliases for user in self._uses(alias)]
        for operation, alias in users:
            self._seen.add(operation)
            kind = script_writes.kind_of(operation)
            if kind is None or tensorflow_api.is_in_control_flow(operation):
                self._refuse(operation)
            else:
                self._redirect_write(operation, alias, kind)
        return bool(users)

    def rebuild(self) -> None:
        """Has all that was redirected go where the table lies now, be that the storage again."""
        for value, after in self._wholes:
            tensorflow_api.replace_input(value.op, 0, self._value(after))
        for operation, ready, write in self._written:
            with self.own():
                built = script_writes.build(self._table, write)
            tensorflow_api.set_control_inputs(operation, [ready] + built)

    def _uses(self, alias: _Alias) -> List[Operation]:
        users = {
            user
            for user in tensorflow_api.consumers(alias.tensor)
            if user.type != tensorflow_api.LINK
        }
        return sorted(users - self._seen - self.resting, key=tensorflow_api.operation_id)

    def _may_rest(self, user: Operation) -> bool:
        if user is self._table.variable.initializer:
            return True
        # A read that waits for something is what an assignment has returned.
        if not _is_read(user) or user.control_inputs:
            return False
        return not tensorflow_api.consumers(user.outputs[0])

    def _value(self, after: Sequence[Operation]) -> Tensor:
        with tf.name_scope(None), tf.name_scope('parallax/%s/whole/' % self._table.name):
            with tf.control_dependencies(None), tf.control_dependencies(after):
                if not self._table.is_sharded:
                    with self.own():
                        return self._table.variable.read_value()
                # What links a gradient to it runs on the CPU alone.
                with tf.device('/cpu:0'):
                    return self._table.linked(whole_of(self._table, fresh=bool(after)))

    def _read(self, after: Tuple[Operation, ...] = ()) -> Tensor:
        """A tensor of the whole table as it is after some operations."""
        for whole in self._wholes:
            if whole.after == after:
                return whole.value
        with self.storage.graph.as_default(), tf.name_scope(None), tf.control_dependencies(None):
            value = tf.identity(self._value(after), 'parallax/%s/whole' % self._table.name)
        self._wholes.append(_Whole(value, after))
        return value

    def _redirect_read(self, operation: Operation, alias: _Alias) -> None:
        in_flow = tensorflow_api.is_in_control_flow(operation)
        # Who waits before it reads wants what was written by then.
        waited = () if in_flow else tuple(operation.control_inputs)
        if operation.type in _INITIALIZED:
            # It may look at storage without a value, so it is left as it is.
            self._replaced[operation.outputs[0]] = tf.constant(True)
            redirect_readers(operation.outputs[0], self._replaced[operation.outputs[0]])
            return
        whole = self._read(alias.after + waited)
        if operation.type == 'VariableShape':
            shape = tf.constant(whole.shape.as_list(), operation.outputs[0].dtype)
            self.replace(operation.outputs[0], shape)
        elif operation.type == _GATHER:
            self.replace(operation.outputs[0], tf.gather(whole, operation.inputs[1]))
        elif operation.type == 'ReadVariableOp' or in_flow and operation.type == 'Identity':
            self.replace(operation.outputs[0], tf.identity(whole) if in_flow else whole)
        else:
            for index, read in enumerate(operation.inputs):
                if read is alias.tensor:
                    tensorflow_api.replace_input(operation, index, whole)

    def _redirect_write(self, operation: Operation, alias: _Alias, kind: str) -> None:
        after = alias.after + tuple(operation.control_inputs)
        operands = [
            self._read(after) if given is alias.tensor else given
            for given in list(operation.inputs)[1:]
        ]
        write = script_writes.Write(kind, operands, operation.name, after)
        ready = self._make_harmless(operation)
        tensorflow_api.add_control_inputs(operation, script_writes.build(self._table, write))
        self._written.append(_Written(operation, ready, write))
        # The output of an operation that writes to a reference is the reference.
        self._aliases += [_Alias(output, (operation,)) for output in operation.outputs]

    def _make_harmless(self, operation: Operation) -> Operation:
        """Has an operation read or write what has no elements; returns what must run before it."""
        storage = operation.inputs[0]
        by_handle = storage.dtype == tf.resource
        if by_handle not in self._nowhere:
            with tensorflow_api.colocated_with(storage.op):
                name = 'parallax/%s/nothing' % self._table.name
                self._nowhere[by_handle] = tensorflow_api.without_elements(
                    self._table.dtype, name, by_handle
                )
        nowhere, ready = self._nowhere[by_handle]
        nothing = [
            tensorflow_api.no_elements(given.dtype.base_dtype) for given in operation.inputs[1:]
        ]
        for index, given in enumerate([nowhere] + nothing):
            tensorflow_api.replace_input(operation, index, given)
        tensorflow_api.add_control_inputs(operation, [ready])
        return ready

    def _refuse(self, operation: Operation) -> None:
        with tensorflow_api.inside_loop_of(operation):
            refusal = tf.Assert(False, [REFUSAL_MARK, operation.name, self._table.name])
        tensorflow_api.add_control_inputs(operation, [refusal])


def _is_read(operation: Operation) -> bool:
    return operation.type in graph_queries.TRANSPARENT


def redirect(tables: Iterable[Table]) -> None:
    """Has what is new in the graph use the shards of its sharded tables."""
    formers = list(map(former_of, tables))
    pending = bool(formers)
    with tf.control_dependencies(None), tf.name_scope(None):
        while pending:
            # What is written may depend on any table.
            for former in formers:
                former.redirect_reads()
            pending = any([former.redirect_writes() for former in formers])


def fetches_of(tables: Iterable[Table]) -> Dict[str, Any]:
    """What a session is to give for what of tables is not computed any more, by name.

    The tables are sharded, or were; what is given are tensors or variables.
    """
    given = {}
    for table in tables:
        given.update({tensor.name: value for tensor, value in former_of(table).fetches().items()})
        if table.is_sharded:
            given[table.variable.name] = table.variable
    return given
