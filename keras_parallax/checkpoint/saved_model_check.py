# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Whether an export predicts what its model does."""

import contextlib
from typing import Any, Iterable, Iterator, List, Optional, Sequence, Tuple

import numpy as np

from keras_parallax.checkpoint import sample_inputs
from keras_parallax.checkpoint.keras_file_write import unique_names
from keras_parallax.compat import graph_queries, keras_api, session_config, tensorflow_api
from keras_parallax.compat.tensorflow_api import VARIABLES, tf
from keras_parallax.errors import CheckpointError, IdOutOfRangeError
from keras_parallax.framework_types import Array, Layer, Model, Session, Tensor, Variable

#: Differences up to this part of the largest number of an output are those of rounding. A card may
#: multiply with 10 bits after the point (TF32), where the export is tried on the CPU.
_TOLERANCE, _TOLERANCE_OF_HALF, _TOLERANCE_OF_CARD = 1e-3, 2e-2, 1e-2

_LOOKUPS = {'Gather', 'GatherV2', 'ResourceGather'}

#: Operations that draw other numbers each time.
_RANDOM = {
    'Multinomial',
    'ParameterizedTruncatedNormal',
    'RandomGamma',
    'RandomPoisson',
    'RandomPoissonV2',
    'RandomStandardNormal',
    'RandomUniform',
    'RandomUniformInt',
    'TruncatedNormal',
}


def fewest_rows(model: Model) -> Optional[int]:
    """The smallest number of rows that a lookup of a model goes to, or `None` without lookups.

    Args:
        model: a Keras model whose variables are ordinary ones.
    """
    shapes = {tensorflow_api.storage(weight): weight.shape for weight in model.weights}
    fewest = None
    for operation in graph_queries.ancestors(_parts(model.outputs)):
        if operation.type in _LOOKUPS:
            shape = shapes.get(operation.inputs[0], operation.inputs[0].shape)
            if shape.ndims and shape[0].value:
                fewest = min(fewest or shape[0].value, shape[0].value)
    return fewest


def check(
    model: Model, session: Session, folder: str, rows: Optional[int], inputs: Any = None
) -> None:
    """Compares what an export predicts with what its model does.

    Args:
        model: the Keras model.
        session: the session of its graph.
        folder: the folder of the export.
        rows: what `fewest_rows` says of it.
        inputs: an array, or a list of one for each input; `None` for made ones.

    Raises:
        CheckpointError: they differ, or cannot be compared; the message says why.
    """
    with _states_at_zero(model, session):
        if inputs is not None:
            inputs = [np.asarray(part) for part in (inputs if _is_list(inputs) else [inputs])]
            expected = _predicted(session, model.inputs, model.outputs, inputs)
        else:
            inputs, expected = _first_that_works(model, session, rows)
        exported = _predicted_by_export(folder, model, inputs)
        differing = _differing(expected, exported)
        if differing is None:
            return
        again = _predicted(session, model.inputs, model.outputs, inputs)
    if _differing(expected, again) is not None:
        raise CheckpointError(
            'The export cannot be checked, for the model predicts other numbers each time from the '
            'same inputs; take what is random out of its prediction.'
        )
    output, worst = differing
    raise CheckpointError(
        'The export does not predict what the model does: output %s differs by up to %g where its '
        'largest number is %g. Either a layer has state that its get_config and its weights do not '
        'tell, or the model was built with training behaviour switched on '
        '(set_learning_phase(1)).'
        % (model.output_names[output], worst, np.abs(expected[output]).max())
    )


def _first_that_works(
    model: Model, session: Session, rows: Optional[int]
) -> Tuple[List[Array], List[Array]]:
    """Made inputs that the model takes, and what it predicts from them."""
    specs = [
        sample_inputs.InputSpec(tuple(tensor.get_shape().as_list()), tensor.dtype.base_dtype.name)
        for tensor in model.inputs
    ]
    problem = None
    for inputs in sample_inputs.made_inputs(specs, rows):
        try:
            return inputs, _predicted(session, model.inputs, model.outputs, inputs)
        except (tf.errors.InvalidArgumentError, IdOutOfRangeError) as error:
            problem = error
    raise CheckpointError(
        'The export cannot be checked, for the model does not take inputs that are made from their '
        'shapes %s (%s). Give some that it takes as `inputs`.'
        % ([list(spec.shape) for spec in specs], problem)
    ) from problem


def _predicted_by_export(folder: str, model: Model, inputs: Sequence[Array]) -> List[Array]:
    config = session_config.without_card()
    with tf.Graph().as_default(), tf.Session(config=config) as session:
        tags = [tf.saved_model.tag_constants.SERVING]
        signature = tf.saved_model.loader.load(session, tags, folder).signature_def[
            tf.saved_model.signature_constants.DEFAULT_SERVING_SIGNATURE_DEF_KEY
        ]
        find = tf.saved_model.utils.get_tensor_from_tensor_info
        return _predicted(
            session,
            [find(signature.inputs[name]) for name in model.input_names],
            [find(signature.outputs[name]) for name in unique_names(model.output_names)],
            inputs,
        )


def _predicted(
    session: Session, inputs: Sequence[Tensor], outputs: Sequence[Tensor], values: Sequence[Array]
) -> List[Array]:
    """What a graph computes from inputs, with the same numbers for random ones each time."""
    feeds = dict(zip(inputs, map(_fed, inputs, values)))
    operations = graph_queries.ancestors(_parts(outputs))
    drawn = [operation.outputs[0] for operation in operations if operation.type in _RANDOM]
    owner = session.graph
    drawn = [tensor for tensor in drawn if owner.is_fetchable(tensor) and owner.is_feedable(tensor)]
    if drawn:
        for tensor, value in zip(drawn, session.run(drawn, feeds)):
            # Ids of classes that were drawn must be valid.
            feeds[tensor] = np.full_like(value, 0.5 if value.dtype.kind == 'f' else 0)
    return session.run(list(outputs), feeds)


def _fed(tensor: Tensor, value: Array) -> Any:
    """A value as it is fed: rows of a sparse input as their entries."""
    if not isinstance(tensor, tf.SparseTensor):
        return value
    indices = np.argwhere(value)
    return tf.SparseTensorValue(indices, value[tuple(indices.T)], value.shape)


def _differing(expected: Sequence[Array], other: Sequence[Array]) -> Optional[Tuple[int, float]]:
    """The number of the first output that differs, and by how much, or `None`."""
    for number, (first, second) in enumerate(zip(expected, other)):
        if first.shape != second.shape:
            return number, np.inf
        if first.dtype.kind not in 'fc':
            if not np.array_equal(first, second):
                return number, 1
            continue
        share = _TOLERANCE_OF_CARD if tensorflow_api.has_card() else _TOLERANCE
        share = _TOLERANCE_OF_HALF if first.dtype == np.float16 else share
        first, second = np.asarray(first, np.float64), np.asarray(second, np.float64)
        finite = first[np.isfinite(first)]
        bound = share * np.abs(finite).max() if finite.size else 0
        if not np.allclose(first, second, rtol=0, atol=bound + 1e-30, equal_nan=True):
            return number, np.nanmax(np.abs(first - second))
    return None


@contextlib.contextmanager
def _states_at_zero(model: Model, session: Session) -> Iterator[None]:
    """While open, the stateful layers of a model have seen nothing, as those of an export."""
    package = keras_api.package_of(model)
    states = [state for layer in keras_api.layers_in(package, model) for state in _states_of(layer)]
    with session.graph.as_default():
        values = package.backend.batch_get_value(states) if states else []
        zeros = [np.zeros_like(value) for value in values]
        package.backend.batch_set_value(list(zip(states, zeros)))
        try:
            yield
        finally:
            package.backend.batch_set_value(list(zip(states, values)))


def _states_of(layer: Layer) -> List[Variable]:
    states = getattr(layer, 'states', None) if getattr(layer, 'stateful', False) else None
    return [state for state in states or () if isinstance(state, VARIABLES)]


def _parts(tensors: Iterable[Tensor]) -> List[Tensor]:
    """Tensors, with sparse ones as their three parts."""
    parts = []
    for tensor in tensors:
        if isinstance(tensor, tf.SparseTensor):
            parts += [tensor.indices, tensor.values, tensor.dense_shape]
        else:
            parts.append(tensor)
    return parts


def _is_list(value: Any) -> bool:
    return isinstance(value, (list, tuple))
