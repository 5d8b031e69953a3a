# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What a `ParallaxOptimizer` was given beside the optimizer."""

from typing import Any, NamedTuple, Optional

from keras_parallax.compat.horovod_api import hvd
from keras_parallax.engine.updates.table_optimizers import TableOptimizers
from keras_parallax.planning.costs import Fp16


class OptimizerSettings(NamedTuple):
    """The arguments, checked; `ParallaxOptimizer` says what they mean."""

    name: str
    compression: Any
    pull_compression: Any
    sparse_update: str
    sparse_reduction: str
    tables: TableOptimizers
    accumulate_steps: int = 1
    loss_reduction: Optional[str] = None

    @property
    def fp16(self) -> Fp16:
        """What travels in half precision, `costs.Fp16`."""
        compressions = self.compression, self.pull_compression
        return Fp16(*[one is hvd.Compression.fp16 for one in compressions])
