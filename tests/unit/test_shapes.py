# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Pictures of shapes for the examples."""

import os
import sys

import numpy as np

sys.path.insert(
    0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, os.pardir, 'examples')
)

import shapes  # noqa: E402  (the examples are not a package)


def test_every_worker_draws_the_same_shapes_and_each_kind_as_often():
    images, labels = shapes.draw(101, 32, seed=1)
    for one, other in zip((images, labels), shapes.draw(101, 32, seed=1)):
        np.testing.assert_array_equal(one, other)
    assert images.shape == (101, 32, 32, 3) and images.dtype == np.uint8
    assert set(np.bincount(labels)) == {10, 11} and len(shapes.KINDS) == 10


def test_each_shape_is_seen_in_its_color():
    images, labels = shapes.draw(100, 32, seed=1)
    for image, label in zip(images.astype(float), labels):
        colored = image[image.max(axis=2) - image.min(axis=2) > 80]  # The ground is gray.
        hue = 128 + 100 * np.cos(2 * np.pi * (label / 10 + np.arange(3) / 3))
        assert len(colored) > 10 and abs(colored.mean(axis=0) - hue).max() < 70
