# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The devices of a job's tasks."""

from typing import Any, Mapping, Optional

from keras_parallax.errors import PlanError

WORKER_JOB = 'worker'
#: Environment variable with the card of each worker, in order of ranks: `2,3,0,1`. The option
#: `--resources` of `keras-parallax run` sets it.
GPUS_VARIABLE = 'KERAS_PARALLAX_GPUS'


def card_of(rank: int, size: int, local_rank: int, environ: Mapping[str, str]) -> int:
    """The number of a worker's card on its host: that of its local rank, if nothing else is said.

    Args:
        rank: the rank.
        size: the number of workers.
        local_rank: the rank's number on its host.
        environ: a mapping that may have `GPUS_VARIABLE`.

    Raises:
        PlanError: the variable does not name a card for each worker.
    """
    text = environ.get(GPUS_VARIABLE, '')
    if not text:
        return local_rank
    cards = text.split(',')
    if len(cards) != size or not all(card.strip().isdigit() for card in cards):
        raise PlanError(
            'On rank %d, %s is %r: expected the numbers of %d cards with commas between, one for '
            'each worker.' % (rank, GPUS_VARIABLE, text, size)
        )
    return int(cards[rank])


def card_problem(config: Any, cards: Optional[int], rank: int, host: str) -> Optional[str]:
    """A sentence if a worker is to use a card that its host does not have.

    Args:
        config: the `tf.ConfigProto` of the worker's sessions.
        cards: how many cards TensorFlow sees on the host; `None` if that is not known.
        rank: the worker's rank.
        host: the name of its host.
    """
    named = config.gpu_options.visible_device_list
    wanted = [int(card) for card in named.split(',') if card.strip().isdigit()]
    if not cards or all(card < cards for card in wanted):
        return None
    return no_card(named, rank, host) % ('TensorFlow sees %d there, numbered from 0' % cards)


#: What TensorFlow says first where it is given a card that is not there.
_LISTED = "'visible_device_list' listed an invalid"


def card_error(config: Any, error: Any, rank: int, host: str) -> Optional[str]:
    """A sentence if an error of TensorFlow says that a card is not there; else `None`.

    TensorFlow 1 says so when a server or a session is made, and not before.

    Args:
        config: the `tf.ConfigProto` that it was made with.
        error: the `OpError`.
        rank: the worker's rank.
        host: the name of its host.
    """
    message = error.message or ''
    if _LISTED not in message:
        return None
    named = config.gpu_options.visible_device_list
    return no_card(named, rank, host) % ('TensorFlow says: ' + message)


def no_card(named: str, rank: int, host: str) -> str:
    """The sentence about a card that is not there, with a place for what TensorFlow says."""
    return (
        'Rank %d must use graphics card %s of host %s, but %%s. Start at most one worker for each '
        'card, or have workers share cards: start the job with `keras-parallax run --resources '
        'FILE`, where the line `%s: 0, 0` gives card 0 to two workers.' % (rank, named, host, host)
    )


def worker_device(rank: int) -> str:
    """The device string of a worker's own task, for instance `'/job:worker/task:0'`."""
    return '/job:%s/task:%d' % (WORKER_JOB, rank)


def shard_device(rank: int) -> str:
    """The device string of the CPU of a worker's own task, where it prepares pulls and pushes."""
    return cpu_of(WORKER_JOB, rank)


def cpu_of(job: str, task: int) -> str:
    """The device string of a task's CPU, for instance `'/job:worker/task:0/device:CPU:0'`."""
    return '/job:%s/task:%d/device:CPU:0' % (job, task)
