# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Inputs that a model can predict from, made from their shapes; for comparing two models. Pure."""

from typing import Iterator, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from keras_parallax.framework_types import Array

#: How many samples are made, where the model takes any number.
_SAMPLES = 8

#: What a dimension that may have any size gets, in turn, until the model takes it: layers of images
#: need some size.
_SIZES = (5, 32, 224)


class InputSpec(NamedTuple):
    """What is known of an input.

    Attributes:
        shape: its shape, with `None` for any size.
        dtype: its dtype's name.
    """

    shape: Tuple[Optional[int], ...]
    dtype: str


def made_inputs(specs: Sequence[InputSpec], rows: Optional[int] = None) -> Iterator[List[Array]]:
    """Makes inputs, several times: a later try is more cautious.

    Args:
        specs: a list of an `InputSpec` for each input.
        rows: if rows are looked up, the smallest number of rows of any table: then all numbers are
            integers that are valid ids of each.

    Returns:
        An iterator over lists of an array for each input.

    Example:
        ```python
        >>> inputs = next(made_inputs([InputSpec((None, 3), 'float32')], rows=10))
        >>> inputs[0].shape, bool(inputs[0].max() < 10)
        ((8, 3), True)
        ```
    """
    tries = [(size, rows) for size in _SIZES]
    # Ids may be shifted, or looked up where it does not show.
    tries += [(size, least) for least in (2, 1) for size in _SIZES]
    for size, least in tries:
        random = np.random.RandomState(0)
        yield [_array(random, spec, size, least) for spec in specs]


def _array(random: np.random.RandomState, spec: InputSpec, size: int, rows: Optional[int]) -> Array:
    shape = tuple(spec.shape) or (None,)
    shape = (shape[0] or _SAMPLES,) + tuple(length or size for length in shape[1:])
    if spec.dtype == 'string':
        return np.array([b'%d' % number for number in random.randint(0, 9, shape).flat]).reshape(
            shape
        )
    if spec.dtype == 'bool':
        return random.randint(0, 2, shape).astype(bool)
    if rows is not None or np.issubdtype(np.dtype(spec.dtype), np.integer):
        return random.randint(0, rows or 2, shape).astype(spec.dtype)
    return random.normal(size=shape).astype(spec.dtype)
