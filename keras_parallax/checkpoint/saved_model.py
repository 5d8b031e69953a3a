# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""`export_saved_model`: a model for serving, which TensorFlow loads with nothing else installed."""

import contextlib
import os
import random
import types
from typing import Any, Dict, Iterator, List, Optional, Tuple

import numpy as np

from keras_parallax import atomic_files
from keras_parallax.checkpoint import keras_file_write, saved_model_check, write_once
from keras_parallax.checkpoint.weight_pairs import paired_weights
from keras_parallax.compat import keras_api, session_config
from keras_parallax.compat.keras_api import KerasPackage
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.engine.tables.id_index import index_of, to_predict
from keras_parallax.engine.tables.row_transfer import BLOCK_BYTES, ShardedRows, progress
from keras_parallax.errors import CheckpointError
from keras_parallax.framework_types import Array, Model, Session

_KERAS = ('keras.', 'tf_keras.', 'tensorflow.python.keras.')


def export_saved_model(
    model: Model,
    path: str,
    custom_objects: Optional[Dict[str, Any]] = None,
    show_progress: Optional[bool] = None,
    inputs: Any = None,
) -> None:
    """Writes a model as a SavedModel with ordinary variables, to predict with.

    Any one worker may call it, on its own, or all. It needs memory for the whole model, as whoever
    serves the model does. Dropout and the like are off, and stateful layers begin with their states
    at zero.

    Before the folder gets its name it is loaded, and what it predicts is compared with what the
    model does, from a few samples that are made from the shapes of the model's inputs.

    Args:
        model: a Keras model of this job, built from layers that Keras can make again from their
            configuration.
        path: path of the folder to write, which must not exist yet. Folders on the way to it are
            made.
        custom_objects: dict from names to classes or functions that Keras does not know, besides
            those that the layers show.
        show_progress: whether to show a progress bar; if `None`, for large tables on a terminal.
        inputs: an array `[samples, ...]`, or a list of one for each input of the model, to compare
            predictions from, where the model does not take those that are made.

    Raises:
        CheckpointError: there is something at `path` already, the model cannot be made again from
            its configuration, or what the export predicts is not, or cannot be shown to be, what
            the model does. Then nothing is left at `path`.

    Example:
        ```python
        >>> import os, tempfile, keras, keras_parallax as kp
        >>> with kp.ParallaxStrategy() as strategy:
        ...     model = keras.models.Sequential([keras.layers.Dense(1, input_shape=(2,))])
        >>> path = os.path.join(tempfile.mkdtemp(), 'serving', '1')
        >>> kp.export_saved_model(model, path)
        >>> sorted(os.listdir(path))
        ['saved_model.pb', 'variables']
        ```
    """
    of_other_rank: List[str] = []

    def write() -> Optional[str]:
        if os.path.exists(path) and not of_other_rank:
            raise CheckpointError('%s exists already; export to another path.' % path)
        _export(model, path, custom_objects, show_progress, inputs)
        return digest()

    def digest() -> Optional[str]:
        with keras_file_write.in_memory() as file:
            return keras_file_write.own_digest(
                model, file, keras_file_write.write_weights(model, file)
            )

    def own() -> Optional[str]:
        # What is there was exported by another worker a moment ago.
        of_other_rank.append(path)
        return digest()

    scope = keras_file_write.scope_of_model(model)
    write_once.save(
        scope.job,
        write_once.point_of(scope),
        path,
        ['export'] + keras_file_write.described(model),
        write,
        own,
    )


def _export(
    model: Model,
    path: str,
    custom_objects: Optional[Dict[str, Any]],
    show_progress: Optional[bool],
    inputs: Any,
) -> None:
    package, session = keras_api.package_of(model), keras_file_write.session_of(model)
    try:
        with atomic_files.folder_aside(path) as aside, _random_state_kept():
            # Not `with tf.Session()`: Keras would take it for the model's graph as well.
            with tf.Graph().as_default(), contextlib.closing(_session()) as own:
                with _session_of(package, own, session):
                    package.backend.set_learning_phase(0)
                    with to_predict():
                        made = _made_again(model, custom_objects)
                    _fill(package, made, model, own, session, show_progress)
                    rows = saved_model_check.fewest_rows(made)
                    _write(made, own, aside)
            saved_model_check.check(model, session, aside, rows, inputs)
    except tf.errors.OpError as error:
        raise CheckpointError('%s could not be written: %s' % (path, error.message)) from error
    except OSError as error:
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(atomic_files.why_unwritten(path, error)) from error


def _session() -> Session:
    # Tables may be larger than the memory of a card.
    return tf.Session(config=session_config.without_card())


def _made_again(model: Model, custom_objects: Optional[Dict[str, Any]]) -> Model:
    """A model made from the configuration of another, in the graph that is the default one."""
    # A class of the user's that only adds to Keras's has its constructor's arguments for itself.
    classes: Tuple[Any, ...] = type(model).__mro__
    maker = next(cls for cls in classes if 'from_config' in vars(cls))
    try:
        known, config = dict(_objects_of(model), **(custom_objects or {})), _config_of(model)
        if isinstance(config, dict) and 'layers' not in config:
            # Keras 2.15 and later describe such a class by those arguments
            # (`tests/unit/checkpoint/test_saved_model.py`, the case `own_class`).
            maker = type(model)
        return maker.from_config(config, known)
    except Exception as error:
        raise CheckpointError(
            'The model cannot be made again from its configuration, which an export needs '
            '(%s: %s). Give classes and functions that Keras does not know as custom_objects; '
            'layers must not use tensors or variables of other layers but by being called.'
            % (type(error).__name__, error)
        ) from error


def _config_of(model: Model) -> Any:
    """A model's configuration, with the `InputLayer` that a `Sequential` begins with.

    Keras 2.2.4 and `tf.keras` 1.11 leave it out. Without it the input has another name, and the
    type of the first layer (`tests/unit/checkpoint/test_saved_model.py`, the case `input_layer`).
    """
    config = model.get_config()
    is_sequential = isinstance(model, keras_api.package_of(model).module.models.Sequential)
    if not is_sequential or config['layers'][0]['class_name'] == 'InputLayer':
        return config
    (tensor,), (name,) = model.inputs, model.input_names
    of_input = {
        'batch_input_shape': tuple(tensor.get_shape().as_list()),
        'dtype': tensor.dtype.base_dtype.name,
        'sparse': isinstance(tensor, tf.SparseTensor),
        'name': name,
    }
    first = {'class_name': 'InputLayer', 'config': of_input}
    return dict(config, layers=[first, *config['layers']])


def _objects_of(model: Model) -> Dict[str, Any]:
    """The classes and functions of a model's layers that Keras does not know, by name."""
    package = keras_api.package_of(model)
    objects: Dict[str, Any] = {}
    for layer in keras_api.layers_in(package, model):
        # Functions such as activations; initializers and the like by their classes.
        values = [
            value if isinstance(value, types.FunctionType) else type(value)
            for value in [layer] + list(vars(layer).values())
            if isinstance(value, types.FunctionType) or hasattr(value, 'get_config')
        ]
        objects.update(
            (value.__name__, value) for value in values if not value.__module__.startswith(_KERAS)
        )
        code = getattr(getattr(layer, 'function', None), '__code__', None)
        if code is not None:
            # A lambda that is made again finds what it calls under these names.
            around = layer.function.__globals__
            objects.update((name, around[name]) for name in code.co_names if name in around)
    return objects


def _fill(
    package: KerasPackage,
    made: Model,
    model: Model,
    own: Session,
    session: Session,
    show_progress: Optional[bool],
) -> None:
    """Gives a model in a graph of its own the weights of another."""
    package.backend.get_session()  # Initializes them.
    pairs = paired_weights(model, made)
    small = [(copy, weight) for copy, weight in pairs if keras_file_write.rows_of(weight) is None]
    with _session_of(package, session, own), session.graph.as_default():
        values = package.backend.batch_get_value([weight for _, weight in small])
    package.backend.batch_set_value([(copy, value) for (copy, _), value in zip(small, values)])
    large = [(copy, keras_file_write.rows_of(weight)) for copy, weight in pairs]
    large = [(copy, rows) for copy, rows in large if rows is not None]
    with progress(sum(rows.bytes for _, rows in large), 'exporting', show_progress) as advance:
        for copy, rows in large:
            target = ShardedRows(copy.name, [copy], rows.shape)
            rows.copy_to(_Writer(target, own), session, BLOCK_BYTES, advance)


def _write(made: Model, session: Session, folder: str) -> None:
    """Writes a model to a folder, with a signature whose keys are the names of its layers."""
    outputs = keras_file_write.unique_names(made.output_names)
    found = map(index_of, made.weights)
    indexes = {index for index in found if index is not None}
    # Hash tables are not saved: whoever loads the model makes them of its weights.
    loaded = tf.group(*[index.rebuilt() for index in indexes]) if indexes else None
    signature = tf.saved_model.signature_def_utils.predict_signature_def(
        dict(zip(made.input_names, made.inputs)), dict(zip(outputs, made.outputs))
    )
    builder = tf.saved_model.builder.SavedModelBuilder(folder)
    builder.add_meta_graph_and_variables(
        session,
        [tf.saved_model.tag_constants.SERVING],
        {tf.saved_model.signature_constants.DEFAULT_SERVING_SIGNATURE_DEF_KEY: signature},
        main_op=loaded,
    )
    builder.save()


class _Writer:
    """Takes rows as an array does, and sets those of `Rows`."""

    def __init__(self, rows: ShardedRows, session: Session) -> None:
        self._rows, self._session = rows, session

    def __setitem__(self, places: Any, values: Array) -> None:
        self._rows.write(self._session, places.start, values)


@contextlib.contextmanager
def _session_of(package: KerasPackage, session: Session, before: Session) -> Iterator[None]:
    """While open, a Keras package uses another session."""
    package.backend.set_session(session)
    try:
        yield
    finally:
        package.backend.set_session(before)


@contextlib.contextmanager
def _random_state_kept() -> Iterator[None]:
    """While open, random numbers may be drawn: Keras's initializers draw seeds."""
    numpy, python = np.random.get_state(), random.getstate()
    try:
        yield
    finally:
        np.random.set_state(numpy)
        random.setstate(python)
