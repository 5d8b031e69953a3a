# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What a checkpoint of a Keras 3 model keeps of its job, within the file of Keras."""

import json
import os
import zipfile
from typing import Any, Dict, Mapping

import h5py

from keras_parallax.checkpoint.manifest import is_sharded, read_manifest

#: The ending of the path of a file without a configuration of the model.
WEIGHTS = '.weights.h5'

#: The member of a `.keras` file, and the attribute of a `.weights.h5` file.
_MEMBER, _ATTRIBUTE = 'keras_parallax.json', 'keras_parallax_job'


def write_state(path: str, state: Mapping[str, Any]) -> None:
    """Adds plain data to a file that Keras 3 has written; Keras does not look at it.

    Args:
        path: path of a `.keras` or a `.weights.h5` file.
        state: what `json.dumps` takes, less than 64 KiB of it.
    """
    text = json.dumps(state)
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path, 'a') as archive:
            archive.writestr(_MEMBER, text)
        return
    with h5py.File(path, 'a') as file:
        file.attrs[_ATTRIBUTE] = text


def read_state(path: str) -> Dict[str, Any]:
    """What `write_state` has added to a file; `{}` where there is nothing of it.

    Args:
        path: path of the file, or of a folder of several parts, of which one is the file.
    """
    found: Dict[str, Any] = {}
    try:
        if is_sharded(path):
            path = os.path.join(path, read_manifest(path, checked=False).model)
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                if _MEMBER in archive.namelist():
                    found = json.loads(archive.read(_MEMBER).decode('utf-8'))
        else:
            with h5py.File(path, 'r') as file:
                found = json.loads(file.attrs.get(_ATTRIBUTE, '{}'))
    except (OSError, zipfile.BadZipFile):
        return {}  # It is cut short, as a copy may be, or no checkpoint of Keras 3.
    return found
