# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Where in an epoch's data training is: at which batch it goes on from a checkpoint.

The data that is given to `fit` begins with the first batch of the epoch, whatever the checkpoint.
"""

from typing import Any, Dict, Iterator, Tuple

from keras_parallax.compat import datasets, keras_api
from keras_parallax.data import structures, worker
from keras_parallax.data.sample_order import Order
from keras_parallax.data.sequences import SequenceShard
from keras_parallax.data.share import Share
from keras_parallax.engine.job import job as job_module
from keras_parallax.errors import DataError

#: What Keras takes where no `batch_size` is given.
BATCH_SIZE = 32

#: Kinds of data, in words for the user.
_SHARES, _SHARED_SEQUENCE = 'arrays of kp.data.arrays', 'a Sequence of kp.data.shard'
_SHARED_GENERATOR = 'a generator of kp.data.shard'
_ARRAYS, _SEQUENCE, _GENERATOR = 'arrays', 'a Sequence', 'a generator'
_DATASET, _TENSORS = 'a tf.data.Dataset', 'tensors'

#: What is to be equal where the order is not one of `kp.data`, in words.
_WORDS = {
    'samples': 'samples on each worker',
    'batch_size': 'samples in a batch',
    'steps': 'batches in an epoch',
    'ranks': 'workers',
}


def described(named: Dict[str, Any]) -> Dict[str, Any]:
    """What is trained on, plain data.

    Args:
        named: the arguments of `fit` or `fit_generator`, by name.

    Returns:
        A dict: `kind` in words, `ranks`, and what decides which samples are in a batch.
    """
    job = job_module.current()
    ranks = 1 if job is None else job.size
    given: Any = named.get('generator', named.get('x'))
    steps = named.get('steps_per_epoch')
    batch_size = named.get('batch_size') or BATCH_SIZE
    if isinstance(given, SequenceShard):
        return _of_order(_SHARED_SEQUENCE, given.order, 1)
    if keras_api.is_sequence(given):
        # A thread shuffles it ahead of training.
        shuffled = bool(named.get('shuffle', True) and named.get('workers', 1))
        steps = steps or len(given)
        return {'kind': _SEQUENCE, 'ranks': ranks, 'steps': steps, 'unknown_order': shuffled}
    if worker.is_shared(given):
        return {'kind': _SHARED_GENERATOR, 'ranks': ranks}
    if hasattr(given, '__next__'):
        return {'kind': _GENERATOR, 'ranks': ranks, 'steps': steps}
    if datasets.is_dataset(given):
        return {'kind': _DATASET, 'ranks': ranks, 'steps': steps}
    arrays = structures.leaves(given)
    if not arrays or steps or not all(map(_is_array, arrays)):
        return {'kind': _TENSORS, 'ranks': ranks, 'unknown_order': True}
    if isinstance(arrays[0], Share) and arrays[0].order is not None:
        return _of_order(_SHARES, arrays[0].order, batch_size)
    return {
        'kind': _ARRAYS,
        'ranks': ranks,
        'samples': _count_of(arrays[0]),
        'batch_size': batch_size,
        'shuffles': bool(named.get('shuffle', True)),
    }


def _count_of(array: Any) -> int:
    # A sparse matrix has no `len`.
    return array.shape[0] if hasattr(array, 'shape') else len(array)


def _is_array(given: Any) -> bool:
    return hasattr(given, '__len__') and not datasets.is_tensor(given)


def _of_order(kind: str, order: Order, batch_size: int) -> Dict[str, Any]:
    return {'kind': kind, 'batch_size': batch_size, **order._asdict()}


def check_known(data: Dict[str, Any]) -> None:
    """Refuses data of which it will not be known which batches are over.

    Args:
        data: what `described` says of it.

    Raises:
        DataError: it is such data.
    """
    if data.get('unknown_order'):
        raise DataError(
            'Training cannot go on within an epoch of %s, so do not save within one: %s. Take '
            'kp.data, which can, or save after epochs.'
            % (
                data['kind'],
                'Keras shuffles its batches ahead of training, with fit(shuffle=True)'
                if data['kind'] == _SEQUENCE
                else 'it is not known what they have given',
            )
        )


def passed(saved: Any, data: Dict[str, Any]) -> int:
    """How many batches of its first epoch `fit` passes over; a warning says if some come again.

    Args:
        saved: the `SavedFit` from which it goes on.
        data: what `described` says of the data.

    Raises:
        DataError: as of `batches_over`.
    """
    if not saved.batch:
        return 0
    ranks, job = saved.job['ranks'], job_module.current()
    rank = job.rank if job and len(ranks) > job.rank else 0
    over, again = batches_over(saved.batch, ranks[rank]['data'], data, saved.ranks)
    if again:
        things = 'samples' if data['kind'] == _SHARES else 'batches'
        worker.say(
            'The batches are not those of the checkpoint, which was saved within one of them: %d '
            '%s are trained again in this epoch.' % (again, things)
        )
    return over


def passing_over(named: Dict[str, Any], batches: int) -> None:
    """Has what a step reads by itself begin with the batch to go on with.

    Args:
        named: the arguments of `fit` or `fit_generator`, by name, which are changed.
        batches: how many batches `fit` passes over.
    """
    name = 'generator' if 'generator' in named else 'x'
    given: Any = named.get(name)
    if not batches:
        return
    if isinstance(given, SequenceShard):
        given.pass_over(batches)
    elif datasets.is_dataset(given):
        named[name] = given.skip(batches)
    elif hasattr(given, '__next__'):
        named[name] = _with_as_many(given, batches)


def _with_as_many(generator: Iterator[Any], batches: int) -> Iterator[Any]:
    """The same generator, which says so if it ends before a number of batches is over."""
    count = 0
    for batch in generator:
        count += 1
        yield batch
    if count < batches:
        raise DataError(
            'The generator has ended after %d batches, but %d batches of the epoch were over when '
            'the checkpoint was saved. Give fit a generator that begins with the first batch of '
            'the epoch.' % (count, batches)
        )


def batches_over(
    batch: int, saved: Dict[str, Any], now: Dict[str, Any], orders: int = 0
) -> Tuple[int, int]:
    """How many batches of an epoch are over on each worker.

    Args:
        batch: how many were when the checkpoint was saved.
        saved: what `described` said of the data then.
        now: what it says now.
        orders: how many workers find the order of their samples in the checkpoint.

    Returns:
        The number, and that of the samples (batches, of a `Sequence`) that are trained again, since
        batches have other sizes now.

    Raises:
        DataError: it is other data, or the samples would have another order.
    """
    check_known(now)
    if saved['kind'] != now['kind']:
        raise _changed(saved['kind'], now['kind'])
    if now['kind'] == _SHARED_GENERATOR:
        return divmod(batch * saved['ranks'], now['ranks'])
    if 'count' in now:
        return _batches_of_order(batch, saved, now)
    for name, words in _WORDS.items():
        if saved.get(name) != now.get(name):
            raise _changed('%s %s' % (saved.get(name), words), '%s' % now.get(name))
    if now.get('shuffles') and orders < now['ranks']:
        raise DataError(
            'The checkpoint was saved within an epoch, and has the order in which fit had shuffled '
            'the samples of rank 0, but not of all %d workers. Train on kp.data.arrays, whose '
            'order all workers know, or save with sharded=True.' % now['ranks']
        )
    return batch, 0


def _batches_of_order(batch: int, saved: Dict[str, Any], now: Dict[str, Any]) -> Tuple[int, int]:
    for name in ('count', 'seed', 'drop_remainder'):
        if saved[name] != now[name]:
            raise _changed('%s=%r' % (name, saved[name]), repr(now[name]))
    before, after = (Order(*[data[name] for name in Order._fields]) for data in (saved, now))
    over, in_batch = batch * saved['batch_size'] * before.ranks, now['batch_size'] * after.ranks
    if over >= before.length * before.ranks:
        return -(-after.length // now['batch_size']), 0
    return over // in_batch, over % in_batch


def _changed(before: str, now: str) -> DataError:
    return DataError(
        'The checkpoint was saved within an epoch of %s, and now it is %s: it is not known where '
        'to go on. Give fit the data that it had, or load the weights alone with '
        'model.load_weights.' % (before, now)
    )
