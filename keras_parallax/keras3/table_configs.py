# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The optimizers that the `TableConfig`s of keras-rs name, each for its table."""

import re
import warnings
from typing import Any, Dict, List, Tuple

from keras_parallax.compat import keras3_api, keras_rs_api
from keras_parallax.compat.keras3_api import keras
from keras_parallax.errors import PlanError


def with_own_optimizers(model: Any, given: Any) -> Any:
    """What a model with `DistributedEmbedding`s is compiled with.

    Off TPUs, keras-rs leaves its tables to the optimizer of the model. On TPUs each has the one
    that its `TableConfig` names, and it has that one here.

    Args:
        model: the model.
        given: the optimizer that `compile` was given, which is not wrapped.

    Returns:
        The optimizer as it is, if it is the one of all tables, or says by itself which optimizer is
        for which; else a `MultiOptimizer` with it inside.

    Raises:
        PlanError: this Keras has no `MultiOptimizer`, two tables of one name differ, or the
            optimizer was built before.
    """
    if given is None:
        return None
    default, multi = keras.optimizers.get(given), keras3_api.MultiOptimizer
    others = differing(model, default)
    if not others:
        return default
    scaled = isinstance(default, keras3_api.LossScaleOptimizer)
    if scaled or multi is None:
        raise PlanError(
            'Tables of DistributedEmbedding have the optimizers %s, but the model is compiled with '
            '%s, and %s. Give all the same optimizer.'
            % (
                ', '.join(sorted({type(one).__name__ for _, one in others.values()})),
                type(default).__name__,
                'a LossScaleOptimizer has one optimizer inside'
                if scaled
                else 'Keras %s has no MultiOptimizer' % keras.__version__,
            )
        )
    if default.built:
        raise PlanError(
            'The optimizer %s has been built already, and the tables of DistributedEmbedding have '
            'others. Compile the model with a new optimizer.' % type(default).__name__
        )
    warnings.warn(
        'Tables of DistributedEmbedding are updated by the optimizers that their TableConfigs name '
        '(%s), as on TPUs. Plain keras-rs would update them by that of the model here (%s).'
        % (
            ', '.join(sorted({type(one).__name__ for _, one in others.values()})),
            type(default).__name__,
        ),
        stacklevel=2,
    )
    return _multi(default, others)


def differing(model: Any, default: Any) -> Dict[str, Tuple[Any, Any]]:
    """The optimizers of tables that are not the one of the model.

    Args:
        model: the model.
        default: its optimizer, not wrapped. A `MultiOptimizer` says by itself what is for which.

    Returns:
        Dict from patterns of paths of variables to descriptions and optimizers.

    Raises:
        PlanError: two tables of one name differ.
    """
    if keras3_api.MultiOptimizer is not None and isinstance(default, keras3_api.MultiOptimizer):
        return {}
    # Those of a `LossScaleOptimizer` are scaled together.
    compared = _description(getattr(default, 'inner_optimizer', default))
    own: Dict[str, Tuple[Any, Any]] = {}
    for layer, config in keras_rs_api.tables_of(model):
        optimizer = keras.optimizers.get(config.optimizer)
        described = _description(optimizer)
        pattern = '(.*/)?%s/%s/embeddings' % (re.escape(layer.name), re.escape(config.name))
        if own.setdefault(pattern, (described, optimizer))[0] != described:
            raise PlanError(
                'Two tables are called %s/%s, and their TableConfigs name different optimizers. '
                'Give the layers or the tables different names.' % (layer.name, config.name)
            )
    return {name: one for name, one in own.items() if one[0] != compared}


def _multi(default: Any, differing: Dict[str, Tuple[Any, Any]]) -> Any:
    """A `MultiOptimizer` with copies of the optimizers of tables, one for all that are alike."""
    copies: Dict[str, Any] = {}
    for described, optimizer in differing.values():
        if described not in copies:
            # A `TableConfig` may be used in several models.
            copies[described] = type(optimizer).from_config(optimizer.get_config())
    by_name = {name: copies[described] for name, (described, _) in differing.items()}
    return keras.optimizers.MultiOptimizer(keras.optimizers.OptimizerMap(default, by_name))


def _description(optimizer: Any) -> str:
    """Two optimizers are alike if their descriptions are equal."""
    config: List[Any] = sorted(
        (name, str(value)) for name, value in optimizer.get_config().items() if name != 'name'
    )
    return '%s %s' % (type(optimizer).__name__, config)
