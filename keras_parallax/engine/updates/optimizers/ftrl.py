# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""FTRL-Proximal. Keras and TensorFlow update rows by kernels of TensorFlow, and nothing else does.

So there is no formula here, and `sparse_update='lazy'` is no different: rows without a gradient
stand still.
"""

from keras_parallax.engine.updates.optimizers.known_optimizer import (
    KnownOptimizer,
    RowsOfTensorFlow,
    RowsOfV2,
)

KNOWN = KnownOptimizer(
    optimizer_v2={'Ftrl': lambda optimizer: RowsOfV2(('accumulator', 'linear'))},
    tensorflow={'FtrlOptimizer': RowsOfTensorFlow()},
)
