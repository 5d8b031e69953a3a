"""`EmbeddingBag`: several ids a field, whose rows are summed up or averaged."""

from typing import NamedTuple, Optional

from keras_parallax.compat import tensorflow_api
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.errors import PlanError
from keras_parallax.layers.late_layer import LateLayer
from keras_parallax.session.run_errors import BATCH_MARK

COMBINERS = ('sum', 'mean', 'sqrtn')

#: From this width of a row on, it costs less to find repeated ids than to lay their rows out.
WIDE = 64


class EmbeddingBag(LateLayer):
    """Looks up several ids a sample, and combines their rows to one.

    What `tf.nn.embedding_lookup_sparse` computes: with rows `e[i]` and weights `w[i]` of a bag's
    ids, `'sum'` is `sum(w * e)`, `'mean'` is that over `sum(w)`, and `'sqrtn'` over
    `sqrt(sum(w ** 2))`. Without weights each is 1. A bag without ids, or whose weights come to 0 in
    the divisor, gives zeros.

    Inputs are ids of shape `[batch, length]`, or a `SparseTensor` of that shape
    (`Input(sparse=True)`) whose values are ids: integers, or numbers that are cast to int32. Or a
    list of those and of weights: a tensor of the ids' shape, or a `SparseTensor` with values in the
    same places, which may be computed by the model, and get gradients. The output has the shape
    `[batch, output_dim]`. Ids may come in any order, and more than once in a bag.

    Or a list of all ids, `[n]`, and row splits, `[batch + 1]` integers: bag `i` has the ids from
    `row_splits[i]` on and before `row_splits[i + 1]`; then weights, `[n]`, if there are any. Keras
    feeds no arrays of unequal lengths, so these are tensors of an input pipeline
    (`Input(tensor=...)`) or of the model. An array of row splits is the `indptr` of a `csr_matrix`
    of `scipy.sparse`, which Keras feeds to `Input(sparse=True)`. On TensorFlow 2 inputs may also be
    `RaggedTensor`s, ids or a list of ids and weights; Keras feeds `Input(ragged=True)` such tensors
    in graph mode, and no arrays.

    One layer that is called on several inputs is one table, which several fields share. Each row
    travels once, however many bags hold its id, and padding never. In a strategy the table is
    sparse, as that of an `Embedding` is, and all that is said of those holds. Without one it is a
    layer of Keras like others.

    Args:
        input_dim: number of rows of the table; ids are in `[0, input_dim)`.
        output_dim: width of a row.
        combiner: `'sum'`, `'mean'` or `'sqrtn'`.
        padding_id: an id that stands for none, inside that range or not, such as 0 or -1. By
            default there is none.
        keras: `'keras'` or `'tf.keras'`, the package of the model. Defaults to `'keras'` if the
            script has imported it.
        kwargs: what else `keras.layers.Embedding` takes (`embeddings_initializer`,
            `embeddings_regularizer`, `embeddings_constraint`, `input_length`, `name` ...), but for
            `mask_zero`.

    Raises:
        PlanError: an argument is none of these; or, when the layer is called, an input is not of
            such a shape or kind, or of the other package.
        DataError: in a batch, a weight is NaN, or there are weights in other places than ids; row
            splits do not begin with 0, do not end with the number of ids, or go down. This and the
            next are raised while a model of a strategy runs; without one they are TensorFlow's.
        IdOutOfRangeError: in a batch, an id is outside of `[0, input_dim)` and not `padding_id`.

    Example:
        ```python
        >>> import keras, numpy as np, keras_parallax as kp
        >>> with kp.ParallaxStrategy() as strategy:
        ...     tags, likes = keras.layers.Input((4,)), keras.layers.Input((4,))
        ...     bag = kp.layers.EmbeddingBag(100, 2, combiner='sum', padding_id=-1)
        ...     both = keras.layers.concatenate([bag(tags), bag(likes)])
        ...     model = keras.models.Model([tags, likes], both)
        >>> ids = np.array([[7, 3, 7, -1], [-1, -1, -1, -1]])
        >>> sums = model.predict([ids, ids])
        >>> rows = model.get_weights()[0]
        >>> np.allclose(sums[0, :2], rows[7] + rows[3] + rows[7])
        True
        >>> sums[1].tolist()
        [0.0, 0.0, 0.0, 0.0]
        ```
    """

    base = staticmethod(lambda package: package.module.layers.Embedding)

    def __init__(
        self, input_dim, output_dim, combiner='mean', padding_id=None, keras=None, **kwargs
    ):
        del keras  # The class is of that package already.
        if combiner not in COMBINERS:
            raise PlanError(
                'combiner must be one of %s, but %r was given.'
                % (', '.join(map(repr, COMBINERS)), combiner)
            )
        if padding_id is not None and int(padding_id) != padding_id:
            raise PlanError('padding_id must be an integer or None, but got %r.' % (padding_id,))
        if kwargs.pop('mask_zero', False):
            raise PlanError('EmbeddingBag has no mask_zero: give padding_id=0.')
        super().__init__(input_dim, output_dim, **kwargs)
        self.combiner = combiner
        self.padding_id = None if padding_id is None else int(padding_id)

    def check_inputs(self, inputs):
        """As `LateLayer.check_inputs`."""
        count = len(inputs)
        if inputs[0].shape.ndims == 1:
            self._require(
                count in (2, 3) and all(tensor.shape.ndims == 1 for tensor in inputs),
                'row splits [batch + 1] beside ids [n], and weights [n] if there are any',
                ' and '.join('one of shape %s' % tensor.shape for tensor in inputs),
            )
            splits, *weights = inputs[1:]
            self._require(splits.dtype.is_integer, 'integers as row splits', splits.dtype.name)
            if weights:
                self._require_alike(inputs[0], *weights)
            return
        self._require(count <= 2, 'ids, or a list of ids and weights', '%d inputs' % count)
        for tensor in inputs:
            is_matrix = tensor.shape.ndims in (2, None)
            self._require(is_matrix, 'inputs [batch, length]', 'one of shape %s' % tensor.shape)
        if count == 2:
            self._require_alike(*inputs)

    def call(self, inputs):
        """Combines the rows of each bag.

        Args:
            inputs: ids, or a list of ids, row splits and weights, as the class says.

        Returns:
            A tensor `[batch, output_dim]`.
        """
        given = list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]
        ids, *weights = [tensorflow_api.ragged_parts(tensor) or tensor for tensor in given]
        if not isinstance(ids, tuple) and ids.shape.ndims == 1:
            # Weights have the same row splits.
            ids, *weights = [(tensor, given[1]) for tensor in [ids] + weights[1:]]
        if weights:
            entries = _entries(ids, weights[0], self.padding_id, self.name)
        else:
            entries = _entries_of_field(ids, self.padding_id, self.name)
        summed = _sum_of_laid_out if self.output_dim < WIDE else _sum_of_unique
        output = _divided(summed(self.embeddings, entries), entries, self.combiner)
        is_matrix = not isinstance(ids, tuple) and ids.shape.ndims
        output.set_shape([ids.shape.as_list()[0] if is_matrix else None, self.output_dim])
        return output

    def compute_output_shape(self, input_shape):
        """The shape of the output.

        Args:
            input_shape: that of the ids, or a list of theirs and those of the other inputs.

        Returns:
            A tuple.
        """
        ids = input_shape[0] if isinstance(input_shape[0], (list, tuple)) else input_shape
        return (ids[0] if len(ids) > 1 else None), self.output_dim

    def get_config(self):
        """The arguments of `__init__`, as Keras writes them to a file."""
        config = dict(super().get_config(), combiner=self.combiner, padding_id=self.padding_id)
        config.pop('mask_zero')
        return config

    def _require_alike(self, ids, weights):
        alike = type(ids) is type(weights) or all(
            isinstance(one, (tf.Tensor, tf.Variable)) for one in (ids, weights)
        )
        self._require(alike, 'ids and weights that are both sparse or both not', 'one each')
        is_floating = weights.dtype.is_floating
        self._require(is_floating, 'weights that are floating numbers', weights.dtype.name)
        shapes = 'ids %s and weights %s' % (ids.shape, weights.shape)
        fits = ids.shape.is_compatible_with(weights.shape)
        self._require(fits, 'weights of the shape of ids', shapes)

    def _require(self, condition, takes, given):
        if not condition:
            raise PlanError('The layer %s takes %s, but got %s.' % (self.name, takes, given))


class _Entries(NamedTuple):
    """The ids of a batch of bags, one after the other.

    Attributes:
        ids: `[n]`, int32 or int64.
        bags: `[n]` int64, the number of the bag of each, in order.
        weights: `[n]`, or `None` if each is 1.
        count: the number of bags, a scalar of int64.
        asked: the ids, each once.
        places: `[n]` int32, the place of each id in `asked`.
    """

    ids: tf.Tensor
    bags: tf.Tensor
    weights: Optional[tf.Tensor]
    count: tf.Tensor
    asked: tf.Tensor
    places: tf.Tensor


def _entries_of_field(ids, padding_id, name):
    """The `_Entries` of ids without weights, made once for all tables that are asked for them.

    Tables that are looked up with the same ids are pulled as one, as long as they are known to be
    the same (`step/table_groups.py`).
    """
    tensors = ids if isinstance(ids, tuple) else [getattr(ids, 'values', ids)]
    graph = tensors[0].graph
    if not hasattr(graph, '_parallax_bags'):
        graph._parallax_bags = {}
    key = tuple(tensor.name for tensor in tensors) + (padding_id,)
    if key not in graph._parallax_bags:
        entries = _entries(ids, None, padding_id, name)
        if tensorflow_api.is_in_control_flow(entries.ids):
            return entries  # Nobody else may read them.
        graph._parallax_bags[key] = entries
    return graph._parallax_bags[key]


def _entries(ids, weights, padding_id, name):
    """The `_Entries` of the inputs of the layer called `name`.

    Ids and weights are tensors, or pairs of values and row splits.
    """
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
        bags = tf.reshape(tf.tile(tf.range(count)[:, None], [1, shape[1]]), [-1])
    if not values.dtype.is_integer:
        values = tf.cast(values, tf.int32)
    if values.dtype not in (tf.int32, tf.int64):
        values = tf.cast(values, tf.int64)
    if weights is not None:
        weights = _checked(ids, weights, name)
    if padding_id is not None:
        kept = tf.not_equal(values, padding_id)
        values, bags = tf.boolean_mask(values, kept), tf.boolean_mask(bags, kept)
        weights = None if weights is None else tf.boolean_mask(weights, kept)
    return _Entries(values, bags, weights, count, *tf.unique(values))


def _bags_between(splits, size, name):
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


def _checked(ids, weights, name):
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


def _check(condition, name, takes):
    data = [BATCH_MARK, 'The layer %s %s' % (name, takes)]
    return tensorflow_api.raw_assert(condition, data, 1)


def _sum_of_laid_out(table, entries):
    """The weighted sum of each bag's rows, `[count, width]`, of rows that are laid out."""
    rows = tf.gather(table, entries.ids)
    if entries.weights is not None:
        rows *= _weights(entries, rows.dtype)[:, None]
    total = tf.segment_sum(rows, entries.bags)
    # It ends with the last bag that has an id.
    missing = entries.count - tf.shape(total, out_type=tf.int64)[0]
    return tf.pad(total, [[0, missing], [0, 0]])


def _sum_of_unique(table, entries):
    """The same, by a matrix of bags and ids that is multiplied with the rows, each of them once.

    So neither rows nor gradients are laid out as often as ids name them.
    """
    rows = tf.gather(table, entries.asked)
    pairs = tf.stack([entries.bags, tf.cast(entries.places, tf.int64)], 1)
    shape = tf.stack([entries.count, tf.shape(rows, out_type=tf.int64)[0]])
    matrix = tf.SparseTensor(pairs, _weights(entries, rows.dtype), shape)
    return tf.sparse_tensor_dense_matmul(matrix, rows)


def _weights(entries, dtype):
    if entries.weights is None:
        return tf.ones_like(entries.ids, dtype)
    return tf.cast(entries.weights, dtype)


def _divided(total, entries, combiner):
    """The combined rows of each bag, given their weighted sums."""
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
