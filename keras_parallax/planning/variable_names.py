# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""By which names an option such as `overrides={'user': 'dense'}` may call a variable. Pure."""

from collections.abc import Mapping as MappingType
from typing import Any, Mapping, Optional, Tuple


def names_of(variable: str, layer: Optional[str] = None) -> Tuple[str, ...]:
    """The names that an option may use for a variable, the one that counts most first.

    Keras makes the names of variables unique, but not those of layers: in the second model of a
    process the layer `'user'` has the variable `'user_1/embeddings'`.

    Args:
        variable: the variable's name without `:0`.
        layer: the name of the layer that made the variable, or `None` if no layer did.

    Returns:
        The variable's name, the name that it has in the first model of a process, and the layer's.

    Example:
        ```python
        >>> names_of('user_1/embeddings', 'user')
        ('user_1/embeddings', 'user/embeddings', 'user')
        ```
    """
    scope, _, weight = variable.rpartition('/')
    layer = layer or scope
    return tuple(dict.fromkeys([variable, '%s/%s' % (layer, weight), layer]))


def by_variable(given: Any, layers: Mapping[str, Optional[str]]) -> Any:
    """An option whose keys are names of variables, for one whose keys may be names of layers.

    Args:
        given: the option. What is no mapping stays as it is, and so do unknown keys.
        layers: mapping from the names of the model's variables to the names of their layers.

    Returns:
        A dict from names of variables to what the option says of them.

    Example:
        ```python
        >>> by_variable({'user': 'dense'}, {'user_1/embeddings': 'user', 'item/embeddings': 'item'})
        {'user_1/embeddings': 'dense'}
        ```
    """
    if not isinstance(given, MappingType):
        return given
    found, used = {}, set()
    for variable, layer in layers.items():
        keys = [name for name in names_of(variable, layer) if name in given]
        if keys:
            found[variable] = given[keys[0]]
            used.update(keys)
    found.update((key, value) for key, value in given.items() if key not in used)
    return found
