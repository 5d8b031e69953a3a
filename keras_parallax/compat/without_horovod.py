# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What stands in for `horovod.tensorflow` where Horovod is not installed: a job of one process.

It has the names of Horovod that this package uses, with Horovod's meaning for one worker.
"""

from typing import Any, List, Mapping, Optional, Sequence, Tuple

from keras_parallax.compat.supported_versions import SUPPORTED
from keras_parallax.errors import StackError
from keras_parallax.framework_types import Tensor

#: What `allreduce` takes as `op`.
Average, Sum = 'average', 'sum'

_is_started = False

#: Where launchers and Slurm say how many processes a job has. The first two are `horovodrun`'s and
#: Open MPI's.
_SIZES = ('HOROVOD_SIZE', 'OMPI_COMM_WORLD_SIZE', 'SLURM_STEP_NUM_TASKS')


def check_alone(environ: Mapping[str, str]) -> None:
    """Refuses a process that a launcher has started as one of several.

    Args:
        environ: the environment, a mapping.

    Raises:
        StackError: there are several, which would each train alone.
    """
    for name in _SIZES:
        size = environ.get(name, '')
        if size.isdigit() and int(size) > 1:
            raise StackError(
                'keras-parallax needs Horovod to train with several processes, but Horovod is not '
                'installed on this host, and %s says that the job has %s processes. Get Horovod '
                'with: %s' % (name, size, SUPPORTED['Horovod'][1])
            )


class _NoCompression:
    """Numbers travel as they are."""

    @staticmethod
    def compress(tensor: Tensor) -> Tuple[Tensor, Any]:
        return tensor, None

    @staticmethod
    def decompress(tensor: Tensor, context: Any) -> Tensor:
        return tensor


class _HalfPrecision(_NoCompression):
    """Numbers would travel in half precision; one process sends none."""


class Compression:
    """As Horovod's: the forms in which gradients travel."""

    none = _NoCompression
    fp16 = _HalfPrecision


def init() -> None:
    """Starts the job of one process."""
    global _is_started
    _is_started = True


def shutdown() -> None:
    """Ends it."""
    global _is_started
    _is_started = False


def rank() -> int:
    """The rank of this process, 0; a `ValueError` before `init`, as Horovod raises it."""
    if not _is_started:
        raise ValueError('The job has not been started; use hvd.init().')
    return 0


def local_rank() -> int:
    """The rank among the processes of this host, 0."""
    return rank()


def size() -> int:
    """The number of processes, 1; a `ValueError` before `init`."""
    return rank() + 1


def mpi_built() -> bool:
    """Whether there is MPI."""
    return False


def allreduce(tensor: Tensor, op: Any = None, name: Optional[str] = None) -> Tensor:
    """The sum, or the mean, over one process."""
    del op, name
    return tensor


def grouped_allreduce(
    tensors: Sequence[Tensor], op: Any = None, name: Optional[str] = None
) -> List[Tensor]:
    """The sums, or the means, over one process."""
    del op, name
    return list(tensors)


def _allreduce(tensor: Tensor, name: Optional[str] = None) -> Tensor:
    return allreduce(tensor, name=name)


def allgather(tensor: Tensor, name: Optional[str] = None) -> Tensor:
    """The rows of one process."""
    del name
    return tensor


def broadcast(tensor: Tensor, root_rank: int, name: Optional[str] = None) -> Tensor:
    """The values of the process, which is the only one."""
    del root_rank, name
    return tensor
