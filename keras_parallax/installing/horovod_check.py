# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Whether the Horovod of an environment is the wanted one and works.

The checks are programs that a Python of their own runs: a Horovod that was built for another
TensorFlow may end the process that loads it.
"""

import os
import subprocess
import sys
from typing import List, Mapping, Optional

_LOADS = """
import horovod, horovod.tensorflow as hvd
assert 'horovod==' + horovod.__version__ == %r, 'Horovod is of version ' + horovod.__version__
for part in %r:
    assert getattr(hvd, part + '_built')(), 'Horovod was built without ' + part
"""

_TWO_RANKS = """
import os
import horovod.tensorflow as hvd, tensorflow
tf = getattr(tensorflow, 'compat', tensorflow)
tf = getattr(tf, 'v1', tensorflow)
hvd.init()
with tf.Graph().as_default(), tf.Session() as session:
    total = session.run(hvd.allreduce(tf.constant([1.0 + hvd.rank()]), op=hvd.Sum))
assert (hvd.size(), list(total)) == (2, [3.0]), (hvd.size(), list(total))
"""

#: Variables by which a user asks Horovod's build for NCCL.
_GPU = ('HOROVOD_GPU_OPERATIONS', 'HOROVOD_GPU_ALLREDUCE')


def wanted_parts(environ: Mapping[str, str]) -> List[str]:
    """What Horovod must have been built with: a list of names, as in `hvd.gloo_built`.

    Args:
        environ: the environment, a mapping.

    Example:
        ```python
        >>> wanted_parts({'HOROVOD_GPU_OPERATIONS': 'NCCL'})
        ['gloo', 'nccl']
        ```
    """
    parts = ['gloo']
    if environ.get('HOROVOD_WITH_MPI'):
        parts.append('mpi')
    if any(environ.get(name) == 'NCCL' for name in _GPU):
        parts.append('nccl')
    return parts


def load_problem(requirement: str, environ: Mapping[str, str]) -> Optional[str]:
    """Why the wanted Horovod cannot be loaded, or `None` if it can.

    Args:
        requirement: for instance `'horovod==0.28.1'`.
        environ: the environment, a mapping, as `wanted_parts` takes it.
    """
    program = _LOADS % (requirement, wanted_parts(environ))
    return _problem([sys.executable, '-c', program], environ)


def two_ranks_problem(environ: Mapping[str, str]) -> Optional[str]:
    """Why Horovod cannot sum numbers of two processes of this machine, or `None` if it can.

    Args:
        environ: the environment, a mapping.
    """
    launcher = os.path.join(os.path.dirname(sys.executable), 'horovodrun')
    command = [sys.executable, launcher, '--gloo', '--start-timeout', '300', '-np', '2']
    return _problem(command + ['-H', 'localhost:2', sys.executable, '-c', _TWO_RANKS], environ)


def _problem(command: List[str], environ: Mapping[str, str]) -> Optional[str]:
    process = subprocess.run(
        command,
        env=dict(environ, TF_CPP_MIN_LOG_LEVEL='2'),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    if process.returncode == 0:
        return None
    said = process.stdout.decode('utf-8', 'replace').strip().splitlines()
    return '\n'.join(said[-20:]) or 'exit code %d' % process.returncode
