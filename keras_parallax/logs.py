"""What the package tells while a job runs: a logger of Python's, and fewer notes of TensorFlow's.

`KERAS_PARALLAX_LOG_LEVEL` is a level of `logging`: `DEBUG`, `INFO` (the default), `WARNING`, ...
"""

import logging
import os
import warnings
from typing import Mapping, MutableMapping

LEVEL_VARIABLE = 'KERAS_PARALLAX_LOG_LEVEL'
#: What `horovodrun`, `mpirun`, Slurm and Kubernetes call the rank.
_RANK_VARIABLES = (
    'HOROVOD_RANK',
    'OMPI_COMM_WORLD_RANK',
    'PMI_RANK',
    'SLURM_PROCID',
    'JOB_COMPLETION_INDEX',
)

logger = logging.getLogger('keras_parallax')


def level_of(environ: Mapping[str, str]) -> int:
    """The level that an environment asks for, a number; with a warning if it is none.

    Args:
        environ: a mapping.
    """
    name = environ.get(LEVEL_VARIABLE, 'INFO').strip().upper()
    level = logging.getLevelName(name)
    if isinstance(level, int):
        return level
    warnings.warn(
        '%s is %r: expected DEBUG, INFO, WARNING, ERROR or CRITICAL; it is taken for INFO.'
        % (LEVEL_VARIABLE, environ[LEVEL_VARIABLE]),
        stacklevel=2,
    )
    return logging.INFO


def quiet(environ: MutableMapping[str, str]) -> None:
    """Has TensorFlow print its notes on rank 0 alone, unless the environment says what it prints.

    It looks at the environment when it prints for the first time; 1.11 does so with the first
    session.

    Args:
        environ: the environment of this process, which is changed.
    """
    ranks = [environ[name] for name in _RANK_VARIABLES if name in environ]
    if ranks and ranks[0] != '0':
        environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '1')


class _OnScreen(logging.StreamHandler):
    """Prints what no handler of the script's would."""

    def emit(self, record: logging.LogRecord) -> None:
        if not logging.getLogger().handlers:
            super().emit(record)


def start(environ: MutableMapping[str, str] = os.environ) -> None:
    """Sets the logger up, once in a process."""
    quiet(environ)
    logger.setLevel(level_of(environ))
    handler = _OnScreen()
    handler.setFormatter(logging.Formatter('keras-parallax: %(message)s'))
    logger.addHandler(handler)
