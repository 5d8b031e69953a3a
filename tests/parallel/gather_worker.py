# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Run by `horovodrun`: gathers values of many lengths, and says if they arrive.

Usage: gather_worker.py.
"""

import os

import horovod.tensorflow as hvd

hvd.init()
from keras_parallax.engine.job.collectives import _SHORT_BYTES, Gatherer  # noqa: E402

#: The length of a text that just fits the first collective, with two quotes and the line's end.
FITS = _SHORT_BYTES - 2 - 1

gather = Gatherer('test')
for case in (
    [None, None, None],
    ['a', 'bb', ''],
    ['a' * FITS, 'b' * (FITS + 1), 'c' * (FITS - 1)],
    ['a', 'b' * 10000, 'c' * 300],
    ['\u00fc' * 500, {'error': None}, [1, 2.5]],
    [0, 1, 2],
):
    assert gather(case[hvd.rank()]) == case, case
print('RANK %d OF %s GATHERED' % (hvd.rank(), os.environ['HOROVOD_SIZE']), flush=True)
