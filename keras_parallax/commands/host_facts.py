# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Collects facts about a host. Judges nothing; `doctor_checks.py` does.

The text of this module is handed to a Python on each host, which may lack every package and be
older or newer than this one: it uses the standard library, and the rest only if it is there.

    python -c TEXT facts '{"disk": "/checkpoints", "files": ["train.py"]}'
    python -c TEXT listen 10.0.0.1
    python -c TEXT connect 10.0.0.2:40001 10.0.0.3:40002
"""

import ctypes
import functools
import glob
import hashlib
import importlib
import importlib.util
import json
import os
import platform
import shutil
import socket
import subprocess
import sys
import time
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence

#: What the compiled parts of tensorflow-gpu 1.11 load.
_GPU_LIBRARIES = ('libcuda.so.1', 'libcudart.so.9.0', 'libcublas.so.9.0', 'libcudnn.so.7')

_CONNECT_SECONDS = 5


def collect(disk: str, files: Sequence[str]) -> Dict[str, Any]:
    """The facts, a JSON-able dict; what could not be found out is a string in `problems`.

    Folder `disk`, for checkpoints, need not exist; of the user's `files` the content matters.
    """
    facts: Dict[str, Any] = {
        'began': time.time(),
        'host': socket.gethostname(),
        'python': platform.python_version(),
        'executable': sys.executable,
        'folder': os.getcwd(),
        'files': {name: _digest([name]) if os.path.isfile(name) else None for name in files},
        'disk': _disk(disk),
        'ports': _read('/proc/sys/net/ipv4/ip_local_port_range').split(),
        'filtered': _is_filtered(),
        'cards': len(glob.glob('/dev/nvidia[0-9]*')),
        'code': _code('keras_parallax'),
        'mpirun': _mpirun(),
        'problems': {},
    }
    _try(facts, 'name_address', _name_address)
    _try(facts, 'interfaces', _interfaces)
    _try(facts, 'distributions', _distributions)
    for name in ('tensorflow', 'keras', 'horovod', 'h5py', 'numpy'):
        _try(facts, name, functools.partial(_version, name))
    if importlib.util.find_spec('tf_keras'):
        # That is Keras 2 there; the package `keras` beside it is Keras 3.
        facts['keras_3'] = facts['keras']
        _try(facts, 'keras', lambda: importlib.import_module('tf_keras').__version__)
    elif facts['keras'] is None and _has_keras_of_its_own():
        _try(facts, 'keras', lambda: importlib.import_module('tensorflow').keras.__version__)
        del facts['problems']['keras']
    _try(facts, 'cuda', _cuda)
    _try(facts, 'horovod_built', _horovod_built)
    _try(facts, 'closing', _closing)
    facts['ended'] = time.time()
    return facts


def _try(facts: Dict[str, Any], name: str, find: Callable[[], Any]) -> None:
    try:
        facts[name] = find()
    except Exception as error:
        # Whatever an import may raise is itself a finding.
        facts[name] = None
        facts['problems'][name] = '%s: %s' % (type(error).__name__, error)


def _version(package: str) -> str:
    return importlib.import_module(package).__version__


def _has_keras_of_its_own() -> bool:
    """Whether TensorFlow's own Keras is the one that is served, as in 1.15."""
    try:
        keras = getattr(importlib.import_module('tensorflow'), 'keras', None)
    except Exception:  # What is wrong with TensorFlow is a finding already.
        return False
    return hasattr(getattr(keras, 'optimizers', None), 'schedules')


def _interfaces() -> Dict[str, List[str]]:
    import psutil

    families = (socket.AF_INET, socket.AF_INET6)
    return {
        name: [entry.address.partition('%')[0] for entry in entries if entry.family in families]
        for name, entries in psutil.net_if_addrs().items()
    }


def _distributions() -> Dict[str, str]:
    try:
        from importlib.metadata import distributions
    except ImportError:  # Python 3.7 and older
        import pkg_resources

        return {dist.project_name.lower(): dist.version for dist in pkg_resources.working_set}
    return {dist.metadata['Name'].lower(): dist.version for dist in distributions()}


def _cuda() -> Dict[str, Any]:
    import tensorflow as tf

    if not tf.test.is_built_with_cuda():
        return {'built': False, 'missing': []}
    if tf.__version__.startswith('1.'):
        return {'built': True, 'missing': [name for name in _GPU_LIBRARIES if not _loads(name)]}
    # It finds libraries in packages of pip, too, and goes on without them.
    is_used = bool(tf.config.list_physical_devices('GPU'))
    return {'built': True, 'missing': [] if is_used else ['those of CUDA or cuDNN']}


def _loads(library: str) -> bool:
    try:
        ctypes.CDLL(library)
        return True
    except OSError:
        return False


def _name_address() -> Any:
    """The address of this host's name; an error if it has none."""
    return socket.getaddrinfo(socket.gethostname(), None, type=socket.SOCK_STREAM)[0][4][0]


def _horovod_built() -> Dict[str, bool]:
    import horovod.tensorflow as hvd

    built = {name: bool(getattr(hvd, name + '_built')()) for name in ('gloo', 'mpi', 'nccl')}
    # See `keras_parallax.compat.horovod_api.connects_by_host_name`.
    return dict(built, by_name=not built['mpi'] and hasattr(hvd, 'ProcessSet'))


def _closing() -> Dict[str, Optional[str]]:
    """Why the servers of a job could not be closed to strangers, for one host and for several."""
    module = importlib.import_module('keras_parallax.engine.job.private_sockets')
    return {
        'one host': module.kernel_problem(one_host=True),
        'several hosts': module.kernel_problem(one_host=False),
    }


def _mpirun() -> Optional[str]:
    """What `mpirun` says that it is, or `None` if there is none."""
    if shutil.which('mpirun') is None:
        return None
    said = subprocess.run(
        ['mpirun', '--version'], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ).stdout.decode('utf-8', 'replace')
    return (said.splitlines() or [''])[0].strip()


def _code(package: str) -> Optional[str]:
    """Digest of a package's sources, or `None`; the package is not imported."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.origin:
        return None
    folder = os.path.dirname(spec.origin)
    return _digest(sorted(glob.glob(os.path.join(folder, '**', '*.py'), recursive=True)), folder)


def _digest(paths: Iterable[str], folder: str = '.') -> str:
    digest = hashlib.sha256()
    for path in paths:
        with open(path, 'rb') as file:
            digest.update(os.path.relpath(path, folder).encode() + b'\0' + file.read() + b'\0')
    return digest.hexdigest()


def _disk(folder: str) -> Dict[str, Any]:
    """Free bytes where a folder is or would be, and whether this user can write there."""
    path = os.path.abspath(folder)
    while not os.path.exists(path):
        path = os.path.dirname(path)
    writable = os.path.isdir(path) and os.access(path, os.W_OK | os.X_OK)
    return {'folder': os.path.abspath(folder), 'free': shutil.disk_usage(path).free,
            'writable': writable}  # fmt: skip


def _is_filtered() -> Optional[bool]:
    """Whether the packet filter of docs/servers.md is loaded; `None` if only root could tell."""
    program = shutil.which('nft', path=os.environ.get('PATH', '') + ':/usr/sbin:/sbin')
    if program is None or os.geteuid() != 0:
        return None
    command = [program, 'list', 'chain', 'inet', 'parallax', 'input']
    listing = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return listing.returncode == 0 and all(
        word in listing.stdout for word in (b'@job_hosts', b'reject')
    )


def _read(path: str) -> str:
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return ''


def listen(address: str) -> None:
    """Listens on a port that the system picks, prints it, and stays until stdin is closed."""
    with socket.socket() as server:
        server.bind((address, 0))
        server.listen(128)
        print(json.dumps(server.getsockname()[1]), flush=True)
        sys.stdin.read()


def connect(places: Iterable[str]) -> Dict[str, Optional[str]]:
    """What went wrong with connecting to each `'address:port'`, `None` where nothing did."""
    outcome: Dict[str, Optional[str]] = {}
    for place in places:
        address, _, port = place.rpartition(':')
        try:
            socket.create_connection((address, int(port)), _CONNECT_SECONDS).close()
            outcome[place] = None
        except OSError as error:
            outcome[place] = str(error)
    return outcome


def main(mode: str, *arguments: str) -> None:
    """Runs one of the modes that the module's text names."""
    if mode == 'listen':
        listen(*arguments)
        return
    # Imports may print, and the answer is to be the last line.
    answer = connect(arguments) if mode == 'connect' else collect(**json.loads(arguments[0]))
    print('\n' + json.dumps(answer), flush=True)


if __name__ == '__main__':
    main(*sys.argv[1:])
