# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Freezes graphs that have sharded tables: `tf.graph_util.convert_variables_to_constants`.

TensorFlow's function takes the definition of a graph and reads its variables by name. In the
definition, a lookup of a sharded table pulls rows from servers. The function is given a definition
in which such a lookup gathers rows of the model's own variable, for whose name the session returns
the whole table. No call is collective: any worker may freeze its graph alone.
"""

import functools
from typing import Any, Callable, Dict, Optional

from keras_parallax.compat import tensorflow_api
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.engine.session.scope_interface import ScopeInterface
from keras_parallax.engine.tables.id_index import index_of
from keras_parallax.engine.tables.table import Table, former_of
from keras_parallax.errors import ScopeError
from keras_parallax.framework_types import Graph, GraphDef, Session

_ADDED = 'parallax/frozen/'


def freezing(
    scope_of: Callable[[Graph], Optional[ScopeInterface]], original: Callable[..., GraphDef]
) -> Callable[..., GraphDef]:
    """A function that freezes graphs as another one does, and graphs with sharded tables.

    Args:
        scope_of: function from a graph to its `GraphScope`, or `None`.
        original: TensorFlow's function.
    """

    @functools.wraps(original)
    def freeze(sess: Session, input_graph_def: GraphDef, *args: Any, **kwargs: Any) -> GraphDef:
        scope = scope_of(sess.graph)
        if scope is not None:
            input_graph_def = definition_of_whole_tables(scope, input_graph_def)
        return original(sess, input_graph_def, *args, **kwargs)

    return freeze


def definition_of_whole_tables(scope: ScopeInterface, definition: GraphDef) -> GraphDef:
    """A copy of a definition whose lookups gather rows of whole tables, on no server.

    Args:
        scope: the `GraphScope` of the graph.
        definition: its `tf.GraphDef`, which stays as it is.

    Raises:
        ScopeError: the graph looks up a `DynamicEmbedding`, whose ids are in no variable.
    """
    copy = tf.GraphDef()
    copy.CopyFrom(definition)
    tables = {
        table.handle.op.name: table
        for table in scope.tables_by_name.values()
        if table.is_sharded and table.former
    }
    read: Dict[str, str] = {}
    for node in list(copy.node):
        if node.device:
            node.device = _without_task(node.device)
        if '_class' in node.attr:  # It may name a variable that the frozen graph lacks.
            del node.attr['_class']
        inputs = [given for given in node.input if not given.startswith('^')]
        table = tables.get(inputs[1]) if node.op == tensorflow_api.LINK and inputs[1:] else None
        if table is None:
            continue
        if index_of(table.variable) is not None:
            raise ScopeError(
                'The graph cannot be frozen: it looks up the DynamicEmbedding %s, whose ids are '
                'not kept in a variable. Export the model with kp.export_saved_model.' % table.name
            )
        if table.name not in read:
            read[table.name] = _read_of(copy, table)
        _look_up(node, read[table.name], inputs[2:], table.dtype)
    if read:
        axis = copy.node.add(name=_ADDED + 'axis', op='Const')
        axis.attr['dtype'].type = tf.int32.as_datatype_enum
        axis.attr['value'].tensor.CopyFrom(tf.make_tensor_proto(0, tf.int32))
    return copy


def _look_up(node: Any, table: str, ids: Any, dtype: tf.DType) -> None:
    """Turns a node into one that gathers rows of a table, or that returns the whole table."""
    id_dtype = list(node.attr['U'].list.type)[1:]
    node.ClearField('attr')
    if ids:
        node.op, node.input[:] = 'GatherV2', [table, ids[0], _ADDED + 'axis']
        node.attr['Tparams'].type = dtype.as_datatype_enum
        node.attr['Tindices'].type = id_dtype[0]
        node.attr['Taxis'].type = tf.int32.as_datatype_enum
    else:
        node.op, node.input[:] = 'Identity', [table]
        node.attr['T'].type = dtype.as_datatype_enum


def _read_of(definition: GraphDef, table: Table) -> str:
    """The name of a node that reads the variable of a table, made if it is a resource."""
    storage = former_of(table).storage
    if storage.dtype != tf.resource:
        return storage.op.name
    read = definition.node.add(name=_ADDED + table.name, op='ReadVariableOp')
    read.input.append(storage.op.name)
    read.attr['dtype'].type = table.dtype.as_datatype_enum
    return read.name


def _without_task(device: str) -> str:
    spec = tf.DeviceSpec.from_string(device)
    if spec.device_type is None:
        return ''
    return tf.DeviceSpec(device_type=spec.device_type, device_index=spec.device_index).to_string()
