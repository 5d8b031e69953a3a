"""A mark of the sources that a measurement was taken with."""

import glob
import hashlib
import os

import keras_parallax

#: Files of this folder that decide what is measured; the others choose, judge and report.
MEASURING = (
    'cpu_shares', 'data', 'floor', 'links', 'measure', 'models', 'phases', 'schedule', 'systems',
    'tf_ps', 'worker',
)  # fmt: skip


def fingerprint(names=MEASURING):
    """A text that changes with the package or with files of this folder."""
    here = os.path.dirname(os.path.abspath(__file__))
    files = [os.path.join(here, name + '.py') for name in names]
    package = os.path.dirname(keras_parallax.__file__)
    files += sorted(glob.glob(os.path.join(package, '**', '*.py'), recursive=True))
    found = hashlib.sha256()
    for path in files:
        with open(path, 'rb') as file:
            found.update(os.path.basename(path).encode() + b'\0' + file.read())
    return found.hexdigest()[:12]
