# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Bags of ids in every form, and what `tf.nn.embedding_lookup_sparse` makes of them."""

import itertools

import numpy as np
from frameworks import TF2, tf

ROWS, WIDTH, PADDING = 13, 3, -1
#: Ids of each bag: repeated, in no order, none at the begin, within and at the end.
BAGS = [[], [4, 2, 4], [12], [], [0, 1, 12, 0, 7], []]
WEIGHTS = [[], [0.5, 2.0, -1.0], [3.0], [], [1.0, 0.25, 2.0, -0.5, 4.0], []]
#: Those of TensorFlow 2 are ragged, too.
FORMS = ('padded', 'sparse', 'splits') + (('ragged',) if TF2 else ())


def padded(bags, padding, dtype):
    """A matrix of lists, with a padding before, between and behind what they have."""
    matrix = np.full([len(bags), 2 * max(map(len, bags)) + 1], padding, dtype)
    for row, bag in zip(matrix, bags):
        row[1 : 2 * len(bag) : 2] = bag
    return matrix


def sparse(bags, dtype):
    """A `SparseTensor` of lists."""
    places = [(row, place) for row, bag in enumerate(bags) for place in range(len(bag))]
    values = np.array(list(itertools.chain(*bags)), dtype)
    return tf.SparseTensor(tf.constant(places, tf.int64), tf.constant(values), [len(bags), 9])


def splits_of(bags):
    """Where each list begins, and the last one ends, of all lists behind each other."""
    return tf.constant(np.cumsum([0] + list(map(len, bags))))


def inputs_of(form, bags, weights, padding=PADDING, dtype=np.int32):
    """What a layer is called on: ids, and weights if there are any.

    Args:
        form: one of `FORMS`.
        bags, weights: lists of lists.
        padding: the id that stands for none.
        dtype: of ids, but those of a `SparseTensor`, which are int64.
    """
    if form == 'sparse':
        ids = sparse(bags, np.int64)
        weights = weights and sparse(weights, np.float32)
    elif form == 'padded':
        ids = tf.constant(padded(bags, padding, dtype))
        weights = weights and tf.constant(padded(weights, 7, np.float32))
    else:
        # One more id, which stands for none.
        bags = bags[:-1] + [bags[-1] + [padding]]
        weights = weights and weights[:-1] + [weights[-1] + [7.0]]
        ids, splits = tf.constant(np.array(list(itertools.chain(*bags)), dtype)), splits_of(bags)
        values = weights and tf.constant(list(itertools.chain(*weights)))
        if form == 'splits':
            return [ids, splits] + ([values] if weights else [])
        ids = tf.RaggedTensor.from_row_splits(ids, splits)
        weights = weights and tf.RaggedTensor.from_row_splits(values, splits)
    return ids if weights is None else [ids, weights]


def factors_of(bags, width):
    """What each entry of an output counts in the loss."""
    return np.arange(-4, bags * width - 4, dtype=np.float32).reshape([bags, width]) / width


def expected(combiner, bags, weights, table):
    """The same by TensorFlow, of the bags that have ids; it gives no more, or NaN."""
    full = [number for number, bag in enumerate(bags) if bag]
    weights = weights or [[1.0] * len(bag) for bag in bags]
    with tf.Graph().as_default(), tf.Session() as session:
        tables = tf.constant(table)
        of_ids = sparse([bags[number] for number in full], np.int64)
        of_weights = sparse([weights[number] for number in full], np.float32)
        output = tf.nn.embedding_lookup_sparse(tables, of_ids, of_weights, combiner=combiner)
        loss = tf.reduce_sum(output * factors_of(len(bags), table.shape[1])[full])
        gradients = tf.gradients(loss, [tables, of_weights.values])
        output, *gradients = session.run([output] + list(map(tf.convert_to_tensor, gradients)))
    whole = np.zeros([len(bags), table.shape[1]], np.float32)
    whole[full] = output
    return [whole] + gradients
