"""The methods of Keras's models and layers that are routed to ours for models of a strategy."""

import functools
import os

from keras_parallax import (
    compat,
    compiling,
    late_import,
    once,
    restoring,
    saving,
    scope,
    training_loop,
)
from keras_parallax.compat import tf
from keras_parallax.errors import ParallaxError
from keras_parallax.table import ShardedVariable

_is_installed = False


def install():
    """Has what models of a strategy do go through here, once in a process.

    That is also so for a Keras package that the script imports later.

    Keras has no place to plug a file format or an engine in, so its methods are wrapped (Keras
    2.2.4, TF 1.11; proven by `tests/parallel/test_saving.py` and
    `tests/parallel/test_compiling.py`). Other models keep Keras's own methods, as ever.
    """
    global _is_installed
    if not _is_installed:
        _is_installed = True
        _install()
        late_import.when_imported('keras', _install)


def _install():
    graph_scope = scope.scope_of(tf.get_default_graph())
    if graph_scope is not None:
        graph_scope.hand_session_to_keras()
    native = tf.train.Optimizer
    if not hasattr(native.apply_gradients, '_parallax'):
        native.apply_gradients = compiling.apply_gradients_of(native.apply_gradients)
        native.apply_gradients._parallax = True
    for package in compat.loaded_keras_packages():
        network, model = package.network, package.module.models.Model
        if not hasattr(network.save, '_parallax'):
            network.save = _routed(network.save, saving.save_model)
            network.save_weights = _routed(network.save_weights, _save_weights)
            network.load_weights = _routed(network.load_weights, _load_weights)
            model.compile = compiling.compile_of(model.compile)
            model._make_train_function = compiling.train_function_of(model._make_train_function)
            base = package.module.optimizers.Optimizer
            base.get_gradients = compiling.get_gradients_of(base.get_gradients)
            package.layer.add_weight = scope.recording(package)
            training_loop.install(package)


def _routed(original, ours):
    @functools.wraps(original)
    def method(model, filepath, *args, **kwargs):
        # An open file of the caller's is for Keras to fill.
        if not isinstance(filepath, str) or not saving.is_ours(model):
            return original(model, filepath, *args, **kwargs)
        if ours is saving.save_model:
            return saving.save_model(model, filepath, *args, **kwargs)
        return ours(original, model, filepath, *args, **kwargs)

    method._parallax = True
    return method


def _save_weights(original, model, filepath, overwrite=True, save_format=None):
    if _is_tensorflows(model, filepath, save_format):
        _refuse_sharded(model, filepath, 'saved')
        once.save(
            saving.scope_of_model(model),
            filepath,
            ['checkpoint'] + saving.described(model),
            write=lambda: original(model, filepath, overwrite, save_format),
            own=lambda: None,
            witness=filepath + '.index',
        )
        return None
    return saving.save_weights(model, filepath, overwrite)


def _load_weights(original, model, filepath, by_name=False, **arguments):
    if _is_tensorflows(model, filepath) and not os.path.isfile(filepath):
        _refuse_sharded(model, filepath, 'loaded')
        return original(model, filepath, by_name, **arguments)
    return restoring.load_weights(model, filepath, by_name, **arguments)


def _is_tensorflows(model, filepath, save_format=None):
    """Whether `tf.keras` takes a path for a checkpoint of TensorFlow's, not an HDF5 file."""
    if compat.package_of(model).name == 'keras':
        return False
    if save_format is not None:
        return save_format.lower().strip() in ('tf', 'tensorflow')
    return not filepath.endswith(('.h5', '.keras'))


def _refuse_sharded(model, filepath, done):
    if any(isinstance(weight, ShardedVariable) for weight in model.weights):
        raise ParallaxError(
            "Sharded tables cannot be %s in TensorFlow's own checkpoint format, which tf.keras "
            'takes for %s; give the path the ending .h5.' % (done, filepath)
        )
