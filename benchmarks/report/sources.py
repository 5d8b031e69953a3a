# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""A mark of the sources that a measurement was taken with."""

import glob
import hashlib
import importlib.util
import os

#: Files of the benchmarks that decide what is measured; the others choose, judge and report.
MEASURING = (
    'cluster/cpu_shares', 'cluster/links',
    'works/data', 'works/floor', 'works/models', 'works/stack',
    'systems/catalog', 'systems/settings', 'systems/tf_ps', 'systems/processes',
    'systems/ps_strategy', 'parameter_server', 'coordinator',
    'measuring/measure', 'measuring/meter', 'measuring/phases', 'measuring/schedule', 'worker',
)  # fmt: skip


def fingerprint(names=MEASURING):
    """A text that changes with the package or with files of the benchmarks."""
    benchmarks = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    files = [os.path.join(benchmarks, name + '.py') for name in names]
    # Found and not imported: that would take TensorFlow along.
    package = os.path.dirname(importlib.util.find_spec('keras_parallax').origin)
    files += sorted(glob.glob(os.path.join(package, '**', '*.py'), recursive=True))
    digest = hashlib.sha256()
    for path in files:
        with open(path, 'rb') as file:
            digest.update(os.path.basename(path).encode() + b'\0' + file.read())
    return digest.hexdigest()[:12]
