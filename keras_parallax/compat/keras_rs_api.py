# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What is private in keras-rs 0.4, which a script may have imported."""

import sys
from typing import Any, Iterator, Tuple

from keras_parallax.compat import keras3_api


def tables_of(model: Any) -> Iterator[Tuple[Any, Any]]:
    """The `DistributedEmbedding`s of a model, with the `TableConfig`s that no SparseCore has."""
    package = sys.modules.get('keras_rs')
    if package is None:
        return
    for layer in keras3_api.layers_of(model):
        if isinstance(layer, package.layers.DistributedEmbedding):
            features = layer._placement_to_path_to_feature_config.get('default_device', {})
            for config in {id(one.table): one.table for one in features.values()}.values():
                yield layer, config
