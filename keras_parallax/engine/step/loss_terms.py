# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Terms of a loss whose mean over the workers is not the term of the joined batch.

Gradients are averaged over the workers, so the mean of the workers' losses must be the loss of the
joined batch. That holds for most losses of Keras. A term that Keras divides by the mean of a mask,
or that it sums over the batch, must count differently on each worker.
"""

from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Set

from keras_parallax.compat import graph_queries, tensorflow_api
from keras_parallax.compat.tensorflow_api import tf


class LossTerm(NamedTuple):
    """How a worker counts one term of its loss.

    Attributes:
        value: the tensor that is the term in Keras's loss, before or after Keras has multiplied it
            with its loss weight.
        factor: how many times the worker counts the term, a number or a scalar tensor. No gradient
            goes through it.
        instead: a tensor that the worker counts instead of `value`, of the same shape, or `None`.
    """

    value: tf.Tensor
    factor: Any = 1.0
    instead: Optional[tf.Tensor] = None


def joined(tensors: Sequence[tf.Tensor], terms: Sequence[LossTerm]) -> List[tf.Tensor]:
    """What a worker computes in place of tensors, such as a total loss, that contain terms.

    The given tensors stay as they are. The operations between a term and a tensor are copied.

    Args:
        tensors: the tensors.
        terms: the `LossTerm`s. Several may have the same value, and their factors are multiplied;
            only one of them may have something `instead`.

    Returns:
        A list of tensors, in order. A tensor that contains no term is returned itself.
    """
    of_value: Dict[tf.Tensor, List[LossTerm]] = {}
    for term in terms:
        of_value.setdefault(term.value, []).append(term)
    among = graph_queries.ancestors(tensors)
    between: Set[tf.Operation] = set()
    for value in of_value:
        between |= graph_queries.descendants(value.op, among) - {value.op}
    copies = _Copies(of_value, between)
    return [copies.of(tensor) for tensor in tensors]


class _Copies:
    """Copies of the operations that depend on terms, each made once.

    Args:
        of_value: dict from the terms' values to their `LossTerm`s.
        between: the operations that depend on a value.
    """

    def __init__(
        self, of_value: Dict[tf.Tensor, List[LossTerm]], between: Set[tf.Operation]
    ) -> None:
        self._of_value, self._between = of_value, between
        self._tensors: Dict[tf.Tensor, tf.Tensor] = {}
        self._operations: Dict[tf.Operation, tf.Operation] = {}

    def of(self, tensor: tf.Tensor) -> tf.Tensor:
        """The tensor that a worker computes in place of a tensor."""
        if tensor not in self._tensors:
            terms = self._of_value.get(tensor, [])
            others = [term.instead for term in terms if term.instead is not None]
            if len(others) > 1:
                raise ValueError('Two terms of %s have something instead of it.' % tensor.name)
            value = others[0] if others else self._copied(tensor)
            for term in terms:
                if isinstance(term.factor, tf.Tensor) or term.factor != 1:
                    value = value * tf.stop_gradient(tf.cast(term.factor, value.dtype))
            self._tensors[tensor] = value
        return self._tensors[tensor]

    def _copied(self, tensor: tf.Tensor) -> tf.Tensor:
        if tensor.op not in self._between:
            return tensor
        return self._copy_of(tensor.op).outputs[tensor.value_index]

    def _copy_of(self, operation: tf.Operation) -> tf.Operation:
        if operation not in self._operations:
            inputs = [self.of(tensor) for tensor in operation.inputs]
            # What a metric waits for has counted the term, too.
            awaited = [
                self._copy_of(other) if other in self._between else other
                for other in operation.control_inputs
            ]
            self._operations[operation] = tensorflow_api.copy_operation(operation, inputs, awaited)
        return self._operations[operation]
