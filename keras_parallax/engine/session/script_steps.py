# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Training steps that a script writes itself, from gradients and assignments.

`K.function(inputs, [loss], updates=[K.update(w, w - rate * g) for ...])` with the gradients `g` of
`K.gradients` trains the one model of plain Keras. On several workers each would train its own.
"""

import re
from typing import Iterable, Mapping, Optional

from keras_parallax.compat import graph_queries
from keras_parallax.engine.tables import script_writes
from keras_parallax.framework_types import Operation

#: `tf.gradients` names a scope so, in both Keras packages (TF 1.11; proven by
#: `tests/parallel/test_compiling.py`).
_GRADIENTS = re.compile(r'(^|/)gradients(_\d+)?/')


def trained_alone(
    operations: Iterable[Operation],
    weights: Mapping[Operation, str],
    tables: Mapping[Operation, str],
) -> Optional[str]:
    """The weight that a run would train on this worker alone.

    Args:
        operations: the operations that are run.
        weights: dict from the operations that stand for weights, as `Variable.op`, to their names.
        tables: dict from operations that write to sharded tables to the tables' names.

    Returns:
        The name of a weight that is assigned what gradients of this worker give and no operation of
        Horovod's has exchanged, or `None`.
    """
    for operation in graph_queries.ancestors(operations):
        if operation in tables:
            name, computed = tables[operation], [operation]
        elif script_writes.kind_of(operation) and operation.inputs[0].op in weights:
            name, computed = weights[operation.inputs[0].op], operation.inputs[1:]
        else:
            continue
        reached = graph_queries.ancestors(computed, by_data=True)
        exchanged = any(other.type.startswith('Horovod') for other in reached)
        if not exchanged and any(_GRADIENTS.search(other.name) for other in reached):
            return name
    return None
