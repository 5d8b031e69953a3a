"""`export_saved_model`: a model for serving, which TensorFlow loads with nothing else installed."""

import contextlib
import os
import shutil
import tempfile

import numpy as np

from keras_parallax import compat, saving
from keras_parallax.blocks import BLOCK_BYTES, ShardedRows, progress
from keras_parallax.compat import tf
from keras_parallax.errors import CheckpointError


def export_saved_model(model, path, custom_objects=None, show_progress=None):
    """Writes a model as a SavedModel with ordinary variables, to predict with.

    Any one rank may call it, on its own. It needs memory for the whole model, as whoever serves
    the model does. Dropout and the like are off.

    Args:
        model: a Keras model of this job, built from layers that Keras can make again from their
            configuration.
        path: path of the folder to write, which must not exist yet.
        custom_objects: dict from names to classes or functions that Keras does not know.
        show_progress: whether to show a progress bar; if `None`, for large tables on a terminal.

    Raises:
        CheckpointError: there is something at `path` already.

    Example:
        ```python
        >>> import os, tempfile, keras, keras_parallax as kp
        >>> with kp.ParallaxStrategy() as strategy:
        ...     model = keras.models.Sequential([keras.layers.Dense(1, input_shape=(2,))])
        >>> path = os.path.join(tempfile.mkdtemp(), 'serving')
        >>> kp.export_saved_model(model, path)
        >>> sorted(os.listdir(path))
        ['saved_model.pb', 'variables']
        ```
    """
    if os.path.exists(path):
        raise CheckpointError('%s exists already; export to another path.' % path)
    package, session = compat.package_of(model), saving.session_of(model)
    values = _small_values(package, model)
    parent = os.path.dirname(os.path.abspath(path))
    # Keras's initializers draw seeds, which must not change how training goes on.
    random = np.random.get_state()
    aside = tempfile.mkdtemp('.part', '.%s.' % os.path.basename(path), parent)
    try:
        with tf.Graph().as_default(), tf.Session() as own, _session_of(package, own, session):
            package.backend.set_learning_phase(0)
            plain = type(model).from_config(model.get_config(), custom_objects)
            _fill(package, plain, model, values, own, session, show_progress)
            signature = tf.saved_model.signature_def_utils.predict_signature_def(
                dict(zip(plain.input_names, plain.inputs)),
                dict(zip(plain.output_names, plain.outputs)),
            )
            builder = tf.saved_model.builder.SavedModelBuilder(os.path.join(aside, 'model'))
            builder.add_meta_graph_and_variables(
                own,
                [tf.saved_model.tag_constants.SERVING],
                {tf.saved_model.signature_constants.DEFAULT_SERVING_SIGNATURE_DEF_KEY: signature},
            )
            builder.save()
        os.rename(os.path.join(aside, 'model'), path)
    finally:
        np.random.set_state(random)
        shutil.rmtree(aside)


def _small_values(package, model):
    """The values of the weights that are not moved in blocks, in order; `None` for the others."""
    small = [weight for weight in model.weights if saving.rows_of(weight) is None]
    values = iter(package.backend.batch_get_value(small))
    return [next(values) if saving.rows_of(weight) is None else None for weight in model.weights]


def _fill(package, plain, model, values, own, session, show_progress):
    """Gives a model in a graph of its own the weights of another."""
    package.backend.get_session()  # Initializes them.
    pairs = list(zip(plain.weights, model.weights, values))
    package.backend.batch_set_value([(to, value) for to, _, value in pairs if value is not None])
    large = [(to, saving.rows_of(weight)) for to, weight, value in pairs if value is None]
    with progress(sum(rows.bytes for _, rows in large), 'exporting', show_progress) as advance:
        for to, rows in large:
            target = ShardedRows(to.name, [to], rows.shape)
            rows.copy_to(_Writer(target, own), session, BLOCK_BYTES, advance)


class _Writer:
    """Takes rows as an array does, and sets those of `Rows`."""

    def __init__(self, rows, session):
        self._rows, self._session = rows, session

    def __setitem__(self, places, values):
        self._rows.write(self._session, places.start, values)


@contextlib.contextmanager
def _session_of(package, session, before):
    """While open, a Keras package uses another session."""
    package.backend.set_session(session)
    try:
        yield
    finally:
        package.backend.set_session(before)
