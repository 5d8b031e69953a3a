# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Made files where Keras's scripts look for data that they would load from the network."""

import json
import os
import pickle

import numpy as np

#: Texts to train on, and to test on, and their words.
TRAIN, TEST, LENGTH = 240, 48, 60
#: Scripts have the real numbers of digits in their code.
DIGITS = 60000, 10000


def write(home):
    """Writes what `keras.datasets` and `get_file` find below a home folder.

    Args:
        home: a folder to be `HOME` of the scripts.
    """
    folder = os.path.join(home, '.keras', 'datasets')
    os.makedirs(folder)
    random = np.random.RandomState(0)
    _write_pictures(folder, random)
    _write_texts(folder, random)
    _write_stories(folder, random)


def _write_pictures(folder, random):
    train, test = (random.randint(0, 10, number) for number in DIGITS)
    digits = random.randint(0, 256, (10, 28, 28))
    np.savez(
        os.path.join(folder, 'mnist.npz'),
        x_train=_noisy(digits, train, random),
        y_train=train.astype(np.uint8),
        x_test=_noisy(digits, test, random),
        y_test=test.astype(np.uint8),
    )
    batches = os.path.join(folder, 'cifar-10-batches-py')
    os.mkdir(batches)
    things = random.randint(0, 256, (10, 3072))
    for name in ['data_batch_%d' % number for number in range(1, 6)] + ['test_batch']:
        labels = random.randint(0, 10, 10000)
        # Keras has 10,000 samples of each file in its own code.
        with open(os.path.join(batches, name), 'wb') as file:
            data = {b'data': things[labels].astype(np.uint8), b'labels': labels.tolist()}
            pickle.dump(data, file, protocol=2)


def _noisy(pictures, labels, random):
    shift = random.randint(-40, 41, (len(labels), 1, 1))
    return np.clip(pictures[labels] + shift, 0, 255).astype(np.uint8)


def _write_texts(folder, random):
    for name, classes in [('imdb', 2), ('reuters', 46)]:
        # All are of one length: an array of lists is a pickle, which numpy 1.16.6 does not load.
        words = {'word%d' % number: number for number in range(1, 400)}
        labels = random.randint(0, classes, TRAIN + TEST)
        texts = 1 + (random.zipf(1.3, (TRAIN + TEST, LENGTH)) + labels[:, None]) % 398
        if name == 'imdb':
            parts = dict(x_train=texts[:TRAIN], y_train=labels[:TRAIN])
            parts.update(x_test=texts[TRAIN:], y_test=labels[TRAIN:])
        else:
            parts = dict(x=texts, y=labels)
        np.savez(os.path.join(folder, name + '.npz'), **parts)
        with open(os.path.join(folder, name + '_word_index.json'), 'w') as file:
            json.dump(words, file)


def _write_stories(folder, random):
    words = ['the', 'cat', 'sees', 'a', 'dog', 'and', 'runs', 'home', 'today', 'again']
    text = ' '.join(words[number] for number in random.randint(0, len(words), 1000))
    with open(os.path.join(folder, 'nietzsche.txt'), 'w') as file:
        file.write(text)
