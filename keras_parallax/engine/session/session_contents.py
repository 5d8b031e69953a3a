# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What a session holds besides variables: iterators, lookup tables, queues and the like.

TensorFlow 1.11 lets a resource without a name of its own go with the session that made it. On a
server a resource with a name stays, so that the next session of the graph goes on with it. Proven
by `tests/parallel/test_sessions.py`.
"""

import contextlib
import os
import tempfile
from typing import Dict, Iterable, Iterator, List, Optional, Tuple

from keras_parallax.compat import graph_queries, tensorflow_api
from keras_parallax.compat.installed_frameworks import generation
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.framework_types import Array, DType, Operation, Session, Tensor

_VARIABLES = {'Variable', 'VariableV2', 'AutoReloadVariable', 'VarHandleOp'}


#: Makes its iterator itself, when a session runs it for the first time, and takes no name.
_ONE_SHOT = 'OneShotIterator'


_ITERATORS = {'Iterator', 'IteratorV2', _ONE_SHOT}


_HASH_TABLE = 'HashTableV2'


_TABLES = {_HASH_TABLE, 'MutableHashTableV2', 'MutableDenseHashTableV2'}


def holders_among(operations: Iterable[Operation]) -> List[Operation]:
    """Those operations that stand for something that a session holds, variables apart."""
    return [
        operation
        for operation in operations
        if operation.type not in _VARIABLES and tensorflow_api.has_attr(operation, 'shared_name')
    ]


def keep(holder: Operation, container: str) -> Optional[Operation]:
    """Has what an operation stands for outlive the session that makes it, on a server.

    Args:
        holder: the operation. No session on a server may have run it.
        container: the container that it gets if it has none.

    Returns:
        `None`, or an operation to be run at once, which makes an iterator in place of a one-shot
        iterator.
    """
    if not holder.get_attr('container'):
        tensorflow_api.set_string(holder, 'container', container)
    if holder.type == _ONE_SHOT:
        return _as_initializable(holder)
    if not holder.get_attr('shared_name'):
        tensorflow_api.set_string(holder, 'shared_name', holder.name)
    return None


def redirect_readers(operations: Iterable[Operation]) -> None:
    """Has those operations that read a one-shot iterator read what has taken its place."""
    for operation in operations:
        for index, read in enumerate(operation.inputs):
            replacement = getattr(read.op, '_parallax_iterator', None)
            if replacement is not None:
                tensorflow_api.replace_input(operation, index, replacement)


def _as_initializable(one_shot: Operation) -> Operation:
    """Puts an iterator that has a name in the place of one that makes itself."""
    with _beside(one_shot):
        iterator = _another(one_shot, 'parallax/' + one_shot.name)
        function = one_shot.get_attr('dataset_factory').name
        dataset = one_shot.graph.create_op(function, [], [tf.variant], name='dataset').outputs[0]
        maker = tensorflow_api.dataset_ops.make_iterator(dataset, iterator)
    one_shot._parallax_iterator = iterator
    redirect_readers(tensorflow_api.consumers(one_shot.outputs[0]))
    return maker


def _another(iterator: Operation, name: Optional[str] = None) -> Tensor:
    """A handle of the iterator that an operation stands for, or of one of another name."""
    return tensorflow_api.dataset_ops.iterator_v2(
        shared_name=name or iterator.get_attr('shared_name').decode(),
        container=iterator.get_attr('container').decode(),
        output_types=iterator.get_attr('output_types'),
        output_shapes=iterator.get_attr('output_shapes'),
    )


@contextlib.contextmanager
def _beside(operation: Operation) -> Iterator[None]:
    """Builds operations where another is, of whatever is being built at the time."""
    graph = operation.graph
    with graph.as_default(), tf.control_dependencies(None), tf.name_scope(None):
        with tf.name_scope('parallax/session/'), tf.device(operation.device):
            yield


class Contents:
    """What an earlier session of a graph holds besides variables; it can be put in another.

    Tables and iterators are copied, as far as TensorFlow can write an iterator down.

    Args:
        session: the session.

    Attributes:
        iterators: dict from the iterators that are copied, operations, to files.
        lost: a list of those initialized iterators that TensorFlow cannot write down, or give
            their data set anew.
    """

    _tables: Dict[Operation, List[Array]]
    iterators: Dict[Operation, str]
    lost: List[Operation]

    def __init__(self, session: Session) -> None:
        self._session, self._folder = session, tempfile.TemporaryDirectory(prefix='parallax')
        self._tables, self.iterators, self.lost = {}, {}, []
        for holder in holders_among(session.graph.get_operations()):
            if holder.type in _TABLES:
                self._read_table(holder)
            elif holder.type in _ITERATORS:
                self._save_iterator(holder)

    def load(self, session: Session, target: str) -> None:
        """Puts it all in another session.

        Args:
            session: the session.
            target: the server that it goes through, or `''`.
        """
        for table, content in self._tables.items():
            with _beside(table):
                fill = tensorflow_api.lookup_ops.lookup_table_import_v2
                if table.type == _HASH_TABLE:
                    fill = tensorflow_api.lookup_ops.initialize_table_v2
                feeds = [tf.placeholder(dtype) for dtype in _dtypes_of(table)]
                filled = fill(table.outputs[0], *feeds)
            session.run(filled, dict(zip(feeds, content)))
        for holder, path in self.iterators.items():
            iterator = getattr(holder, '_parallax_iterator', holder.outputs[0])
            if generation.ITERATORS_NEED_DATA:
                session.run(_makers_of(iterator))
            if target:
                # In a graph of its own, for the session's may know other forms of the functions
                # that the state brings along.
                with tf.Graph().as_default(), tf.device(iterator.device):
                    restored = _restored(_another(iterator.op), path)
                    with tf.Session(target, config=tensorflow_api.config_of(session)) as other:
                        other.run(restored)
            else:
                with _beside(holder):
                    restored = _restored(iterator, path)
                session.run(restored)
        self._folder.cleanup()

    def _read_table(self, table: Operation) -> None:
        with _beside(table):
            exported = tensorflow_api.lookup_ops.lookup_table_export_v2(
                table.outputs[0], *_dtypes_of(table)
            )
        # One that is not initialized yet says that it is `Aborted`.
        with contextlib.suppress(tf.errors.AbortedError, tf.errors.FailedPreconditionError):
            self._tables[table] = self._session.run(list(exported))

    def _save_iterator(self, iterator: Operation) -> None:
        path = os.path.join(self._folder.name, str(len(self.iterators)))
        with _beside(iterator):
            state = tensorflow_api.dataset_ops.serialize_iterator(iterator.outputs[0])
            saved = tensorflow_api.io_ops.save_v2(path, [_STATE], [''], [state])
        try:
            self._session.run(saved)
            # A one-shot iterator has its data set of itself.
            makes_itself = not generation.ITERATORS_NEED_DATA or iterator.type == _ONE_SHOT
            if makes_itself or _makers_of(iterator.outputs[0]):
                self.iterators[iterator] = path
            else:
                self.lost.append(iterator)
        except tf.errors.OpError as error:
            # What one-shot iterators cannot write down, they begin anew.
            if 'has not been initialized' not in error.message and iterator.type != _ONE_SHOT:
                self.lost.append(iterator)


_STATE = 'iterator'


def _makers_of(iterator: Tensor) -> List[Operation]:
    """The operation that gives an iterator its data set, a list.

    It is empty if it cannot be told what that is: it is one of several, or was fed.
    """
    makers = [
        reader for reader in tensorflow_api.consumers(iterator) if reader.type == 'MakeIterator'
    ]
    is_fed = any(made_of.type == 'Placeholder' for made_of in graph_queries.ancestors(makers))
    return makers if len(makers) == 1 and not is_fed else []


def _restored(iterator: Tensor, path: str) -> Operation:
    """An operation that gives an iterator the state in a file."""
    (state,) = tensorflow_api.io_ops.restore_v2(path, [_STATE], [''], [tf.variant])
    return tensorflow_api.dataset_ops.deserialize_iterator(iterator, state)


def _dtypes_of(table: Operation) -> Tuple[DType, DType]:
    return table.get_attr('key_dtype'), table.get_attr('value_dtype')
