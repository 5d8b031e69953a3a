"""Run by `horovodrun`: gathers values of many lengths, and says if they arrive.

Usage: gather_worker.py.
"""

import os

import horovod.tensorflow as hvd

hvd.init()
from keras_parallax.collectives import _HEAD_BYTES, Gatherer  # noqa: E402

#: The length of a text that just fits the first collective: its own two quotes, and its length.
FITS = _HEAD_BYTES - 8 - 2

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
