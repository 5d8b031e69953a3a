# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Pictures of digits for the examples: drawn ones, and files in the layout of MNIST."""

import os
import sys

import numpy as np
import pytest

sys.path.insert(
    0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, os.pardir, 'examples')
)

import digits  # noqa: E402  (the examples are not a package)


@pytest.fixture
def mnist_file(tmp_path):
    """A file with two digits to train on and one held out, and what it holds."""
    random = np.random.RandomState(0)
    arrays = {
        'x_train': random.randint(0, 256, (2, 28, 28)).astype(np.uint8),
        'y_train': np.uint8([7, 1]),
        'x_test': random.randint(0, 256, (1, 28, 28)).astype(np.uint8),
        'y_test': np.uint8([4]),
    }
    path = tmp_path / 'mnist.npz'
    np.savez(str(path), **arrays)
    return str(path), arrays


def test_every_worker_draws_the_same_digits():
    for one, other in zip(digits.draw(1001, seed=1), digits.draw(1001, seed=1)):
        np.testing.assert_array_equal(one, other)


def test_drawn_digits_are_bytes_with_the_ten_labels():
    images, labels = digits.draw(1001, seed=1)
    assert images.shape == (1001, 28, 28) and images.dtype == labels.dtype == np.uint8
    assert sorted(set(labels)) == list(range(10))


def test_no_two_drawn_digits_are_equal(monkeypatch, tmp_path):
    monkeypatch.setenv('HOME', str(tmp_path))
    (x_train, _, x_test, _), _ = digits.read(train=500, held_out=500)
    assert len({image.tobytes() for image in np.concatenate([x_train, x_test])}) == 1000


def test_a_drawn_digit_is_nearest_to_the_mean_of_its_like_more_often_than_by_chance():
    images, labels = digits.draw(3000, seed=1)
    means = np.array([images[labels == digit].mean(axis=0) for digit in range(10)])
    others, expected = digits.draw(300, seed=2)
    distances = np.abs(others[:, np.newaxis] - means).sum(axis=(2, 3))
    assert np.mean(distances.argmin(axis=1) == expected) > 0.3


def test_a_file_is_read_as_it_is(mnist_file):
    path, arrays = mnist_file
    found, source = digits.read(path)
    for name, array in zip(digits.ARRAYS, found):
        np.testing.assert_array_equal(array, arrays[name])
    assert source == '2 digits, and 1 held out, of %s.' % path


def test_the_file_that_keras_has_downloaded_is_taken(mnist_file, monkeypatch, tmp_path):
    folder = tmp_path / '.keras' / 'datasets'
    folder.mkdir(parents=True)
    os.rename(mnist_file[0], str(folder / 'mnist.npz'))
    monkeypatch.setenv('HOME', str(tmp_path))
    (_, y_train, _, _), _ = digits.read(train=1)
    assert list(y_train) == [7]


def test_a_file_without_pictures_is_refused(tmp_path):
    path = str(tmp_path / 'ids.npz')
    np.savez(path, ids=[1, 2])
    with pytest.raises(digits.DigitsError, match='ids.npz cannot be read as .* x_train'):
        digits.read(path)
    with pytest.raises(digits.DigitsError, match='absent.npz cannot be read'):
        digits.read(str(tmp_path / 'absent.npz'))


def test_pictures_of_another_size_are_refused(mnist_file):
    path, arrays = mnist_file
    np.savez(path, **dict(arrays, x_test=np.zeros((1, 32, 32))))
    with pytest.raises(digits.DigitsError, match=r'x_test in .* has the shape \(1, 32, 32\)'):
        digits.read(path)
