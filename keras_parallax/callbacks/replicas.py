# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What every worker has for itself of a model: rates, dense weights, moving statistics, states."""

from typing import Any, Dict, List, Sequence

from keras_parallax.callbacks.sketches import Sketch, sketch
from keras_parallax.checkpoint.keras_file_write import rows_of, session_of
from keras_parallax.compat import graph_queries, keras_api, keras_optimizers, tensorflow_api
from keras_parallax.compat.tensorflow_api import VARIABLES
from keras_parallax.engine.tables.sharded_variable import ShardedVariable
from keras_parallax.framework_types import Model, Optimizer, Variable


def rates_of(optimizer: Optimizer) -> Dict[str, float]:
    """The numbers of an optimizer that a callback can change, such as `'lr'`, a dict to floats."""
    attributes = {**vars(optimizer), **keras_optimizers.hyperparameters(optimizer)}
    variables = {
        name: value
        for name, value in attributes.items()
        if isinstance(value, VARIABLES) and value.shape.ndims == 0 and value.dtype.is_floating
    }
    values = keras_api.package_of(optimizer).backend.batch_get_value(list(variables.values()))
    return dict(zip(variables, map(float, values)))


def replicas_of(model: Any) -> List[Any]:
    """The weights of a model that every worker holds the same values of.

    These are the weights without shards, trained or not. Moving statistics and the states of
    recurrent layers are each worker's own.
    """
    own = moving_statistics(model) + own_states(model)
    return [
        weight
        for weight in model.weights
        if isinstance(weight, VARIABLES)
        and weight.dtype.is_floating
        and not isinstance(weight, ShardedVariable)
        and weight not in own
    ]


def sketches_of(model: Any, weights: Sequence[Any]) -> List[List[float]]:
    """The `sketch` of each of some weights of a model. Large weights are read in blocks of rows."""
    rows: Dict[int, Any] = {number: rows_of(weight) for number, weight in enumerate(weights)}
    small = [number for number in rows if rows[number] is None]
    # By one run of the session: TensorFlow looks through the whole graph for each that is new.
    backend = keras_api.package_of(model).backend
    values = backend.batch_get_value([weights[number] for number in small])
    found = dict(zip(small, map(sketch, values)))
    for number, of_weight in rows.items():
        if of_weight is not None:
            of_blocks = Sketch()
            of_weight.copy_to(of_blocks, session_of(model))
            found[number] = of_blocks.numbers
    return [found[number] for number in rows]


def own_states(model: Model) -> List[Variable]:
    """The variables of a model that are each worker's own: the states of its recurrent layers."""
    states = []
    for layer in keras_api.layers_in(keras_api.package_of(model), model):
        if getattr(layer, 'stateful', False):
            states.extend(_flat(getattr(layer, 'states', None)))
    return [state for state in states if isinstance(state, VARIABLES)]


def _flat(value: Any) -> List[Any]:
    if isinstance(value, (list, tuple)):
        return [part for item in value for part in _flat(item)]
    return [value]


def moving_statistics(model: Model) -> List[Variable]:
    """The weights of a model that its updates write, as those of batch normalization, in order."""
    pairs = [update[0] for update in model.updates if isinstance(update, tuple)]
    updates = graph_queries.ancestors(
        [update for update in model.updates if not isinstance(update, tuple)]
    )
    return [
        weight
        for weight in model.non_trainable_weights
        if isinstance(weight, VARIABLES)
        and weight.dtype.is_floating
        and (
            weight in pairs
            or any(
                operation in updates
                and tensorflow_api.writes_to(operation, tensorflow_api.storage(weight))
                for operation in tensorflow_api.consumers(tensorflow_api.storage(weight))
            )
        )
    ]
