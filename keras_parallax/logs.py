# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
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
    """Has TensorFlow leave its start-up notes out, in a process that a launcher has started.

    They stay if the environment says what TensorFlow prints, and on rank 0 if the level that it
    asks for is `INFO` or lower. TensorFlow looks at the environment when it is imported, or when it
    prints for the first time; 1.11 does so with the first session.

    Args:
        environ: the environment of this process, which is changed.
    """
    ranks = [environ[name] for name in _RANK_VARIABLES if name in environ]
    is_asked = LEVEL_VARIABLE in environ and level_of(environ) <= logging.INFO
    if ranks and 'TF_CPP_MIN_LOG_LEVEL' not in environ and not (is_asked and ranks[0] == '0'):
        environ['TF_CPP_MIN_LOG_LEVEL'] = '2'
        logging.getLogger('tensorflow').addFilter(_is_no_deprecation)


def _is_no_deprecation(record: logging.LogRecord) -> bool:
    """Whether a record of TensorFlow's logger is not about a name that a later one has not."""
    return not str(record.msg).startswith('From %s: ')


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
