# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The gradient of a part of a table, as clipping and updates take it. Data alone."""

from typing import NamedTuple, Optional

from keras_parallax.engine.tables.exchanged import OwnedShard
from keras_parallax.framework_types import Gradient, Tensor


class PartUpdate(NamedTuple):
    """The gradient of one `OwnedShard` as an update takes it.

    Attributes:
        part: the `OwnedShard`.
        gradient: `IndexedSlices` with each row once, or a tensor of the part's whole shape.
        penalty: what of it is a regularizer's, a tensor of the part's whole shape, or `None`.
    """

    part: OwnedShard
    gradient: Gradient
    penalty: Optional[Tensor] = None
