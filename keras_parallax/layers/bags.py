# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Bags: several ids of a sample, whose rows are summed up or averaged."""

from typing import Any, Callable, NamedTuple, Optional, Sequence, Union

from keras_parallax.compat import tensorflow_api
from keras_parallax.compat.tensorflow_api import static_shape, tf
from keras_parallax.engine.session.run_errors import BATCH_MARK
from keras_parallax.errors import PlanError
from keras_parallax.framework_types import Operation, Tensor

COMBINERS = ('sum', 'mean', 'sqrtn')


class Entries(NamedTuple):
    """The ids of a batch of bags, one after the other.

    Attributes:
        ids: `[n]`, int32 or int64.
        bags: `[n]` int64, the number of the bag of each, in order.
        weights: `[n]`, or `None` if each is 1.
        count: the number of bags, a scalar of int64.
        unique_ids: the ids, each once.
        places: `[n]` int32, the place of each id in `unique_ids`.
    """

    ids: tf.Tensor
    bags: tf.Tensor
    weights: Optional[tf.Tensor]
    count: tf.Tensor
    unique_ids: tf.Tensor
    places: tf.Tensor


def require_combiner(combiner: Any) -> None:
    """Raises `PlanError` if there is no such way to combine rows."""
    if combiner not in COMBINERS:
        raise PlanError(
            'combiner must be one of %s, but %r was given.'
            % (', '.join(map(repr, COMBINERS)), combiner)
        )


def require_bags(inputs: Sequence[Tensor], name: str) -> None:
    """Raises `PlanError` if a list of tensors is none of bags, for the layer called `name`."""
    count, ids = len(inputs), inputs[0]
    if static_shape(ids).ndims == 1:
        _require(
            count in (2, 3) and all(static_shape(tensor).ndims == 1 for tensor in inputs),
            name,
            'row splits [batch + 1] beside ids [n], and weights [n] if there are any',
            ' and '.join('one of shape %s' % static_shape(tensor) for tensor in inputs),
        )
        splits, weights = inputs[1], inputs[2:]
        _require(splits.dtype.is_integer, name, 'integers as row splits', splits.dtype.name)
    else:
        weights = inputs[1:]
        _require(count <= 2, name, 'ids, or a list of ids and weights', '%d inputs' % count)
        for tensor in inputs:
            given = 'one of shape %s' % static_shape(tensor)
            _require(static_shape(tensor).ndims in (2, None), name, 'inputs [batch, length]', given)
    for of_ids in weights:
        alike = type(ids) is type(of_ids) or all(
            isinstance(one, (tf.Tensor, tf.Variable)) for one in (ids, of_ids)
        )
        _require(alike, name, 'ids and weights that are both sparse or both not', 'one each')
        is_floating = of_ids.dtype.is_floating
        _require(is_floating, name, 'weights that are floating numbers', of_ids.dtype.name)
        shapes = 'ids %s and weights %s' % (static_shape(ids), static_shape(of_ids))
        fits = static_shape(ids).is_compatible_with(static_shape(of_ids))
        _require(fits, name, 'weights of the shape of ids', shapes)


def _require(condition: bool, name: str, takes: str, given: str) -> None:
    if not condition:
        raise PlanError('The layer %s takes %s, but got %s.' % (name, takes, given))


def entries_of(
    inputs: Any, as_ids: Callable[[Tensor], Tensor], padding_id: Union[None, int, str], name: str
) -> Entries:
    """The `Entries` of the inputs of a layer.

    Without weights they are made once for all tables that are asked for them: tables that are
    looked up with the same ids are pulled as one, as long as they are known to be the same
    (`engine/step/table_groups.py`).

    Args:
        inputs: a tensor, or a list of tensors, that `require_bags` has seen.
        as_ids: function from the ids that are given, of any shape, to those that are looked up.
        padding_id: the one that stands for none, as it is given, or `None`.
        name: the layer's.
    """
    given = list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]
    ids, *weights = [tensorflow_api.ragged_parts(tensor) or tensor for tensor in given]
    if not isinstance(ids, tuple) and static_shape(ids).ndims == 1:
        # Weights have the same row splits.
        ids, *weights = [(tensor, given[1]) for tensor in [ids] + weights[1:]]
    if weights:
        return _entries(ids, weights[0], as_ids, padding_id, name)
    tensors = ids if isinstance(ids, tuple) else [getattr(ids, 'values', ids)]
    graph = tensors[0].graph
    if not hasattr(graph, '_parallax_bags'):
        graph._parallax_bags = {}
    key = tuple(tensor.name for tensor in tensors) + (as_ids, padding_id)
    if key not in graph._parallax_bags:
        entries = _entries(ids, None, as_ids, padding_id, name)
        if tensorflow_api.is_in_control_flow(entries.ids):
            return entries  # Nobody else may read them.
        graph._parallax_bags[key] = entries
    return graph._parallax_bags[key]


def count_of_shape(shape: Any) -> Optional[int]:
    """The number of bags by the shape of ids, or of a list of inputs; `None` if it is not known."""
    of_ids = shape[0] if isinstance(shape[0], (list, tuple)) else shape
    return of_ids[0] if len(of_ids) > 1 else None


def combined(total: Tensor, inputs: Any, entries: Entries, combiner: Optional[str]) -> Tensor:
    """The combined rows of each bag, given their weighted sums `[count, width]`."""
    ids = inputs[0] if isinstance(inputs, (list, tuple)) else inputs
    is_matrix = static_shape(ids).ndims == 2 and tensorflow_api.ragged_parts(ids) is None
    output = _divided(total, entries, combiner)
    output.set_shape([static_shape(ids).as_list()[0] if is_matrix else None, total.shape[1].value])
    return output


def sum_of_laid_out(rows: Tensor, entries: Entries) -> Tensor:
    """The weighted sum of each bag's rows, `[count, width]`, of those of all ids, `[n, width]`."""
    if entries.weights is not None:
        rows *= _weights(entries, rows.dtype)[:, None]
    total = tf.segment_sum(rows, entries.bags)
    # It ends with the last bag that has an id.
    missing = entries.count - tf.shape(total, out_type=tf.int64)[0]
    return tf.pad(total, [[0, tf.to_int32(missing)], [0, 0]])


def sum_of_unique(rows: Tensor, entries: Entries) -> Tensor:
    """The same, of the rows of `entries.unique_ids`, which a matrix of bags and ids multiplies.

    So neither rows nor gradients are laid out as often as ids name them.
    """
    pairs = tf.stack([entries.bags, tf.cast(entries.places, tf.int64)], 1)
    shape = tf.stack([entries.count, tf.shape(rows, out_type=tf.int64)[0]])
    matrix = tf.SparseTensor(pairs, _weights(entries, rows.dtype), shape)
    return tf.sparse_tensor_dense_matmul(matrix, rows)


def _entries(
    ids: Any,
    weights: Any,
    as_ids: Callable[[Tensor], Tensor],
    padding_id: Union[None, int, str],
    name: str,
) -> Entries:
    """The `Entries` of ids and weights, which are tensors, or pairs of values and row splits."""
    if isinstance(ids, tuple):
        values, splits = ids
        count = tf.size(splits, out_type=tf.int64) - 1
        bags = _bags_between(splits, tf.size(values, out_type=tf.int64), name)
    elif isinstance(ids, tf.SparseTensor):
        # What is in order already is only looked at.
        ids = tf.sparse_reorder(ids)
        weights = None if weights is None else tf.sparse_reorder(weights)
        count, bags, values = ids.dense_shape[0], ids.indices[:, 0], ids.values
    else:
        shape = tf.shape(ids, out_type=tf.int64)
        count, values = shape[0], tf.reshape(ids, [-1])
        bags = tf.reshape(
            tf.tile(tf.range(count)[:, None], tf.convert_to_tensor([1, shape[1]], tf.int64)), [-1]
        )
    if weights is not None:
        weights = _checked(ids, weights, name)
    values = as_ids(values)
    if padding_id is not None:
        of_numbers = None if isinstance(padding_id, str) else tf.int64
        none = as_ids(tf.constant(padding_id, of_numbers))
        kept = tf.not_equal(values, tf.cast(none, values.dtype))
        values, bags = tf.boolean_mask(values, kept), tf.boolean_mask(bags, kept)
        weights = None if weights is None else tf.boolean_mask(weights, kept)
    return Entries(values, bags, weights, count, *tf.unique(values))


def _bags_between(splits: Tensor, size: Tensor, name: str) -> Tensor:
    """The number of the bag of each of `size` ids; a batch with bad row splits fails."""
    splits = tf.cast(splits, tf.int64)
    good = (
        tf.reduce_any(tf.equal(splits[:1], 0))
        & tf.reduce_all(tf.equal(splits[-1:], size))
        & tf.reduce_all(splits[1:] >= splits[:-1])
    )
    takes = 'takes row splits that begin with 0, end with the number of ids and nowhere go down'
    with tf.control_dependencies([_check(good, name, takes)]):
        begins = splits[1:-1]
        # An id is of the bag after as many as begin at it or before.
        return tf.cumsum(tf.unsorted_segment_sum(tf.ones_like(begins), begins, size + 1))[:-1]


def _checked(ids: Any, weights: Any, name: str) -> Tensor:
    """The weights, flat; a batch fails that has others than its ids, or one that is NaN."""
    if isinstance(ids, tuple):
        places, own = (
            tf.concat([tf.cast(splits, tf.int64), [tf.size(values, out_type=tf.int64)]], 0)
            for values, splits in (ids, weights)
        )
        weights = weights[0]
    elif isinstance(ids, tf.SparseTensor):
        places, own, weights = ids.indices, weights.indices, weights.values
    else:
        places, own = tf.shape(ids), tf.shape(weights)
    same = tf.cond(
        tf.reduce_all(tf.equal(tf.shape(places), tf.shape(own))),
        lambda: tf.reduce_all(tf.equal(places, own)),
        lambda: tf.constant(False),
    )
    checks = [
        _check(same, name, 'takes a weight for each id and no others'),
        _check(~tf.reduce_any(tf.is_nan(weights)), name, 'takes weights of which none is NaN'),
    ]
    with tf.control_dependencies(checks):
        return tf.reshape(weights, [-1])


def _check(condition: Tensor, name: str, takes: str) -> Operation:
    data = [BATCH_MARK, 'The layer %s %s' % (name, takes)]
    return tensorflow_api.raw_assert(condition, data, 1)


def _weights(entries: Entries, dtype: Any) -> Tensor:
    if entries.weights is None:
        return tf.ones_like(entries.ids, dtype)
    return tf.cast(entries.weights, dtype)


def _divided(total: Tensor, entries: Entries, combiner: Optional[str]) -> Tensor:
    if combiner == 'sum':
        return total
    weights = _weights(entries, total.dtype)
    weights = weights if combiner == 'mean' else tf.square(weights)
    divisor = tf.unsorted_segment_sum(weights, entries.bags, entries.count)
    # Where there is nothing to divide by, neither values nor gradients are to be NaN.
    nothing = tf.equal(divisor, 0)
    divisor = tf.where(nothing, tf.ones_like(divisor), divisor)
    divisor = divisor if combiner == 'mean' else tf.sqrt(divisor)
    return total * tf.where(nothing, tf.zeros_like(divisor), 1 / divisor)[:, None]
