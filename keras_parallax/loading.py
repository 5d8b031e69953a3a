"""`load_model`: a model and its optimizer from a file, compiled to train on in a job."""

import functools
import json
import warnings

from keras_parallax import compat, restoring, resuming
from keras_parallax.blocks import BLOCK_BYTES
from keras_parallax.compat import hvd, tf
from keras_parallax.errors import CheckpointError, ScopeError
from keras_parallax.exchange import MEAN
from keras_parallax.optimizer import ParallaxOptimizer
from keras_parallax.scope import scope_of
from keras_parallax.updates import EXACT


def load_model(
    filepath,
    custom_objects=None,
    compile=True,
    name=None,
    compression=hvd.Compression.none,
    pull_compression=hvd.Compression.none,
    sparse_update=EXACT,
    sparse_reduction=MEAN,
):
    """Loads a model to train on in this job. A collective call, inside the strategy's scope.

    Args:
        filepath: a checkpoint of `kp.callbacks.ModelCheckpoint` of either form, or a file that
            `model.save` wrote, with keras-parallax or with plain Keras.
        custom_objects: dict from names to classes or functions that Keras does not know.
        compile: whether to compile the model as it was when it was saved, and to restore the
            state of its optimizer. Without, every rank must see the file.
        name: as in `ParallaxOptimizer`.
        compression: as in `ParallaxOptimizer`.
        pull_compression: as in `ParallaxOptimizer`.
        sparse_update: as in `ParallaxOptimizer`.
        sparse_reduction: as in `ParallaxOptimizer`.

    Returns:
        A model of the Keras package that wrote the file.

    Raises:
        ScopeError: called outside `with strategy:`.
        CheckpointError: the file is damaged, or holds weights only.

    Example:
        ```python
        >>> import os, tempfile, keras, keras_parallax as kp
        >>> model = keras.models.Sequential([keras.layers.Embedding(9, 1, input_length=1)])
        >>> model.compile('adagrad', 'mse')
        >>> path = os.path.join(tempfile.mkdtemp(), 'model.h5')
        >>> model.save(path)
        >>> with kp.ParallaxStrategy() as strategy:
        ...     model = kp.load_model(path, sparse_update='lazy')
        >>> model.optimizer.get_config()['lr'] > 0
        True
        ```
    """
    scope = scope_of(tf.get_default_graph())
    if scope is None or scope.open_strategy is None:
        raise ScopeError('Call kp.load_model inside `with strategy:`.')
    read = functools.partial(_read_configs, filepath) if scope.job.rank == 0 else lambda: None
    # Only rank 0 may see a file, and all must make the same model.
    with scope.job.call('kp.load_model'):
        name_of_package, config, training = resuming.on_every_rank(scope.job, filepath, read)[0]
    package = compat.keras_package(name_of_package)
    model = package.module.models.model_from_config(config, custom_objects)
    if not compile or training is None:
        if compile:
            told = '%s holds no compiled model: compile it yourself.' % filepath
            warnings.warn(told, stacklevel=2)
        with resuming.opened(filepath, checked=False) as (file, sources, _):
            mover = restoring.Mover(model, BLOCK_BYTES, None, sources)
            restoring.read_weights(model, restoring.weights_group(file), False, mover)
        return model
    wrap = functools.partial(
        ParallaxOptimizer,
        name=name,
        compression=compression,
        pull_compression=pull_compression,
        sparse_update=sparse_update,
        sparse_reduction=sparse_reduction,
    )
    _compile(package, model, training, custom_objects or {}, wrap)
    with scope.job.call('kp.load_model'):
        resuming.resume(model, filepath)
    return model


def _read_configs(filepath):
    """The name of the Keras package that wrote a file, its model, and how that was compiled."""
    with resuming.opened(filepath, checked=False) as (file, _, _):
        version = _decoded(file.attrs.get('keras_version', b''))
        config = _attribute(file, 'model_config')
        if config is None:
            raise CheckpointError(
                '%s holds no model, only weights; build the model and call model.load_weights.'
                % filepath
            )
        package = 'tf.keras' if version.endswith('-tf') else 'keras'
        return package, config, _attribute(file, 'training_config')


def _attribute(file, name):
    value = file.attrs.get(name)
    return None if value is None else json.loads(_decoded(value))


def _decoded(value):
    return value.decode('utf-8') if isinstance(value, bytes) else value


def _compile(package, model, training, custom_objects, wrap):
    optimizer = package.module.optimizers.deserialize(
        training['optimizer_config'], custom_objects=custom_objects
    )
    arguments = {
        name: _with_objects(value, custom_objects)
        for name, value in training.items()
        if name != 'optimizer_config'
    }
    model.compile(wrap(optimizer), **arguments)


def _with_objects(value, custom_objects):
    """Puts the user's functions in the place of their names."""
    if isinstance(value, list):
        return [_with_objects(one, custom_objects) for one in value]
    if isinstance(value, dict):
        return {name: _with_objects(one, custom_objects) for name, one in value.items()}
    return custom_objects.get(value, value) if isinstance(value, str) else value
