# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""`shard`: this worker's part of data of any kind that Keras takes."""

import itertools
import os
from typing import Any, Iterator

from keras_parallax.compat import datasets, keras_api
from keras_parallax.data import conversion, sequences, structures, worker
from keras_parallax.errors import DataError


def shard(
    data: Any, shuffle: bool = True, seed: int = 0, drop_remainder: bool = True, epoch: int = 0
) -> Any:
    """This worker's part of data: one of each N in a row, for N workers.

    Call it on every worker with the same data, in the same order: sort what `glob` has found. All
    workers get equally many, so that all have as many batches.

    | data | what comes back |
    |---|---|
    | array, or tuple, list or dict of arrays | the rows of this worker in an epoch, in arrays |
    | list or tuple of paths | the files of this worker in an epoch, a list; it reads none |
    | `keras.utils.Sequence` | a `Sequence` of this worker's batches, other ones in each epoch |
    | generator or other iterator | a generator of every N-th item; every worker runs it whole |
    | `tf.data.Dataset` | a `Dataset` of every N-th element; every worker runs it whole |

    Args:
        data: one of these. What `kp.data.arrays` takes instead of an array may be in place of an
            array, but a list of strings is one of paths.
        shuffle: whether arrays, files and the batches of a `Sequence` have another order in each
            epoch; `False` for a `Sequence` that validates. Generators and `Dataset`s come in their
            own; `dataset.shuffle(size, seed=1)` shuffles alike on all workers.
        seed: what shuffles them, a whole number; the same on every worker.
        drop_remainder: where there are not as many for each worker, whether the rest is left out.
            Otherwise some come again. A warning on rank 0 says how many, but not of a `Dataset`,
            which does not know.
        epoch: the epoch of arrays and files, from 0. To a `Sequence`, `fit` tells which it is.

    Returns:
        What the table says.

    Raises:
        DataError: the data is of another kind, or there is nothing for some worker.
        ScopeError: there is no `ParallaxStrategy` yet.

    Example:
        ```python
        >>> import keras_parallax as kp
        >>> strategy = kp.ParallaxStrategy()
        >>> kp.data.shard(['2018.txt', '2019.txt', '2020.txt'], seed=1, epoch=0)
        ['2020.txt', '2018.txt', '2019.txt']
        ```
    """
    job = worker.current()
    if datasets.is_dataset(data):
        return datasets.every_nth(data, job.size, job.rank, drop_remainder)
    if keras_api.is_sequence(data):
        order = worker.order_of(len(data), 'batches', shuffle, seed, drop_remainder)
        return sequences.shard_of(data, order, job.rank, epoch)
    if hasattr(data, '__next__'):
        return worker.shared(_every_nth(data, job.size, job.rank, drop_remainder))
    if _are_files(data):
        order = worker.order_of(len(data), 'files', shuffle, seed, drop_remainder)
        return [data[number] for number in order.of_rank(job.rank, epoch)]
    if not (isinstance(data, (list, tuple, dict)) or _is_array(data)):
        raise DataError(
            'kp.data.shard takes arrays, a list of paths, a generator, a keras.utils.Sequence or a '
            'tf.data.Dataset, not a %s.' % type(data).__name__
        )
    data = structures.as_arrays(data)
    count = structures.count_of(data)
    rows = worker.order_of(count, 'samples', shuffle, seed, drop_remainder).of_rank(job.rank, epoch)
    return structures.mapped(lambda array: array[rows], data)


def _is_array(data: Any) -> bool:
    return hasattr(data, '__array__') or conversion.is_sparse(data)


def _are_files(data: Any) -> bool:
    return isinstance(data, (list, tuple)) and all(
        isinstance(value, (str, os.PathLike)) for value in data
    )


def _every_nth(
    iterator: Iterator[Any], ranks: int, rank: int, drop_remainder: bool
) -> Iterator[Any]:
    """Of each `ranks` items of an iterator, the one of a worker, as soon as all are there."""
    for group in itertools.count():
        items = list(itertools.islice(iterator, ranks))
        if len(items) == ranks:
            yield items[rank]
            continue
        if group == 0 and (drop_remainder or not items):
            raise DataError(
                'The generator has ended after %d items, and there are %d workers: the share of '
                'some is empty.' % (len(items), ranks)
            )
        if items:
            done = 'left out' if drop_remainder else 'repeated'
            worker.say(
                'The last of the %d items of the generator, too few for %d workers, are %s.'
                % (group * ranks + len(items), ranks, done)
            )
            if not drop_remainder:
                yield items[rank % len(items)]
        return
