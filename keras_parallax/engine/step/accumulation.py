# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Sums of a worker's gradients over several batches, which are exchanged once.

Each batch adds its gradients to variables of the worker. After the last one a run of its own, which
has no batch, takes the means from there, exchanges and applies them, and empties the variables
(`docs/design/accumulation.md`).
"""

import contextlib
from typing import Any, Callable, Iterable, Iterator, List, Optional, Sequence, Tuple, Union

from keras_parallax.compat import graph_queries, tensorflow_api
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.engine.job.collectives import unfolded_zero
from keras_parallax.engine.step.exchange import RowGradients, sum_by_row
from keras_parallax.engine.tables.pull_data import SplitIds
from keras_parallax.engine.updates.requested_gradients import is_of_batch
from keras_parallax.errors import PlanError
from keras_parallax.framework_types import DType, Operation, Slices, Tensor, Variable


class OneBatch:
    """The gradients of one batch, which are exchanged as they come.

    Args:
        loss: the model's total loss.

    Attributes:
        steps: how many batches there are between two exchanges.
        batches: how many have been added up, a number or a scalar tensor.
        storage: the variables that hold sums.
    """

    steps = 1
    batches: Any = 1
    storage: Sequence[Variable] = ()

    def __init__(self, loss: Tensor) -> None:
        self._loss = loss

    def begin(self, computed: Operation) -> None:
        """Takes the operation that has run when this worker has all gradients of a batch."""

    def mean(self, gradient: Tensor, name: str, shape: Sequence[int] = ()) -> Tensor:
        """The mean over the batches of a tensor, given its name and its shape."""
        return gradient

    def slices(self, gradient: Slices, name: str) -> Slices:
        """The mean over the batches of `IndexedSlices`, of which none are summed."""
        return gradient

    def rows(
        self, gradients: RowGradients, split: Optional[SplitIds], name: str, row_shape: List[int]
    ) -> Tuple[RowGradients, Optional[SplitIds]]:
        """The mean over the batches of `RowGradients`, and the `SplitIds` of the rows or `None`."""
        return gradients, split

    def after(self, operations: Sequence[Operation]) -> Sequence[Operation]:
        """Those of some operations of a batch that have not run before the exchange: all."""
        return operations

    @property
    def zero(self) -> Tensor:
        """A zero of the loss's dtype that TensorFlow does not know to be one."""
        return unfolded_zero(self._loss)


class Accumulated:
    """The same of several batches.

    Args:
        loss: the model's total loss.
        steps: number of batches.
        prefix: starts the variables' names.

    Attributes:
        steps, batches, storage: as of `OneBatch`.
        additions: the operations that a batch runs.
        resets: operations of the exchange, which empty the variables.
    """

    storage: List[Variable]
    additions: List[Operation]
    resets: List[Operation]
    _computed: Optional[Operation]

    def __init__(self, loss: Tensor, steps: int, prefix: str) -> None:
        self.steps, self._prefix, self._dtype = steps, prefix, loss.dtype
        self.storage, self.additions, self.resets, self._computed = [], [], [], None
        with _beside(), tf.device('/cpu:0'):
            self._count = self._variable('batches', [], tf.float32)
            self.batches = self._count + 0.0
            self._reset([(self._count, [])], [self.batches])

    def begin(self, computed: Operation) -> None:
        """Takes the operation that has run when this worker has all gradients of a batch.

        What is added up waits for it, so that of a batch that fails nothing is.
        """
        self._computed = computed
        with tf.control_dependencies([computed]), tf.device('/cpu:0'):
            self.additions.append(tf.assign_add(self._count, 1.0).op)

    def mean(self, gradient: Tensor, name: str, shape: Sequence[int] = ()) -> Tensor:
        """The mean over the batches of a tensor, given its name and its shape."""
        with _beside():
            total = self._variable(name, list(shape), gradient.dtype)
            mean = total / tf.cast(self.batches, gradient.dtype)
            self._reset([(total, list(shape))], [mean])
        with tf.control_dependencies([self._computed]):
            self.additions.append(tf.assign_add(total, gradient).op)
        return mean

    def slices(self, gradient: Slices, name: str) -> Slices:
        """The mean over the batches of `IndexedSlices`, of which none are summed."""
        shape = gradient.values.shape.as_list()[1:]
        given = RowGradients(gradient.indices, gradient.values)
        mean = self._kept(given, name, shape, _joined)
        return tf.IndexedSlices(mean.values, mean.rows, gradient.dense_shape)

    def rows(
        self, gradients: RowGradients, split: Optional[SplitIds], name: str, row_shape: List[int]
    ) -> Tuple[RowGradients, Optional[SplitIds]]:
        """The mean over the batches of `RowGradients`, and the `SplitIds` of the rows or `None`.

        Rows that several batches have touched are summed with each of them, so that the variables
        hold no more than the rows that the exchange is to send.
        """
        return self._kept(gradients, name, row_shape, sum_by_row), None

    def _kept(
        self,
        gradients: RowGradients,
        name: str,
        row_shape: List[int],
        join: Callable[[Sequence[RowGradients]], RowGradients],
    ) -> RowGradients:
        with _beside(), tf.device('/cpu:0'):
            shapes: List[List[Optional[int]]] = [[None], [None, *row_shape]]
            parts = zip((name + '/rows', name + '/values'), shapes, gradients)
            variables = [self._variable(part, shape, of.dtype) for part, shape, of in parts]
            kept = RowGradients(*[variable.value() for variable in variables])
            for tensor, shape in zip(kept, shapes):
                tensor.set_shape(shape)
            scale = tf.cast(self.batches, kept.values.dtype)
            mean = RowGradients(tf.identity(kept.rows), kept.values / scale)
            self._reset(zip(variables, shapes), mean)
            with tf.control_dependencies([self._computed]):
                joined = join([kept, RowGradients(*map(tf.identity, gradients))])
            self.additions += [
                tf.assign(variable, value, validate_shape=False).op
                for variable, value in zip(variables, joined)
            ]
        return mean

    def after(self, operations: Sequence[Operation]) -> Sequence[Operation]:
        """Those of some operations of a batch that have not run before the exchange: none."""
        return []

    @property
    def zero(self) -> Tensor:
        """A zero of the loss's dtype that TensorFlow does not know to be one."""
        return tf.cast(unfolded_zero(self.batches), self._dtype)

    def require_no_batch(self, operation: Operation, name: str) -> None:
        """Raises `PlanError` if an update, of an optimizer of a name, needs more of a batch."""
        for needed in graph_queries.ancestors([operation]):
            if is_of_batch(needed):
                raise PlanError(
                    'accumulate_steps=%d has %s update after several batches, but its updates '
                    'depend on a batch (%s) in another way than by the gradients, for instance by '
                    'the value of the loss. Use an optimizer that takes gradients only, or leave '
                    'accumulate_steps out.' % (self.steps, name, needed.name)
                )

    def _variable(self, name: str, shape: List[Optional[int]], dtype: DType) -> Variable:
        """A variable of zeros, without rows if their number is not known."""
        start = _zeros(shape, dtype)
        if None in shape:
            start = tf.placeholder_with_default(start, shape)
        variable = tf.Variable(
            start,
            trainable=False,
            validate_shape=None not in shape,
            # Local ones go along when the session moves to a server.
            collections=[tf.GraphKeys.LOCAL_VARIABLES],
            name='parallax/%s/sum_of/%s' % (self._prefix, name),
        )
        self.storage.append(variable)
        return variable

    def _reset(
        self, variables: Iterable[Tuple[Variable, List[Optional[int]]]], taken: Iterable[Tensor]
    ) -> None:
        """Empties variables, given with their shapes, when tensors have been taken from them."""
        with tf.control_dependencies(list(taken)):
            for variable, shape in variables:
                nothing = _zeros(shape, variable.dtype.base_dtype)
                self.resets.append(tf.assign(variable, nothing, validate_shape=False).op)


#: The batches of an exchange.
Batches = Union[OneBatch, Accumulated]


def _zeros(shape: List[Optional[int]], dtype: DType) -> Tensor:
    if None in shape:
        return tf.zeros([size or 0 for size in shape], dtype)
    return tensorflow_api.zeros(shape, dtype)


def _joined(pairs: Sequence[RowGradients]) -> RowGradients:
    return RowGradients(*[tf.concat(column, 0) for column in zip(*pairs)])


@contextlib.contextmanager
def _beside() -> Iterator[None]:
    """While open, what is built waits for nothing, and has names of its own."""
    with tf.control_dependencies(None), tf.name_scope(None):
        yield
