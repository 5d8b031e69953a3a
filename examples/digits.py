# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Pictures of digits, for the examples: those of MNIST, or drawn here.

The arrays are those of Keras's ``mnist.npz``: ``x_train`` and ``x_test`` with
28 x 28 bytes a picture, ``y_train`` and ``y_test`` with a digit for each. Where
that file is not there, pictures are drawn from bitmaps of the ten digits, each
turned, slanted, stretched, shifted and blurred by other amounts, under noise.

Everything here is deterministic: workers that read the same file, or draw as
many pictures, get the same ones without talking to each other.
"""

import os
import zipfile

import numpy as np

SIDE = 28
#: Where Keras puts MNIST once a script has downloaded it.
KERAS_FILE = os.path.join('~', '.keras', 'datasets', 'mnist.npz')
ARRAYS = ('x_train', 'y_train', 'x_test', 'y_test')

#: The digits from 0 to 9 side by side, each 5 wide and 7 high.
_BITMAPS = """
.###.  ..#..  .###.  .###.  ...#.  #####  ..##.  #####  .###.  .###.
#...#  .##..  #...#  #...#  ..##.  #....  .#...  ....#  #...#  #...#
#...#  ..#..  ....#  ....#  .#.#.  ####.  #....  ....#  #...#  #...#
#...#  ..#..  ...#.  ..##.  #..#.  ....#  ####.  ...#.  .###.  .####
#...#  ..#..  ..#..  ....#  #####  ....#  #...#  ..#..  #...#  ....#
#...#  ..#..  .#...  #...#  ...#.  #...#  #...#  .#...  #...#  ...#.
.###.  .###.  #####  .###.  ...#.  .###.  .###.  .#...  .###.  .##..
"""
_CHUNK = 1000  # Pictures drawn at a time, for memory.


class DigitsError(ValueError):
    """The file does not hold what it should."""


def read(path=None, train=None, held_out=None):
    """Returns the arrays of `ARRAYS`, and a sentence on where they come from.

    Args:
        path: File in the layout of ``mnist.npz``. Default: that of Keras if it is
            there, and drawn pictures otherwise.
        train: Upper limit for the pictures to train on; the first ones are taken.
            As many are drawn. Default: as many as MNIST has.
        held_out: The same for held-out pictures.
    """
    keras_file = os.path.expanduser(KERAS_FILE)
    if path is None and os.path.exists(keras_file):
        path = keras_file
    if path is None:
        pictures = draw(train or 60000, seed=1) + draw(held_out or 10000, seed=2)
        source = f'drawn here, as there is no {KERAS_FILE}'
    else:
        pictures, source = _load(path), f'of {path}'
    x_train, y_train, x_test, y_test = pictures
    arrays = x_train[:train], y_train[:train], x_test[:held_out], y_test[:held_out]
    return arrays, f'{len(arrays[0]):,} digits, and {len(arrays[2]):,} held out, {source}.'


def _load(path):
    try:
        with np.load(path) as file:
            arrays = [file[name] for name in ARRAYS]
    except (OSError, ValueError, KeyError, AttributeError, zipfile.BadZipFile) as error:
        raise DigitsError(
            f'{path} cannot be read as an .npz file with {", ".join(ARRAYS)}: {error}'
        ) from None
    for name, images, labels in zip(ARRAYS[::2], arrays[::2], arrays[1::2]):
        if images.shape != (len(labels), SIDE, SIDE):
            raise DigitsError(
                f'{name} in {path} has the shape {images.shape}, and not that of {len(labels)} '
                f'pictures, one for each label, of {SIDE} x {SIDE}.'
            )
    return arrays


def draw(count, seed):
    """Draws pictures of digits, each as likely as the others.

    Args:
        count: How many.
        seed: What they depend on.

    Returns:
        Their bytes, ``[count, 28, 28]``, and the digits that they show, ``[count]``.
    """
    random = np.random.RandomState(seed)
    labels = random.randint(0, 10, count).astype(np.uint8)
    images = np.empty((count, SIDE, SIDE), np.uint8)
    for start in range(0, count, _CHUNK):
        chunk = labels[start : start + _CHUNK]
        images[start : start + len(chunk)] = _draw(chunk, random)
    return images, labels


def _draw(labels, random):
    def amounts(low, high):
        return random.uniform(low, high, (len(labels), 1, 1)).astype(np.float32)

    # Of each pixel, where in the bitmap it lies: from the picture's middle to the digit's.
    down, right = np.mgrid[:SIDE, :SIDE].astype(np.float32) - (SIDE - 1) / 2
    down, right = down - amounts(-3, 3), right - amounts(-3, 3)
    angle, slant = amounts(-0.3, 0.3), amounts(-0.3, 0.3)
    row = (np.cos(angle) * down - np.sin(angle) * right) / amounts(1.8, 3.2) + 3
    column = (np.sin(angle) * down + np.cos(angle) * right) / amounts(1.8, 3.6) + 2
    column += slant * (row - 3)
    ink = _between(_glyphs()[labels], row, column)
    ink = np.clip(ink * amounts(1.0, 1.8), 0, 1) * amounts(0.5, 1.0)
    noise = random.normal(0, 0.15, ink.shape).astype(np.float32)
    return (255 * np.clip(ink + noise, 0, 1)).astype(np.uint8)


def _glyphs():
    """The bitmaps with a border of two, ``[10, 11, 9]``."""
    lines = [line.split() for line in _BITMAPS.split('\n') if line]
    dots = np.array([[list(part) for part in line] for line in lines]) == '#'
    return np.pad(dots.transpose(1, 0, 2), [(0, 0), (2, 2), (2, 2)], 'constant').astype(np.float32)


def _between(glyphs, row, column):
    """What glyphs have at places that lie between four dots; 0 outside of them."""
    height, width = glyphs.shape[1:]
    row, column = np.clip(row + 2, 0, height - 1.01), np.clip(column + 2, 0, width - 1.01)
    top, left = row.astype(np.int32), column.astype(np.int32)
    row, column = row - top, column - left
    glyph = np.arange(len(glyphs), dtype=np.int32)[:, np.newaxis, np.newaxis]
    dot = (glyph * height + top) * width + left
    dots = glyphs.ravel()

    def along(dot):
        one, next_one = dots.take(dot), dots.take(dot + 1)
        return one + column * (next_one - one)

    above = along(dot)
    return above + row * (along(dot + width) - above)
