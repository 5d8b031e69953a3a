# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Pictures of shapes, for the examples: drawn here, each of one of ten kinds.

A shape is turned, large or small, lies anywhere on some gray, and is seen under noise.
Its outline tells its kind, and so does its color, from which a network learns in few steps.

Everything here is deterministic: workers that draw as many pictures get the same
ones without talking to each other.
"""

import numpy as np

# In each, `x` and `y` are from the shape's middle, of which it is about 1 high and wide.
_SHAPES = {
    'disk': lambda x, y: np.hypot(x, y) < 1,
    'ring': lambda x, y: abs(np.hypot(x, y) - 0.8) < 0.25,
    'square': lambda x, y: np.maximum(abs(x), abs(y)) < 0.85,
    'frame': lambda x, y: abs(np.maximum(abs(x), abs(y)) - 0.7) < 0.2,
    'triangle': lambda x, y: (y > -0.6) & (y + 1.8 * abs(x) < 1.1),
    'cross': lambda x, y: (np.minimum(abs(x), abs(y)) < 0.25) & (np.maximum(abs(x), abs(y)) < 1),
    'bar': lambda x, y: (abs(x) < 0.3) & (abs(y) < 1.2),
    'bars': lambda x, y: (abs(abs(x) - 0.6) < 0.25) & (abs(y) < 1.1),
    'dots': lambda x, y: np.hypot(abs(x) - 0.6, abs(y) - 0.6) < 0.4,
    'moon': lambda x, y: (np.hypot(x, y) < 1) & (np.hypot(x - 0.6, y) > 0.8),
}
KINDS = tuple(_SHAPES)


def draw(count, side, seed):
    """Draws pictures of shapes, each kind as often as the others but for one.

    Args:
        count: How many.
        side: Their width and height.
        seed: What they depend on.

    Returns:
        Their bytes, ``[count, side, side, 3]``, and the numbers of their kinds, ``[count]``.
    """
    random = np.random.RandomState(seed)
    labels = random.permutation(count) % len(KINDS)
    images = np.empty((count, side, side, 3), np.uint8)
    rows, columns = np.mgrid[:side, :side] * (2 / side) - 1  # From -1 to 1.
    for image, label in zip(images, labels):
        angle, size = random.uniform(-0.4, 0.4), random.uniform(0.4, 0.7)
        x, y = (
            (columns - random.uniform(-0.3, 0.3)) / size,
            (rows - random.uniform(-0.3, 0.3)) / size,
        )
        turned = np.cos(angle) * x - np.sin(angle) * y, np.sin(angle) * x + np.cos(angle) * y
        inside = _SHAPES[KINDS[label]](*turned)[..., np.newaxis]
        hues = 2 * np.pi * (label / len(KINDS) + np.arange(3) / 3)
        color = 128 + 100 * np.cos(hues) + random.normal(0, 15, 3)
        ground = random.uniform(0, 255)  # Some gray.
        noisy = np.where(inside, color, ground) + random.normal(0, 10, image.shape)
        image[...] = noisy.clip(0, 255)
    return images, labels
