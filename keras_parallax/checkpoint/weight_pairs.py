# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Which weight of a model that was made again from a configuration belongs to which of the first.

Their orders tell nothing: a frozen part, of which the configuration of a nested model does not say
that it is frozen, has its weights elsewhere in `model.weights`, and a layer that two nested models
share is two layers afterwards. So weights are paired layer by layer, by the attributes that hold
them and by the order in which the layer made them.
"""

from typing import Any, Dict, List, Set, Tuple

from keras_parallax.compat import keras_api
from keras_parallax.compat.keras_api import KerasPackage
from keras_parallax.compat.tensorflow_api import VARIABLES
from keras_parallax.errors import CheckpointError
from keras_parallax.framework_types import Layer, Model, Variable

#: What a layer has added, in order, whatever is frozen (Keras 2.2.4 and TF 1.11).
_ADDED = ('_trainable_weights', '_non_trainable_weights')

#: What a stateful layer has seen is not part of the model; Keras does not save it either.
_STATES = {'states', '_states', '_updates', '_per_input_updates'}


def paired_weights(model: Model, made: Model) -> List[Tuple[Variable, Variable]]:
    """Pairs the variables of a model and of one that was made from its configuration.

    Args:
        model: the Keras model.
        made: the other one.

    Returns:
        A list of pairs `(variable of made, variable of model)`, each of `made` once; variables that
        a layer holds without having them in its weights are among them.

    Raises:
        CheckpointError: a weight of either has no counterpart of its shape.
    """
    pairs: Dict[int, Tuple[Variable, Variable]] = {}
    _pair_layers(keras_api.package_of(model), model, made, pairs, set())
    paired = {id(variable) for _, variable in pairs.values()}
    alone = [weight for weight in model.weights if id(weight) not in paired]
    alone += [weight for weight in made.weights if id(weight) not in pairs]
    if alone:
        raise CheckpointError(
            'The weight %s has no counterpart in the model that was made again from its '
            'configuration; its layer must make the same weights from what its get_config returns.'
            % alone[0].name
        )
    for copy, variable in pairs.values():
        if copy.shape.as_list() != variable.shape.as_list():
            raise CheckpointError(
                'The weight %s has shape %s, but %s in the model that was made again from its '
                'configuration; the get_config of its layer must return what its shape follows '
                'from.' % (variable.name, variable.shape, copy.shape)
            )
    return list(pairs.values())


def _pair_layers(
    package: KerasPackage,
    layer: Layer,
    copy: Any,
    pairs: Dict[int, Tuple[Variable, Variable]],
    seen: Set[Tuple[int, int]],
) -> None:
    """Pairs the variables of two layers; `pairs` has the pairs by the ids of copies."""
    if (id(layer), id(copy)) in seen:
        return
    seen.add((id(layer), id(copy)))
    if isinstance(layer, package.network):
        copies = {inner.name: inner for inner in copy.layers}
        for inner in layer.layers:
            if inner.name in copies:
                _pair_layers(package, inner, copies[inner.name], pairs, seen)
    attributes, copied = vars(layer), vars(copy)
    others = sorted(set(attributes) - set(_ADDED) - _STATES)
    for name in _ADDED + tuple(others):
        if name in attributes and name in copied:
            _pair_values(package, attributes[name], copied[name], pairs, seen)


def _pair_values(
    package: KerasPackage,
    value: Any,
    copy: Any,
    pairs: Dict[int, Tuple[Variable, Variable]],
    seen: Set[Tuple[int, int]],
) -> None:
    """Pairs the variables in two values of one attribute."""
    if isinstance(value, VARIABLES) and isinstance(copy, VARIABLES):
        pairs.setdefault(id(copy), (copy, value))
    elif isinstance(value, package.layer) and isinstance(copy, package.layer):
        _pair_layers(package, value, copy, pairs, seen)
    elif isinstance(value, dict) and isinstance(copy, dict):
        for key in value:
            if key in copy:
                _pair_values(package, value[key], copy[key], pairs, seen)
    elif isinstance(value, (list, tuple)) and isinstance(copy, (list, tuple)):
        # Of different lengths they would be paired by chance.
        if len(value) == len(copy):
            for part, part_of_copy in zip(value, copy):
                _pair_values(package, part, part_of_copy, pairs, seen)
