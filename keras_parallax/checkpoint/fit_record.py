# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What a checkpoint keeps of the call of `fit` in which it was saved, besides the model."""

from typing import Any, Dict, NamedTuple

from keras_parallax.checkpoint import random_state
from keras_parallax.compat import keras_api


class FitRecord(NamedTuple):
    """What is saved of a call of `fit`.

    Attributes:
        job: what counts for the whole job, plain data: that of rank 0 is kept. `batch` is the
            number of batches of an epoch that are over, 0 after an epoch; `ranks` are what each has
            summed up in it, and what it trains on; `history` and `callbacks` are what Keras's and
            the user's callbacks have come to.
        own: what each worker has for itself, plain data: the states of generators, `random` now and
            `begin` when the epoch began.
        order: the numbers of the samples as they were in when `begin` was; `None` if there is none.
    """

    job: Dict[str, Any]
    own: Dict[str, Any]
    order: Any = None


class SavedFit(NamedTuple):
    """What a checkpoint says of the `fit` that it was saved in, to go on from.

    Attributes:
        epoch: number of epochs that are over.
        job, own, order: as in `FitRecord`; empty where this worker has none.
        ranks: how many workers have saved what is their `own`.
    """

    epoch: int
    job: Dict[str, Any]
    own: Dict[str, Any]
    order: Any
    ranks: int

    @property
    def batch(self) -> int:
        """Number of batches that are over in the epoch."""
        return self.job.get('batch', 0)


def now() -> FitRecord:
    """The `FitRecord` where nothing is known of a `fit` but its order of samples."""
    return FitRecord({}, {'random': random_state.current()}, keras_api.order_of_samples())
