# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The options of `ParallaxOptimizer` in a file, so that a loaded model trains on in the same way.

They are an attribute of the file, which plain Keras does not look at.
"""

import json
from typing import Any, Dict

import h5py

from keras_parallax.compat.horovod_api import hvd
from keras_parallax.engine.step.exchange import MEAN
from keras_parallax.engine.updates.table_updates import EXACT
from keras_parallax.errors import CheckpointError

#: The attribute of a file that has the options, in JSON.
OPTIONS = 'keras_parallax_optimizer_options'

#: What each option is if a file does not say.
DEFAULTS = {
    'compression': 'none',
    'pull_compression': 'none',
    'sparse_update': EXACT,
    'sparse_reduction': MEAN,
    'accumulate_steps': 1,
    'loss_reduction': None,
}

_COMPRESSIONS = {'none': hvd.Compression.none, 'fp16': hvd.Compression.fp16}

#: The options that are a compression.
_COMPRESS = ('compression', 'pull_compression')


def write(file: h5py.File, settings: Any) -> None:
    """Writes the options of an optimizer that are not the defaults.

    Args:
        file: the open file.
        settings: the optimizer's `OptimizerSettings`.
    """
    options = described(settings)
    if options:
        file.attrs[OPTIONS] = json.dumps(options, sort_keys=True)


def described(settings: Any) -> Dict[str, Any]:
    """The options of `OptimizerSettings` that are not the defaults, as plain data.

    A compression of the user's own class has `None`: a file cannot hold it.
    """
    options = {}
    for name, default in DEFAULTS.items():
        value = getattr(settings, name)
        if name in _COMPRESS:
            names = [key for key, one in _COMPRESSIONS.items() if one is value]
            value = names[0] if names else None
        if value != default:
            options[name] = value
    return options


def read(file: h5py.File) -> Dict[str, Any]:
    """The options that a file has, as `described` gives them."""
    return json.loads(file.attrs.get(OPTIONS, '{}'))


def chosen(saved: Dict[str, Any], given: Dict[str, Any], path: str) -> Dict[str, Any]:
    """The options that a loaded model trains with, as arguments of `ParallaxOptimizer`.

    Args:
        saved: what the file has, as `read` gives it.
        given: dict from options to values, `None` for what the file has.
        path: the path of the file.

    Raises:
        CheckpointError: the file has an option that it cannot hold, or that is not known, and none
            is given in its place.
    """
    unknown = sorted(set(saved) - set(DEFAULTS))
    if unknown:
        raise CheckpointError(
            '%s was saved with options of ParallaxOptimizer that this version does not know: %s. '
            'Load it with the version of keras-parallax that saved it.' % (path, ', '.join(unknown))
        )
    options = {}
    for name, default in DEFAULTS.items():
        value = given.get(name)
        if value is None:
            value = saved.get(name, default)
            if name in _COMPRESS:
                value = _compression(name, value, path)
        options[name] = value
    return options


def _compression(name: str, value: Any, path: str) -> Any:
    if value not in _COMPRESSIONS:
        raise CheckpointError(
            '%s was saved with %s=..., a class of your own, which a file cannot hold. Give '
            'kp.load_model the same %s, or %s=kp.Compression.none to train without.'
            % (path, name, name, name)
        )
    return _COMPRESSIONS[value]
