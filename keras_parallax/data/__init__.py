# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Each worker's share of the data: as many batches for all, in an order that all of them know."""

from typing import List

from keras_parallax.data.fit_arrays import arrays
from keras_parallax.data.shards import shard

__all__ = ['arrays', 'shard']


def __dir__() -> List[str]:
    return list(__all__)
