# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Lookups, exchange and pushes within the steps that Keras 3 builds for its TensorFlow backend."""

import contextlib
from typing import Any, Callable, Dict, Iterator, List, Sequence, Tuple

import numpy as np
import tensorflow as tf
from keras.src.backend.common.masking import get_keras_mask, set_keras_mask
from keras.src.backend.tensorflow import random as tf_random
from keras.src.random.seed_generator import draw_seed
from tensorflow.python.eager import context, record

from keras_parallax.compat.horovod_api import hvd

#: XLA compiles no call of Python, so that it cannot compile a whole step.
CAN_COMPILE = False

#: For each distribution TensorFlow's operation, and by how much its counter moves on for
#: `_AT_ONCE` numbers.
_DRAWS = {
    'uniform': (tf.raw_ops.StatelessRandomUniformV2, 1),
    'normal': (tf.raw_ops.StatelessRandomNormalV2, 1),
    'truncated_normal': (tf.raw_ops.StatelessTruncatedNormalV2, 256),
}
_AT_ONCE = 4

#: The call that runs a step returns when the step is over.
IS_ASYNCHRONOUS = False

#: From lists of ids to lists of their rows.
PullRows = Callable[[Sequence[np.ndarray]], List[np.ndarray]]


def shape_of_table(shape: Tuple[int, int]) -> tf.TensorShape:
    """The shape of a table, as a variable of Keras has it."""
    return tf.TensorShape(shape)


def sharing(array: np.ndarray) -> tf.Tensor:
    """A tensor that has the memory of an array."""
    return tf.experimental.dlpack.from_dlpack(array.__dlpack__())


@contextlib.contextmanager
def outside_steps() -> Iterator[None]:
    """While open, everything is computed at once, also while tracing, or in the engine's graph."""
    with tf.init_scope(), context.eager_mode():
        yield


def seed_of_draws(initializer: Any) -> Any:
    """The seed with which a random initializer of Keras draws next, a tensor."""
    return tf_random._cast_seed(draw_seed(initializer.seed))


def seed_of_numbers(numbers: Sequence[int]) -> Any:
    """A seed as `seed_of_draws` returns it, made of its two numbers."""
    return tf.constant(numbers, tf.int32)


def drawn_rows(
    kind: str, low: float, high: float, *, seed: Any, first: int, shape: Tuple[int, int]
) -> np.ndarray:
    """Some rows of what Keras would draw for a whole table.

    Args:
        kind: `'uniform'`, `'normal'` or `'truncated_normal'`.
        low: the lower bound, or the mean.
        high: the upper bound, or the standard deviation.
        seed: as `seed_of_draws` returns it.
        first: the number of the first row.
        shape: the number of rows, and the width.

    Returns:
        The rows, float32 of the shape.
    """
    operation, counts = _DRAWS[kind]
    begin, end = first * shape[1], (first + shape[0]) * shape[1]
    skipped = begin // _AT_ONCE
    # Philox makes four numbers of each value of its counter. A truncated normal number may need
    # several tries, for which TensorFlow leaves a fixed number of values.
    key, counter = tf.raw_ops.StatelessRandomGetKeyCounter(seed=seed)
    counter += tf.constant([skipped * counts, 0], tf.uint64)
    drawn = operation(
        shape=[end - skipped * _AT_ONCE],
        key=key,
        counter=counter,
        alg=tf.random.Algorithm.PHILOX.value,
        dtype=tf.float32,
    )[begin - skipped * _AT_ONCE :]
    # In float32, as Keras has them.
    low, high = tf.constant([low, high], tf.float32)
    scaled = drawn * (high - low) + low if kind == 'uniform' else drawn * high + low
    rows: np.ndarray = tf.reshape(scaled, shape).numpy()
    return rows


def may_differentiate() -> bool:
    """Whether what is computed may be differentiated later."""
    return not tf.executing_eagerly() or record.could_possibly_record()


def wait_for(variable: Any) -> None:
    """Waits for what a variable is set to; here that is there."""


def sync_state(model: Any) -> None:
    """Has the variables of a model that is in `fit` have their values, which they have here."""


def passed_over(model: Any, arguments: Any, metrics: Any) -> Any:
    """What the function that trains a step returns for a step that is passed over.

    Args:
        model: the model.
        arguments: those of the function.
        metrics: what the states of metrics are to be then, arrays; `None` leaves them.
    """
    for variable, value in zip(model.metrics_variables, metrics or []):
        variable.assign(value)
    return model.get_metrics_result()


def is_traced() -> bool:
    """Whether what is computed becomes part of a function of TensorFlow's."""
    return not tf.executing_eagerly()


def compiled_by_xla(run: Callable[[], Any], layers: Sequence[Any]) -> Any:
    """What a function of nothing returns, computed by code that XLA compiles; so is its gradient.

    Args:
        run: the function. It may use tensors that are there already.
        layers: the layers that it calls, which may add to the loss.
    """
    structure: Any = None

    @tf.function(jit_compile=True, autograph=False)
    def compiled() -> Any:
        nonlocal structure
        structure = run()
        outputs = tf.nest.flatten(structure)
        added = [list(layer._losses) for layer in layers]
        return outputs, [get_keras_mask(output) for output in outputs], added

    outputs, masks, added = compiled()
    # Attributes of tensors within the function say nothing outside.
    for output, mask in zip(outputs, masks):
        if mask is not None:
            set_keras_mask(output, mask)
    for layer, losses in zip(layers, added):
        layer._losses[:] = losses
        layer._loss_ids = {id(loss) for loss in losses}
    return tf.nest.pack_sequence_as(structure, outputs)


def is_plain(ids: Any) -> bool:
    """Whether ids are a tensor, neither ragged nor sparse."""
    return isinstance(ids, tf.Tensor)


def lookup(pull: PullRows, variable: Any, ids: Any, width: int) -> Any:
    """The rows of ids, of shape `ids.shape + [width]`.

    The gradient by the variable that stands for the table is `IndexedSlices` of the rows.

    Args:
        pull: function from a list with ids, integers of shape `[n]`, to a list with their rows,
            float32 of shape `[n, width]`.
        variable: the Keras variable that stands for the table.
        ids: integers, ragged or sparse ones, too. As in Keras, what a sparse tensor leaves out is
            id 0.
        width: the number of columns.
    """
    if isinstance(ids, tf.RaggedTensor):
        return ids.with_flat_values(lookup(pull, variable, ids.flat_values, width))
    if isinstance(ids, tf.SparseTensor):
        ids = tf.sparse.to_dense(tf.sparse.reorder(ids))
    return lookups(pull, [variable], [ids], [width])[0]


def lookups(
    pull: PullRows, variables: Sequence[Any], ids: Sequence[Any], widths: Sequence[int]
) -> List[Any]:
    """The rows of several lookups, pulled by one call.

    Args:
        pull: as of `lookup`, with ids and rows of each lookup. Ids that are the same tensor are
            the same array.
        variables: for each lookup the variable that stands for its table.
        ids: for each lookup its ids, a tensor of integers.
        widths: for each lookup the number of columns.

    Returns:
        For each lookup a tensor of shape `ids.shape + [width]`.
    """
    flat = {id(of_one): tf.reshape(of_one, [-1]) for of_one in ids}
    places = [list(flat).index(id(of_one)) for of_one in ids]

    def pulled(*arrays: np.ndarray) -> List[np.ndarray]:
        return pull([arrays[place] for place in places])

    # A list of one comes back as a tensor where TensorFlow executes eagerly.
    rows = tf.nest.flatten(
        tf.numpy_function(pulled, list(flat.values()), [tf.float32 for _ in ids], stateful=True)
    )
    return [
        tf.ensure_shape(
            tf.reshape(
                _linked(variable, tf.ensure_shape(of_one, [None, width]), flat[id(its_ids)]),
                tf.concat([tf.shape(its_ids), [width]], 0),
            ),
            [*its_ids.shape, width],
        )
        for variable, of_one, its_ids, width in zip(variables, rows, ids, widths)
    ]


def _linked(variable: Any, rows: Any, ids: Any) -> Any:
    """Rows, whose gradient is that of the variable which stands for the table.

    Each lookup has a link of its own: what the loss does not use has no gradient, as in Keras.
    """

    def link(stand_in: Any) -> Any:
        del stand_in
        return tf.identity(rows), lambda by: tf.IndexedSlices(by, ids)

    return tf.custom_gradient(link)(tf.convert_to_tensor(variable.value))


def has_gradient(gradient: Any) -> bool:
    """Whether the loss depends on what was looked up."""
    return isinstance(gradient, tf.IndexedSlices)


def as_tensors(gradients: Sequence[Any], keep_rows: bool) -> List[Any]:
    """Gradients, in which those of rows that repeat are summed.

    Args:
        gradients: tensors or `IndexedSlices`.
        keep_rows: whether `IndexedSlices` stay so; else they become tensors.
    """
    return [_summed(by) if keep_rows else tf.convert_to_tensor(by) for by in gradients]


def _summed(gradient: Any) -> Any:
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient
    rows, places = tf.unique(gradient.indices)
    values = tf.math.unsorted_segment_sum(gradient.values, places, tf.size(rows))
    return tf.IndexedSlices(values, rows, gradient.dense_shape)


def mean_over_workers(
    gradients: Sequence[Any], name: str, compression: Any, collective: Any, check: Any
) -> List[Any]:
    """The mean over the workers of each of some tensors.

    Args:
        gradients: the tensors.
        name: the same for all workers.
        compression: as of Horovod.
        collective: what runs a collective that is called from Python, as `Job.collective` does.
        check: function that is called with the first one and its mean, arrays; or `None`.
    """
    del collective  # Horovod's operation is part of the step.
    found = _means(gradients, name, compression)
    if check is not None:
        _call(check, [gradients[0], found[0]])
    return found


def _means(gradients: Sequence[Any], name: str, compression: Any) -> List[Any]:
    # Gloo adds up no bfloat16, and a sum of float16 may overflow.
    wide = [tf.cast(of, tf.float32) if of.dtype.size < 4 else of for of in gradients]
    small = [compression.compress(tensor) for tensor in wide]
    # An operation of Horovod's takes tensors of one type.
    places: Dict[tf.DType, List[int]] = {}
    for place, (tensor, _) in enumerate(small):
        places.setdefault(tensor.dtype, []).append(place)
    means: Dict[int, Any] = {}
    for dtype, of_type in places.items():
        tensors = [small[place][0] for place in of_type]
        own_name = '%s.%s' % (name, dtype.name)
        means.update(zip(of_type, hvd.grouped_allreduce(tensors, op=hvd.Average, name=own_name)))
    return [
        tf.cast(compression.decompress(means[place], kept), of.dtype)
        for place, (of, (_, kept)) in enumerate(zip(gradients, small))
    ]


def sum_over_workers(tensor: Any, name: str, collective: Any) -> Any:
    """The sum over the workers of a tensor, through which no gradient goes."""
    del collective
    return tf.stop_gradient(hvd.allreduce(tf.stop_gradient(tensor), op=hvd.Sum, name=name))


def _call(act: Callable[..., None], tensors: Sequence[Any]) -> Any:
    """Calls a function with arrays when a step comes to it, once what they are computed of is."""

    def acted(*arrays: Any) -> np.ndarray:
        act(*arrays)
        return np.zeros((), np.float32)

    return tf.numpy_function(acted, list(tensors), tf.float32, stateful=True)


def push(
    act: Callable[..., None],
    number_and_rate: Sequence[Any],
    gradients: Sequence[Any],
    variables: Sequence[Any],
) -> List[Any]:
    """Calls a function with the number and rate of a step, and ids and gradients of each table.

    Args:
        act: the function.
        number_and_rate: the number of the step, from 1, and its learning rate: two scalars.
        gradients: the gradients by the variables that stand for the tables.
        variables: these variables.

    Returns:
        What the variables that stand for tables are to be set to; nothing here.
    """
    del variables
    parts = [part for by in gradients for part in (by.indices, tf.cast(by.values, tf.float32))]
    _call(act, [*number_and_rate, *parts])
    return []
