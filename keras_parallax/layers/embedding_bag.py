# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""`EmbeddingBag`: several ids a field, whose rows are summed up or averaged."""

from typing import Any, Dict, Optional, Sequence, Tuple

from typing_extensions import Unpack

from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.errors import PlanError
from keras_parallax.framework_types import Tensor
from keras_parallax.layers import bags
from keras_parallax.layers.keras_arguments import EmbeddingArguments
from keras_parallax.layers.late_layer import LateLayer

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
        ...     tags, likes = [keras.layers.Input((4,), dtype='int32') for _ in range(2)]
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
        self,
        input_dim: int,
        output_dim: int,
        combiner: str = 'mean',
        padding_id: Optional[int] = None,
        keras: Optional[str] = None,
        **kwargs: Unpack[EmbeddingArguments],
    ) -> None:
        del keras  # The class is of that package already.
        bags.require_combiner(combiner)
        if padding_id is not None and int(padding_id) != padding_id:
            raise PlanError('padding_id must be an integer or None, but got %r.' % (padding_id,))
        if kwargs.pop('mask_zero', False):
            raise PlanError('EmbeddingBag has no mask_zero: give padding_id=0.')
        super().__init__(input_dim, output_dim, **kwargs)
        self.combiner = combiner
        self.padding_id = None if padding_id is None else int(padding_id)

    def check_inputs(self, inputs: Sequence[Tensor]) -> None:
        """As `LateLayer.check_inputs`."""
        bags.require_bags(inputs, self.name)

    def call(self, inputs: Any) -> Tensor:
        """Combines the rows of each bag.

        Args:
            inputs: ids, or a list of ids, row splits and weights, as the class says.

        Returns:
            A tensor `[batch, output_dim]`.
        """
        entries = bags.entries_of(inputs, _as_ids, self.padding_id, self.name)
        if self.output_dim < WIDE:
            total = bags.sum_of_laid_out(tf.gather(self.embeddings, entries.ids), entries)
        else:
            total = bags.sum_of_unique(tf.gather(self.embeddings, entries.unique_ids), entries)
        return bags.combined(total, inputs, entries, self.combiner)

    def compute_output_shape(self, input_shape: Any) -> Tuple[Optional[int], int]:
        """The shape of the output.

        Args:
            input_shape: that of the ids, or a list of theirs and those of the other inputs.

        Returns:
            A tuple.
        """
        return bags.count_of_shape(input_shape), self.output_dim

    def get_config(self) -> Dict[str, Any]:
        """The arguments of `__init__`, as Keras writes them to a file."""
        config = dict(super().get_config(), combiner=self.combiner, padding_id=self.padding_id)
        config.pop('mask_zero')
        return config


def _as_ids(values: Tensor) -> Tensor:
    """Ids of any shape, int32 or int64, of numbers."""
    if not values.dtype.is_integer:
        return tf.cast(values, tf.int32)
    return values if values.dtype in (tf.int32, tf.int64) else tf.cast(values, tf.int64)
