# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Keras 3, and what is private in it. Imported only where Keras 3 is in use.

Tried with Keras 3.12 to 3.15. `make test-keras3 KERAS=3.12.4` fails where a version moves one of
these names.
"""

import functools
import importlib
from typing import Any, Callable, Iterator, List, Sequence, Tuple

import keras
from keras.src.backend.common import global_state
from keras.src.initializers import random_initializers
from keras.src.losses import loss as losses_module
from keras.src.trainers.data_adapters import array_data_adapter

from keras_parallax.compat import patches
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.errors import StackError

if not keras.__version__.startswith('3.'):
    raise StackError('This is Keras %s, and not Keras 3.' % keras.__version__)

#: The name of Keras's backend.
BACKEND = keras.backend.backend()
#: The backends whose models can be trained.
BACKENDS = ('tensorflow', 'jax')

Embedding = keras.layers.Embedding
Function = keras.Function
Loss = keras.losses.Loss
LossScaleOptimizer = keras.optimizers.LossScaleOptimizer
Model = keras.Model
#: Keras 3.12 has none.
MultiOptimizer = getattr(keras.optimizers, 'MultiOptimizer', None)
#: The class that has `compile`, `fit` and the functions of steps, one for each backend.
Trainer = next(cls for cls in Model.__mro__ if 'make_train_function' in vars(cls))
#: The class that all of them derive from.
BaseTrainer = next(cls for cls in Model.__mro__ if '_get_metrics_result_or_logs' in vars(cls))

#: With these Keras ends an epoch whose number of batches it did not know.
ENDS_OF_DATA = (StopIteration, tf.errors.OutOfRangeError)

MEAN_REDUCTIONS = ('sum_over_batch_size', 'mean')
WEIGHTED_MEAN = 'mean_with_sample_weight'
SUM = 'sum'


@functools.lru_cache(maxsize=None)
def backend_module() -> Any:
    """Our module for Keras's backend."""
    return importlib.import_module('keras_parallax.compat.keras3_' + BACKEND)


def is_in_call() -> bool:
    """Whether a layer or model is being called, so that what is read goes into its outputs."""
    return global_state.get_global_attribute('current_call_ctx') is not None


def replace_method(target: str, cls: type, make: Callable[[Any], Any]) -> None:
    """Replaces a method or property of a class of Keras for good.

    Args:
        target: which one, as `patched_keras3` has it.
        cls: the class.
        make: function from the method as it is to the one that takes its place.
    """
    patches.require_listed(patches.OF_KERAS_3, target)
    name = target.rsplit('.', 1)[1]
    # Of a property, `getattr` of the class would give the property, too.
    setattr(cls, name, make(getattr(cls, name)))


def class_of_archives() -> type:
    """The class whose `track` each archive for serving has; Keras 3.15 has one of each backend."""
    made = type(keras.export.ExportArchive())
    return next(cls for cls in made.__mro__ if 'track' in vars(cls))


def replace_reduction(make: Callable[[Any], Any]) -> None:
    """Replaces the function that makes one number of the losses of a batch, for every `Loss`."""
    patches.require_listed(patches.OF_KERAS_3, 'losses.reduce_weighted_values')
    losses_module.reduce_weighted_values = make(losses_module.reduce_weighted_values)


def masked_weight(sample_weight: Any, mask: Any, dtype: Any) -> Any:
    """Sample weights that are zero where a mask is, as `mean_with_sample_weight` sums them."""
    return losses_module.apply_mask(sample_weight, mask, dtype=dtype, reduction=WEIGHTED_MEAN)


def new_weight(layer: Any, make: Callable[[], Any]) -> Any:
    """Makes a weight of a layer, which has the path that `add_weight` would give it."""
    with keras.name_scope(layer.name, caller=layer):
        return make()


def no_scales() -> Tuple[None, ...]:
    """What a layer that is not quantized has in place of scales, which are saved with its table.

    Keras 3.12 and 3.13 have a scale, and newer ones also a zero point; the test of
    `patched_keras3` for `Embedding._get_embeddings_with_merged_lora` fails with another number.
    """
    minor = int(keras.__version__.split('.')[1])
    return (None,) if minor < 14 else (None, None)


def replace_weight(layer: Any, attribute: str, make: Callable[[], Any]) -> Any:
    """Puts another variable in the place of a layer's trainable weight, and returns it."""
    former = getattr(layer, attribute)
    weights = layer._trainable_variables
    place = next(n for n, weight in enumerate(weights) if weight is former)
    was_locked = layer._tracker.locked
    layer._tracker.unlock()
    made = new_weight(layer, make)
    setattr(layer, attribute, made)  # Tracked, as the last one of those that can be trained.
    del weights[-1]
    weights[place] = made
    made.trainable = former.trainable
    if was_locked:
        layer._tracker.lock()
    return made


def layers_of(model: Any) -> Iterator[Any]:
    """A model and all layers within it."""
    return iter(model._flatten_layers())


def nodes_of(function: Any) -> List[Any]:
    """The nodes of a functional model, in the order in which it calls their operations."""
    by_depth = function._nodes_by_depth
    return [node for depth in sorted(by_depth, reverse=True) for node in by_depth[depth]]


def function_of(model: Any) -> Any:
    """The graph of operations that a functional or Sequential model calls, or `None`."""
    return model if isinstance(model, Function) else getattr(model, '_functional', None)


def only_input_of(layer: Any) -> Any:
    """What a layer is called with in functional models; `None` if that is not one thing."""
    nodes: List[Any] = getattr(layer, '_inbound_nodes', [])
    return nodes[0].input_tensors[0] if len(nodes) == 1 else None


def fans_of(initializer: Any, shape: Sequence[int]) -> Tuple[int, int]:
    """The numbers of inputs and of outputs by which `VarianceScaling` scales its values."""
    # Those of Keras 3.15 may be told which axes are which.
    axes = {
        name: getattr(initializer, name)
        for name in ('input_axes', 'output_axes')
        if hasattr(initializer, name)
    }
    fan_in, fan_out = random_initializers.compute_fans(tuple(shape), **axes)
    return fan_in, fan_out


def iterations_of(optimizer: Any) -> Any:
    """The variable that counts an optimizer's steps, from 0."""
    return optimizer._iterations


def learning_rate_of(optimizer: Any) -> Any:
    """The learning rate of the next step, a scalar."""
    return optimizer._get_current_learning_rate()


def has_schedule(optimizer: Any) -> bool:
    """Whether an optimizer computes its learning rate from the number of its steps."""
    return not isinstance(optimizer._learning_rate, keras.Variable)


def set_learning_rate(optimizer: Any, rate: float) -> None:
    """Sets the learning rate of an optimizer that has no schedule."""
    optimizer._learning_rate.assign(rate)


def name_of_slot(variable: Any, name: str) -> str:
    """The name that an optimizer gives the slot of a variable."""
    return '%s_%s' % (variable.path.replace('/', '_'), name)


def map_of(optimizer: Any) -> Any:
    """What says which optimizer within a `MultiOptimizer` updates a variable."""
    return optimizer._optimizer_map


def replace_parts(optimizer: Any, make: Callable[[Any], Any]) -> None:
    """Puts others in the place of the optimizers within a `MultiOptimizer` with an `OptimizerMap`.

    Args:
        optimizer: the `MultiOptimizer`.
        make: function from an optimizer to the one that takes its place.
    """
    former = map_of(optimizer)
    made = {id(part): make(part) for part in optimizer.optimizers}
    parts = [made[id(part)] for part in optimizer.optimizers]
    optimizer._optimizer_map = keras.optimizers.OptimizerMap(
        made[id(former.default_optimizer)], {name: made[id(former[name])] for name in former}
    )
    optimizer._inner_optimizers = parts


def built_for(optimizer: Any) -> List[Any]:
    """The variables that an optimizer was built for."""
    return optimizer._trainable_variables


def compiled_losses(model: Any) -> List[Any]:
    """The `Loss`es, functions and `None`s that a model was compiled with, once they are built."""
    compiled = model._compile_loss
    return list(getattr(compiled, 'flat_losses', None) or []) if compiled is not None else []


def metrics_of(model: Any) -> List[Any]:
    """All metrics of a model, those that `compile` was given among them."""
    found: List[Any] = []
    for metric in model.metrics:
        found.extend(getattr(metric, 'metrics', None) or [metric])
    return found


def batches_of_validation(model: Any) -> Any:
    """The number of batches that `fit` validates a model with, `None` if it is not known."""
    iterator = getattr(model, '_eval_epoch_iterator', None)
    return None if iterator is None else iterator.num_batches


def first_size(data: Any) -> Any:
    """The number of samples in a batch, of arrays or tensors in any structure."""
    return keras.ops.shape(next(part for part in keras.tree.flatten(data) if part is not None))[0]


def checkpoint_path(callback: Any, epoch: int, batch: Any, logs: Any) -> str:
    """Where a `ModelCheckpoint` of Keras saves; `batch` is `None` after an epoch."""
    path: str = callback._get_file_path(epoch, batch, logs)
    return path


def should_save(callback: Any, epoch: int, batch: Any, logs: Any, path: str) -> bool:
    """Whether a `ModelCheckpoint` of Keras is to save, which says so if it is verbose."""
    if callback.monitor_op is None:
        callback._set_monitor_op()
    return bool(callback._should_save_model(epoch, batch, logs, path))


def are_arrays(data: Any) -> bool:
    """Whether `fit` takes data for arrays, which it may shuffle."""
    return bool(array_data_adapter.can_convert_arrays((data,)))


def added_losses(layer: Any) -> bool:
    """Whether a layer has added to the loss in this call, its regularizers of weights apart."""
    return bool(layer._losses or layer._loss_ids)


def symbolic_build(trainer: Any, **data: Any) -> None:
    """Has Keras build all layers, losses, metrics and the optimizer of a model from a batch."""
    trainer._symbolic_build(**data)
