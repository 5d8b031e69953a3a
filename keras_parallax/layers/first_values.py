# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What rows of a `DynamicEmbedding` begin with: numbers that follow from the id and a seed."""

import zlib
from typing import Any

from keras_parallax.compat.keras_api import KerasPackage
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.engine.tables import id_hashes
from keras_parallax.errors import PlanError
from keras_parallax.framework_types import Tensor

_NAMES = ('uniform', 'normal', 'zeros', 'ones')
_KINDS = ('RandomUniform', 'RandomNormal', 'Constant', 'Zeros', 'Ones')


def initializer_of(package: KerasPackage, given: Any, name: str) -> Any:
    """The initializer, of Keras, with a seed.

    Args:
        package: the `KerasPackage`.
        given: an initializer, or what Keras takes for one.
        name: of the layer, from which a seed follows if there is none.

    Raises:
        PlanError: it is none that a row can begin with.
    """
    initializers = package.module.initializers
    made = initializers.get(given)
    # With TensorFlow 1.11 some of `tf.keras` are TensorFlow's. With TensorFlow 2 those that names
    # mean in a graph are others than the classes.
    known = isinstance(made, tuple(getattr(initializers, kind) for kind in _KINDS))
    known = known or type(made) in [type(initializers.get(kind)) for kind in _NAMES]
    if not known or type(made).__name__ not in _KINDS:
        raise PlanError(
            "DynamicEmbedding makes a row's first values of its id: as 'uniform', 'normal', "
            "'zeros', 'ones', or Keras's RandomUniform, RandomNormal or Constant, but not as %r."
            % (given,)
        )
    config = made.get_config()
    if 'seed' in config and config['seed'] is None:
        config['seed'] = zlib.crc32(name.encode('utf-8'))
        made = type(made).from_config(config)
    return made


def of_ids(ids: Tensor, width: int, initializer: Any) -> Tensor:
    """The values `[n, width]` that the rows of ids `[n]` begin with.

    Args:
        ids: int64.
        width: of a row.
        initializer: one that `initializer_of` has returned.

    Returns:
        A tensor of float32 or float64.
    """
    config = initializer.get_config()
    if 'minval' in config:
        low, high = config['minval'], config['maxval']
        return low + (high - low) * id_hashes.uniform(ids, width, config['seed'])
    if 'stddev' in config:
        drawn = id_hashes.normal(ids, width, config['seed'])
        return config['mean'] + config['stddev'] * drawn
    constants = {'Zeros': 0.0, 'Ones': 1.0}
    value = constants.get(type(initializer).__name__, config.get('value'))
    return tf.fill(tf.stack([tf.size(ids), width]), value)
