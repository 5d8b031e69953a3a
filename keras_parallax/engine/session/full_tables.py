# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""How full the shards of a table are that has no row left for a new id."""

from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.engine.session.scope_interface import ScopeInterface
from keras_parallax.engine.tables.id_index import IdIndex, index_of
from keras_parallax.planning.row_fill import full_words


def described(scope: ScopeInterface, says: str) -> str:
    """Sentences about the table of a layer, and the capacity that it needs; `''` of another table.

    Args:
        scope: the `GraphScope`.
        says: what the failed operation has said, which names the layer.
    """
    for variable, record in list(scope.records.items()):
        index = index_of(variable)
        if index is None or index.variable is not variable or index.eviction is not None:
            continue
        if (' %s ' % record.layer_name) in says:
            return _words(scope, index)
    return ''


def _words(scope: ScopeInterface, index: IdIndex) -> str:
    with scope.lock.held():
        used = index.rows_used()
    try:
        found = scope.session.run(used)
    except tf.errors.OpError:
        return ''  # A server is gone, of which others tell; how full it was, nobody knows.
    rows = [part.rows for part in index.parts]
    return ' ' + full_words(list(map(int, found)), rows, index.capacity)
