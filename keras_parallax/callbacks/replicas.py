"""What every rank has for itself of a model: rates, dense weights, moving statistics, states."""

from keras_parallax.callbacks.epoch_reports import sketch
from keras_parallax.checkpoint.keras_file_write import layers_in
from keras_parallax.compat import graph_queries, keras_api, keras_optimizers, tensorflow_api
from keras_parallax.compat.tensorflow_api import VARIABLES


def rates_of(optimizer):
    """The numbers of an optimizer that a callback can change, such as `'lr'`, a dict to floats."""
    attributes = {**vars(optimizer), **keras_optimizers.hyperparameters(optimizer)}
    variables = {
        name: value
        for name, value in attributes.items()
        if isinstance(value, VARIABLES) and value.shape.ndims == 0 and value.dtype.is_floating
    }
    values = keras_api.package_of(optimizer).backend.batch_get_value(list(variables.values()))
    return dict(zip(variables, map(float, values)))


def sketches_of(step):
    """The `sketch` of each dense weight that a step trains, a list."""
    # By one run of the session: TensorFlow looks through the whole graph for each that is new.
    return list(map(sketch, step.backend.batch_get_value(step.replicas)))


def own_states(model):
    """The variables of a model that are each rank's own: the states of its recurrent layers."""
    states = []
    for layer in layers_in(keras_api.package_of(model), model):
        if getattr(layer, 'stateful', False):
            states.extend(_flat(getattr(layer, 'states', None)))
    return [state for state in states if isinstance(state, VARIABLES)]


def _flat(value):
    if isinstance(value, (list, tuple)):
        return [part for item in value for part in _flat(item)]
    return [value]


def moving_statistics(model):
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
