"""The devices of a job's tasks."""

from typing import Mapping

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


def worker_device(rank: int) -> str:
    """The device string of a worker's own task, for instance `'/job:worker/task:0'`."""
    return '/job:%s/task:%d' % (WORKER_JOB, rank)


def shard_device(rank: int) -> str:
    """The device string of the CPU of a worker's own task, where it prepares pulls and pushes."""
    return cpu_of(WORKER_JOB, rank)


def cpu_of(job: str, task: int) -> str:
    """The device string of a task's CPU, for instance `'/job:worker/task:0/device:CPU:0'`."""
    return '/job:%s/task:%d/device:CPU:0' % (job, task)
