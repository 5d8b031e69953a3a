# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Finds out from operations whether a term of a loss is a mean or a sum over the samples.

Some terms cannot be tried on a batch (`loss_trial.py`), for instance because batches come from the
graph. The common form of such a term is recognized here: a mean or a sum over all entries of a
tensor that is computed entry by entry from outputs of layers.
"""

from typing import AbstractSet, Dict, Optional

from keras_parallax.compat import keras_api, tensorflow_api
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.engine.updates.requested_gradients import is_of_batch
from keras_parallax.planning.loss_kinds import MEAN, SUM

_REDUCTIONS = {'Mean': MEAN, 'Sum': SUM}

#: Operations that compute each entry of their output from the same entry of their inputs.
_ENTRYWISE = {
    'Abs', 'Add', 'AddV2', 'AddN', 'BiasAdd', 'Cast', 'ClipByValue', 'Elu', 'Erf', 'Exp', 'Expm1',
    'Identity', 'Log', 'Log1p', 'Maximum', 'Minimum', 'Mul', 'Neg', 'Pow', 'RealDiv', 'Reciprocal',
    'Relu', 'Rsqrt', 'Selu', 'Sigmoid', 'Sign', 'Softplus', 'Softsign', 'Sqrt', 'Square',
    'SquaredDifference', 'Sub', 'Tanh',
}  # fmt: skip


def kind_by_structure(value: tf.Tensor, sources: AbstractSet[tf.Operation]) -> Optional[str]:
    """`MEAN` or `SUM` if the operations of a term show that it is one, else `None`.

    Args:
        value: the term, a scalar.
        sources: the operations of the model's inputs and targets.
    """
    while value.op.type == 'Identity':
        value = value.op.inputs[0]
    kind = _REDUCTIONS.get(value.op.type)
    if kind is None or value.shape.ndims != 0:
        return None
    return kind if _Samples(sources).of(value.op.inputs[0]) == BY_SAMPLE else None


#: What the entries of a tensor depend on: nothing of the batch, the sample of the same number along
#: the first axis, or more.
NO_SAMPLE, BY_SAMPLE, MORE = 'no sample', 'by sample', 'more'


class _Samples:
    """Tells what the entries of tensors depend on.

    Args:
        sources: as of `kind_by_structure`.
    """

    def __init__(self, sources: AbstractSet[tf.Operation]) -> None:
        self._sources = sources
        self._found: Dict[tf.Tensor, str] = {}

    def of(self, tensor: tf.Tensor) -> str:
        """`NO_SAMPLE`, `BY_SAMPLE` or `MORE`."""
        if tensor not in self._found:
            self._found[tensor] = MORE  # In a loop a tensor depends on itself.
            self._found[tensor] = self._of(tensor)
        return self._found[tensor]

    def _of(self, tensor: tf.Tensor) -> str:
        operation, rank = tensor.op, tensor.shape.ndims
        if operation in self._sources or keras_api.is_of_layer(tensor):
            return BY_SAMPLE if rank else MORE
        if is_of_batch(operation):
            return MORE
        kinds = {self.of(taken) for taken in operation.inputs}
        if kinds <= {NO_SAMPLE}:
            return NO_SAMPLE
        if MORE in kinds or not rank:
            return MORE
        if operation.type in _REDUCTIONS:
            return BY_SAMPLE if _keeps_samples(operation) else MORE
        # Weights and constants are the same for all samples. Of tensors of unequal rank, samples
        # would be combined with others.
        ranks = {one.shape.ndims for one in operation.inputs if self.of(one) == BY_SAMPLE}
        return BY_SAMPLE if operation.type in _ENTRYWISE and ranks == {rank} else MORE


def _keeps_samples(reduction: tf.Operation) -> bool:
    """Whether a mean or a sum is known to leave the first axis as it is."""
    reduced, axes = reduction.inputs[0], tensorflow_api.constant_value(reduction.inputs[1])
    return axes is not None and all(axis % reduced.shape.ndims for axis in axes.reshape(-1))
