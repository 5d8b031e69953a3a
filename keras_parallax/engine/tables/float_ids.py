# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Ids that come as numbers of 32 bits or fewer with a fraction, as Keras's inputs do by default.

Such numbers have every integer up to 2 ** 24. Above, several ids become the same one.
"""

import warnings
from typing import List

import numpy as np

from keras_parallax.compat import graph_queries
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.engine.tables import loss_analysis
from keras_parallax.engine.tables.id_index import index_of, is_to_predict
from keras_parallax.engine.tables.sharded_variable import ShardedVariable
from keras_parallax.framework_types import Weight

#: The largest integer up to which `float32` has all.
LARGEST = 2**24

_NARROW = (tf.float32, tf.float16, tf.bfloat16)


def come_from_floats(ids: tf.Tensor) -> bool:
    """Whether ids are cast from numbers with a fraction that are fed to the graph."""
    casts = [
        operation.inputs[0]
        for operation in graph_queries.ancestors([ids], by_data=True)
        if operation.type == 'Cast'
        and operation.inputs[0].dtype.base_dtype in _NARROW
        and operation.outputs[0].dtype.is_integer
    ]
    return any(map(graph_queries.placeholders, casts))


def tables_of_floats(weights: List[Weight]) -> List[str]:
    """The names of those weights that are tables of more rows than `float32` has ids for.

    Args:
        weights: the weights of a model, in a graph.
    """
    found = []
    for weight in weights:
        shape = weight.shape.as_list()
        if not shape or shape[0] <= LARGEST or index_of(weight) is not None:
            continue
        if isinstance(weight, ShardedVariable):
            ids = [one for pull in weight.table.pulls for one in pull.ids]
        else:
            ids = [lookup.inputs[1] for lookup in graph_queries.reads(weight).lookups]
        if any(map(come_from_floats, ids)):
            found.append(loss_analysis.name_of(weight))
    return found


def warn_of_tables(weights: List[Weight]) -> None:
    """Warns of tables that `tables_of_floats` names."""
    for name in tables_of_floats(weights):
        warnings.warn(
            'The ids of the table %s come from an input of float32, which has no odd integers '
            'above %d, but the table has more rows: several ids look up the same row. Make the '
            "input one of integers: keras.layers.Input(shape, dtype='int32')." % (name, LARGEST),
            stacklevel=5,
        )


def watched(ids: tf.Tensor, name: str) -> tf.Tensor:
    """Ids of a layer of a name that takes any, which warn when one is above `LARGEST`.

    Ids that were integers all the way are given back as they are, and so are those of a model that
    is exported.
    """
    if is_to_predict() or not come_from_floats(ids):
        return ids
    warned: List[bool] = []

    def look(largest: np.ndarray) -> np.ndarray:
        if largest > LARGEST and not warned:
            warned.append(True)
            warnings.warn(
                'The layer %s looks up the id %d, which comes from an input of float32. float32 '
                'has no odd integers above %d: several ids become the same one. Make the input '
                "one of integers: keras.layers.Input(shape, dtype='int64')."
                % (name, largest, LARGEST),
                stacklevel=2,
            )
        return np.array(True)

    looked = tf.py_func(look, [tf.reduce_max(tf.abs(ids))], tf.bool)
    with tf.control_dependencies([looked]):
        return tf.identity(ids)
