"""`tf.data.Dataset`s: which elements of one a rank takes."""

from keras_parallax.compat.stack import generation, tf


def is_dataset(data):
    """Whether something is a `tf.data.Dataset`, of TensorFlow 1 or 2."""
    return isinstance(data, generation.DATASET)


def is_tensor(data):
    """Whether something is a tensor or a variable of a graph."""
    return isinstance(data, (tf.Tensor, tf.Variable))


def every_nth(dataset, ranks, rank, drop_remainder):
    """Of each `ranks` elements in a row, the one of a rank.

    `dataset.shard` would give more to the first ranks where the rest is not enough for all.

    Args:
        dataset: the `tf.data.Dataset`.
        ranks: the number of ranks.
        rank: the rank.
        drop_remainder: whether the last elements, fewer than `ranks`, are left out. Otherwise they
            are repeated.

    Returns:
        A `tf.data.Dataset`.
    """

    def group_of(*element):
        return tf.constant(0, tf.int64)

    def own_of(group, elements):
        if not drop_remainder:
            return elements.repeat().skip(rank).take(1)
        last = elements.skip(ranks - 1).take(1)
        pair = tf.data.Dataset.zip((elements.skip(rank).take(1), last))
        return pair.map(lambda own, last: own)

    return generation.group_by_window(dataset, group_of, own_of, ranks)
