# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Lookups in loops and branches, made before them where their ids are known before them.

A gather within `tf.while_loop` or `tf.cond` gets the table through an operation that hands it in as
a whole, and its gradient is summed up there. So the rows are looked up before, all that the ids may
ask for, and the loop or the branch looks those up: the same values, and a gradient of rows. From
then on it is a lookup like any other.
"""

from typing import AbstractSet, Any

from keras_parallax.compat import control_flow
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.engine.tables.pull import check_of_ids, redirect_readers
from keras_parallax.framework_types import Operation, Variable


def move_out(variable: Variable, members: AbstractSet[Operation]) -> None:
    """Makes the lookups of a variable in loops and branches before these.

    Nothing happens where something else reads the variable whole, or where the loop computes the
    ids itself. Every worker must do so at the same place, for it makes operations. The graph is
    changed in place, to one that computes the same.

    Args:
        variable: a `tf.Variable` of either kind, `[rows, ...]`, of floating numbers.
        members: the operations that a loss depends on, a set.
    """
    for lookup in control_flow.inner_lookups(variable, members):
        _move_out(variable, lookup)


def _move_out(variable: Variable, lookup: Any) -> None:
    operation, rows = lookup.operation, variable.shape.as_list()[0]
    dtype = operation.inputs[1].dtype
    with control_flow.outside(operation.graph):
        ids = [tf.reshape(tf.cast(source, dtype), [-1]) for source in lookup.sources]
        # A branch that is not taken may have ids that are none; it never looks them up.
        ids = tf.clip_by_value(tf.concat(ids, 0), 0, rows - 1)
        unique_ids = tf.unique(ids)[0]
        found = tf.gather(variable, unique_ids)
    with control_flow.inside(operation):
        inner = tf.reshape(operation.inputs[1], [-1])
        with tf.control_dependencies([check_of_ids(inner, rows, variable.op.name)]):
            inner = tf.identity(inner)
        # Of the ids that are asked for, each once, and those in here, the second ones repeat.
        places = tf.unique(tf.concat([unique_ids, inner], 0))[1][tf.size(unique_ids) :]
        places = tf.reshape(places, tf.shape(operation.inputs[1]))
        output = tf.gather(found, places)
        output.set_shape(operation.outputs[0].shape)
    redirect_readers(operation.outputs[0], output)
