# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Tells shares of the data which epoch `fit` is in."""

import functools
from typing import Any, Callable, Dict, Iterable, Optional, Sequence

from keras_parallax.compat import keras_api
from keras_parallax.data import structures, worker
from keras_parallax.data.positions import BATCH_SIZE
from keras_parallax.data.sample_order import Order
from keras_parallax.data.sequences import SequenceShard
from keras_parallax.data.share import Share
from keras_parallax.errors import DataError
from keras_parallax.framework_types import Logs, Model


class BeginEpochs(keras_api.callbacks.Callback):
    """Has arrays take the rows of an epoch before it begins.

    Args:
        shares: the `Share`s.
    """

    def __init__(self, shares: Sequence[Share]) -> None:
        super().__init__()
        self._shares = shares

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        """As Keras calls it, before it takes the first batch."""
        for share in self._shares:
            share.begin_epoch(epoch)


def telling_epochs(original: Callable[..., Any]) -> Callable[..., Any]:
    """A `fit` or `fit_generator` that tells shares of the data which epoch it is."""

    @functools.wraps(original)
    def method(model: Model, *arguments: Any, **named: Any) -> Any:
        by_name = keras_api.arguments_by_name(original, model, arguments, named)
        given = by_name.get('generator', by_name.get('x'))
        if isinstance(given, SequenceShard):
            # How far an earlier call has come, its thread may have told on one worker, and not on
            # another.
            given.begin_epoch(int(by_name.get('initial_epoch') or 0))
            # Keras would shuffle on each worker by itself what is shuffled on all alike.
            by_name['shuffle'] = False
            return original(model, **by_name)
        data = structures.leaves([by_name.get(name) for name in ('x', 'y', 'sample_weight')])
        shares = [array for array in data if isinstance(array, Share)]
        if not shares:
            return original(model, *arguments, **named)
        if any(share.changes for share in shares):
            _check(by_name, data)
            by_name['callbacks'] = list(by_name.get('callbacks') or []) + [BeginEpochs(shares)]
        _say_if_short(shares[0].shape[0], by_name.get('batch_size') or BATCH_SIZE)
        return original(model, **by_name)

    return method


def _say_if_short(length: int, batch_size: int) -> None:
    if length < batch_size:
        worker.say(
            'The share of a worker has %d samples, fewer than a batch of %d: an epoch is one batch '
            'of %d.' % (length, batch_size, length)
        )


def _order_of(array: Any) -> Optional[Order]:
    return array.order if isinstance(array, Share) else None


def _check(named: Dict[str, Any], data: Iterable[Any]) -> None:
    """Refuses what would stay as it is while rows change.

    Args:
        named: the arguments of `fit`, by name.
        data: the arrays among them that have a row for each sample.
    """
    if len({_order_of(array) for array in data}) > 1:
        raise DataError(
            'Arrays of kp.data.arrays have other rows in each epoch, and something else that is '
            'given to fit has not: inputs and targets would no longer belong together. Give all of '
            'them to one call of kp.data.arrays, and change them before.'
        )
    if named.get('validation_split'):
        raise DataError('Give validation_split to kp.data.arrays, and not to fit.')
    if named.get('class_weight') is not None:
        raise DataError(
            'Keras turns class_weight into a weight for each sample once, but samples change with '
            'the epoch; give their weights to kp.data.arrays, as in sample_weight=np.vectorize('
            'class_weight.get)(y), where y has the number of the class of each sample.'
        )
