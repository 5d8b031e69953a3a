# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Where wheels of Horovod are kept, so that a second environment need not compile."""

import glob
import hashlib
import json
import os
import shutil
import tempfile
import zipfile
from typing import Any, Callable, Dict, List, Mapping, Optional


def folder_name(
    requirement: str,
    tensorflow: List[Any],
    abi: str,
    compilers: List[List[str]],
    variables: Dict[str, str],
    system: str,
) -> str:
    """The name of a wheel's folder: readable at the start, and a digest of everything at the end.

    Args:
        requirement: for instance `'horovod==0.28.1'`.
        tensorflow: version and flags, as `horovod_build.tensorflow_parts` gives them.
        abi: Python's, for instance `'cpython-311-x86_64-linux-gnu'`.
        compilers: what `horovod_build.compiler_parts` gives for each.
        variables: as `horovod_build.build_variables` gives them.
        system: name and version of the C library.
    """
    parts = [requirement, tensorflow, abi, compilers, variables, system]
    digest = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]
    return '-'.join([requirement.replace('==', '-'), 'tensorflow', tensorflow[0], abi, digest])


def cache_folder(environ: Mapping[str, str]) -> Optional[str]:
    """Where wheels are kept, or `None` if the user has no home folder.

    Args:
        environ: the environment, a mapping.

    Example:
        ```python
        >>> cache_folder({'HOME': '/home/me'})
        '/home/me/.cache/keras-parallax/wheels'
        ```
    """
    cache = environ.get('XDG_CACHE_HOME')
    if not cache and environ.get('HOME'):
        cache = os.path.join(environ['HOME'], '.cache')
    return os.path.join(cache, 'keras-parallax', 'wheels') if cache else None


def kept_wheel(folder: str, say: Callable[[str], None]) -> Optional[str]:
    """The path of a whole wheel in a folder, or `None`.

    Args:
        folder: the folder.
        say: function that takes a sentence for the user.
    """
    for path in glob.glob(os.path.join(folder, 'horovod-*.whl')):
        try:
            with zipfile.ZipFile(path) as wheel:
                if wheel.testzip() is None:
                    return path
        except (zipfile.BadZipFile, OSError):
            pass
        say('The wheel in %s is damaged.' % folder)
    return None


def keep(wheel: str, folder: str) -> Optional[OSError]:
    """Puts a wheel into a folder of the cache, in one step.

    Args:
        wheel: its path.
        folder: the folder.

    Returns:
        What went wrong, or `None`.
    """
    try:
        os.makedirs(folder, exist_ok=True)
        aside, path = tempfile.mkstemp(dir=folder)
        os.close(aside)
        shutil.copyfile(wheel, path)
        os.chmod(path, 0o644)
        os.replace(path, os.path.join(folder, os.path.basename(wheel)))
    except OSError as error:
        return error
    return None
