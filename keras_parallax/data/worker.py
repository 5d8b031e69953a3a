# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Who this worker is, and what it says about the data."""

import types
import warnings
import weakref
from typing import Any, Iterator, Optional

from keras_parallax.data.sample_order import Order, check, remainder_sentence
from keras_parallax.engine.job import job as job_module
from keras_parallax.engine.job.job import Job
from keras_parallax.errors import DataError, ScopeError
from keras_parallax.planning.plan_request import check_flag

_SEEDS = 2**32

#: The generators that `kp.data.shard` has made. Keras takes nothing else for one (TF 1.11).
_shared: Any = weakref.WeakSet()


def current() -> Job:
    """The `Job` whose workers share the data.

    Raises:
        ScopeError: there is none yet.
    """
    job = job_module.current()
    if job is None:
        raise ScopeError(
            'kp.data gives each worker its share, and there is no job yet; make a ParallaxStrategy '
            'before.'
        )
    return job


def seed_of(shuffle: Any, seed: Any) -> Optional[int]:
    """The seed of an `Order`.

    Raises:
        DataError: it is none that all workers could have.
    """
    if not check_flag('shuffle', shuffle, DataError):
        return None
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < _SEEDS:
        raise DataError(
            'seed is a whole number from 0 to 2**32 - 1, the same on every worker, not %r.'
            % (seed,)
        )
    return seed


def order_of(count: int, things: str, shuffle: Any, seed: Any, drop_remainder: Any) -> Order:
    """The `Order` of a job's data; rank 0 says what becomes of the remainder.

    Args:
        count: how many there are.
        things: what they are, in plural.
        shuffle: whether they have another order in each epoch.
        seed: what shuffles them, as the user has given it.
        drop_remainder: whether those are left out that are too few for all workers.

    Raises:
        DataError: a worker would have nothing.
    """
    drop_remainder = check_flag('drop_remainder', drop_remainder, DataError)
    order = Order(count, current().size, seed_of(shuffle, seed), drop_remainder)
    check(order, things)
    say(remainder_sentence(order, things))
    return order


def shared(generator: Iterator[Any]) -> Iterator[Any]:
    """The same generator, which is known from now on as one of a worker's items."""
    _shared.add(generator)
    return generator


def is_shared(data: Any) -> bool:
    """Whether something is a generator of a worker's items."""
    return isinstance(data, types.GeneratorType) and data in _shared


def say(sentence: Optional[str]) -> None:
    """Warns on rank 0, if there is something to say."""
    if sentence and current().rank == 0:
        warnings.warn(sentence, stacklevel=4)
