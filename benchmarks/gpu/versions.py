# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Reports what is installed; with `card`, what TensorFlow sees of the card and that it computes.

Usage: versions.py [card]
"""

import importlib
import os
import sys

from gpu.reporting import report


def versions_of(names):
    """The versions of the packages that are there: a dict."""
    found = {}
    for name in names:
        try:
            found[name] = importlib.import_module(name).__version__
        except ImportError:
            found[name] = None
    return found


def installed():
    """Reports versions, and what Horovod was built with."""
    import tensorflow as tf

    build = getattr(tf.sysconfig, 'get_build_info', dict)()
    cuda = {name: build.get(name) for name in ('cuda_version', 'cudnn_version')}
    names = ('numpy', 'keras', 'tf_keras', 'jax')
    report('TensorFlow', True, tensorflow=tf.__version__, **cuda, **versions_of(names))
    import horovod
    import horovod.tensorflow as hvd

    nccl = int(hvd.nccl_built())
    report('Horovod', True, horovod=horovod.__version__, nccl=nccl, gloo=bool(hvd.gloo_built()))


def card():
    """Reports the card, and compares a matrix product on it with NumPy."""
    import numpy as np
    import tensorflow as tf

    cards = tf.config.list_physical_devices('GPU')
    details = tf.config.experimental.get_device_details(cards[0]) if cards else {}
    capability = '.'.join(map(str, details.get('compute_capability', ())))
    report(
        'card',
        bool(cards),
        ''
        if cards
        else 'TensorFlow sees no card; its messages are in the output of nvidia-smi '
        'and of `import tensorflow`',
        cards=len(cards),
        name=details.get('device_name'),
        capability=capability,
        visible=os.environ.get('CUDA_VISIBLE_DEVICES'),
    )
    tf.config.experimental.enable_tensor_float_32_execution(False)
    random = np.random.RandomState(1)
    left, right = random.normal(size=(2, 512, 512)).astype(np.float32)
    with tf.device('/GPU:0'):
        product = tf.matmul(left, right)
    exact = left.astype(np.float64).dot(right)
    off = float(np.abs(product.numpy() - exact).max() / np.abs(exact).max())
    passed = 'GPU' in product.device and off < 1e-5
    report('matrix product', passed, '' if passed else 'wrong device or value', off=off,
           device=product.device)  # fmt: skip


if __name__ == '__main__':
    card() if sys.argv[1:] == ['card'] else installed()
