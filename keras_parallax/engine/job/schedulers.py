# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Workers that Slurm's `srun` or an indexed Job of Kubernetes starts, without a launcher.

Both number their processes, and leave it to them to find each other. Horovod's workers do so at a
store of keys and values that `horovodrun` keeps otherwise; here rank 0 keeps it.
"""

import re
from typing import Dict, List, Mapping, Match, Optional, Union

from keras_parallax.errors import StackError

#: Where the workers meet if nobody says: a port for each job and step, below those that Linux gives
#: to outgoing connections.
_FIRST_PORT, _PORTS = 15000, 15000

_ADDRESS, _PORT = 'HOROVOD_GLOO_RENDEZVOUS_ADDR', 'HOROVOD_GLOO_RENDEZVOUS_PORT'

#: What a launcher sets, which then says all there is to say.
_OF_LAUNCHERS = ('HOROVOD_RANK', 'OMPI_COMM_WORLD_RANK', 'PMIX_RANK')


def variables(environ: Mapping[str, str]) -> Dict[str, str]:
    """What `horovodrun` would have set for a process that a scheduler has started.

    Args:
        environ: the process's environment, a mapping.

    Returns:
        A dict of variables, empty if no scheduler has, or only this one process.

    Raises:
        StackError: a variable of a scheduler's has another form than expected.

    Example:
        ```python
        >>> found = variables({
        ...     'SLURM_PROCID': '3', 'SLURM_LOCALID': '1', 'SLURM_NODEID': '1',
        ...     'SLURM_STEP_NUM_TASKS': '4', 'SLURM_STEP_TASKS_PER_NODE': '2(x2)',
        ...     'SLURM_STEP_NODELIST': 'node[07-08]', 'SLURM_JOB_ID': '9', 'SLURM_STEP_ID': '0',
        ... })
        >>> [found['HOROVOD_' + name] for name in ('RANK', 'SIZE', 'GLOO_RENDEZVOUS_ADDR')]
        ['3', '4', 'node07']
        ```
    """
    if any(name in environ for name in _OF_LAUNCHERS):
        return {}
    try:
        if 'SLURM_STEP_NUM_TASKS' in environ:
            return _of_slurm(environ)
        if 'JOB_COMPLETION_INDEX' in environ:
            return _of_kubernetes(environ)
    except (AttributeError, IndexError, KeyError, ValueError) as error:
        raise StackError(
            'The variables of the scheduler that has started this process are not as expected '
            '(%r); start the job with horovodrun or mpirun.' % error
        ) from error
    return {}


def _of_slurm(environ: Mapping[str, str]) -> Dict[str, str]:
    size = int(environ['SLURM_STEP_NUM_TASKS'])
    if size == 1:
        return {}
    tasks = tasks_per_node(environ['SLURM_STEP_TASKS_PER_NODE'])
    node, local_rank = int(environ['SLURM_NODEID']), int(environ['SLURM_LOCALID'])
    # The nodes that have a task of this local rank.
    peers = [number for number, count in enumerate(tasks) if count > local_rank]
    step = int(environ['SLURM_JOB_ID']) * 31 + int(environ['SLURM_STEP_ID'])
    return _all(
        rank=int(environ['SLURM_PROCID']),
        size=size,
        local_rank=local_rank,
        local_size=tasks[node],
        cross_rank=peers.index(node),
        cross_size=len(peers),
        address=environ.get(_ADDRESS) or _meeting_point(tasks, environ['SLURM_STEP_NODELIST']),
        port=environ.get(_PORT) or _FIRST_PORT + step % _PORTS,
    )


def _of_kubernetes(environ: Mapping[str, str]) -> Dict[str, str]:
    # An indexed Job says nothing about the others; its manifest does, by Horovod's variables.
    if not all(environ.get(name) for name in ('HOROVOD_SIZE', _ADDRESS, _PORT)):
        return {}
    rank, size = int(environ['JOB_COMPLETION_INDEX']), int(environ['HOROVOD_SIZE'])
    return _all(rank, size, 0, 1, rank, size, environ[_ADDRESS], environ[_PORT])


def _all(
    rank: int,
    size: int,
    local_rank: int,
    local_size: int,
    cross_rank: int,
    cross_size: int,
    address: str,
    port: Union[int, str],
) -> Dict[str, str]:
    numbers = {
        'RANK': rank,
        'SIZE': size,
        'LOCAL_RANK': local_rank,
        'LOCAL_SIZE': local_size,
        'CROSS_RANK': cross_rank,
        'CROSS_SIZE': cross_size,
        'GLOO_RENDEZVOUS_ADDR': address,
        'GLOO_RENDEZVOUS_PORT': int(port),
        'CONTROLLER': 'gloo',
        'CPU_OPERATIONS': 'gloo',
    }
    return {'HOROVOD_' + name: str(value) for name, value in numbers.items()}


def _meeting_point(tasks: List[int], nodes: str) -> str:
    # Other hosts are to have no access to a job of one node (`job_privacy`).
    return first_node(nodes) if len(tasks) > 1 else '127.0.0.1'


def tasks_per_node(text: str) -> List[int]:
    """The number of tasks on each node, of `SLURM_STEP_TASKS_PER_NODE`.

    Example:
        ```python
        >>> tasks_per_node('2(x3),1')
        [2, 2, 2, 1]
        ```
    """
    counts = []
    for part in text.split(','):
        count, times = _matched(re.fullmatch(r'(\d+)(?:\(x(\d+)\))?', part), text).groups()
        counts += [int(count)] * int(times or 1)
    return counts


def first_node(text: str) -> str:
    """The first name of a list of nodes as Slurm writes it.

    Example:
        ```python
        >>> [first_node(text) for text in ('a1,b2', 'node[03-05,9],a', 'rack[1-2]n[4-5]')]
        ['a1', 'node03', 'rack1n4']
        ```
    """
    # A comma in brackets is no end of a name.
    first = _matched(re.match(r'(?:[^,\[]|\[[^\]]*\])+', text), text).group()
    return re.sub(r'\[(\w+)[^\]]*\]', r'\1', first)


def _matched(match: Optional[Match[str]], text: str) -> Match[str]:
    if match is None:
        raise ValueError(text)
    return match
