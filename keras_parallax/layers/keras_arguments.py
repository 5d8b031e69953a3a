# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The arguments that layers of ours hand on to Keras's `Embedding`, for type checkers."""

from typing import Any, Optional, Sequence

from typing_extensions import TypedDict


class LayerArguments(TypedDict, total=False):
    """What every layer of Keras takes, and an `Embedding` besides its table."""

    name: Optional[str]
    trainable: bool
    input_shape: Sequence[Optional[int]]
    batch_input_shape: Sequence[Optional[int]]
    batch_size: Optional[int]
    input_length: Any
    activity_regularizer: Any
    autocast: bool
    dynamic: bool


class EmbeddingArguments(LayerArguments, total=False):
    """What else an `Embedding` takes."""

    dtype: Any
    weights: Sequence[Any]
    embeddings_initializer: Any
    embeddings_regularizer: Any
    embeddings_constraint: Any
    mask_zero: bool
