# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""How large saves are and how long they take: in one file, in parts, and of what has changed.

A table of a million rows of 32 numbers, with Adagrad's slot, of which one per cent is touched
between two saves. Prints the table of docs/saving.md, medians of `--repeats` saves.

    horovodrun -np 2 -H localhost:2 --gloo python benchmarks/saves.py FOLDER
"""

import contextlib
import os
import shutil
import statistics
import time

import click
import keras
import numpy as np

import keras_parallax as kp
from keras_parallax.checkpoint import increments, keras_file_write, manifest, save, save_parts

LENGTH = 4


def build(rows, width, optimizer):
    """A compiled model of one table, and its strategy."""
    keras.backend.clear_session()
    with kp.ParallaxStrategy() as strategy:
        layers = [
            keras.layers.Embedding(rows, width, input_length=LENGTH, name='table'),
            keras.layers.GlobalAveragePooling1D(),
            keras.layers.Dense(1),
        ]
        model = keras.models.Sequential(layers)
        model.compile(kp.ParallaxOptimizer(optimizer), 'mse')
    return strategy, model


class Touches:
    """Trains on a share of the rows, each time on others."""

    def __init__(self, strategy, model, rows, share):
        self._strategy, self._model, self._rows, self._share = strategy, model, rows, share
        self._random = np.random.RandomState(strategy.rank)

    def __call__(self):
        """Takes four steps."""
        size = int(self._rows * self._share) // (LENGTH * 4 * self._strategy.size)
        for _ in range(4):
            ids = self._random.randint(0, self._rows, (size, LENGTH))
            self._model.train_on_batch(ids, np.ones([size, 1]))


def bytes_of(path):
    """Bytes of a file, or of the newest save in a folder."""
    if not os.path.isdir(path):
        return os.path.getsize(path)
    return sum(part.bytes for part in manifest.read_manifest(path, checked=False).newest_parts)


def measure(step, act, repeats, before=None):
    """How long all workers take for a function of nothing.

    Args:
        step: the `TrainStep`.
        act: the function.
        repeats: how often it is called.
        before: another, which is called before it each time and not measured.

    Returns:
        The medians of the seconds, and of the seconds of processor of all workers together.
    """
    took, processor = [], []
    for _ in range(repeats):
        if before is not None:
            before()
        step.job.gather(None)
        began = time.perf_counter(), time.process_time()
        act()
        processor.append(sum(step.job.gather(time.process_time() - began[1])))
        took.append(time.perf_counter() - began[0])
    return statistics.median(took), statistics.median(processor)


def said(strategy, *cells):
    """Prints a row of a table."""
    if strategy.is_chief:
        print('| ' + ' | '.join(cells) + ' |', flush=True)


@click.command()
@click.argument('folder')
@click.option('--rows', default=10**6)
@click.option('--width', default=32)
@click.option('--share', default=0.01, help='Share of the rows that is touched between two saves.')
@click.option('--repeats', default=5)
@click.option('--optimizer', default='adagrad')
def main(folder, rows, width, share, repeats, optimizer):
    """Saves to FOLDER in each form and goes on from it; removes what it has written there."""
    strategy, model = build(rows, width, optimizer)
    touch = Touches(strategy, model, rows, share)
    touch()
    step = model.optimizer._parallax_step
    paths = {name: os.path.join(folder, name) for name in ('file.h5', 'parts', 'changes')}
    for path in paths.values():
        remove(strategy, path)

    def save_file():
        if strategy.is_chief:
            save.save(model, paths['file.h5'], show_progress=False)

    def save_all():
        save_parts.save_parts(model, paths['parts'], show_progress=False)

    def save_changes():
        changes = increments.increments_of(keras_file_write.scope_of_model(model), paths['changes'])
        save_parts.save_parts(model, paths['changes'], show_progress=False, increments=changes)

    said(strategy, '', 'MB', 'seconds', 'seconds of processor')
    said(strategy, *['---'] * 4)
    unmarked = measure(step, touch, 5 * repeats)
    for name, words, act in (
        ('file.h5', 'one file', save_file),
        ('parts', '`sharded=True`', save_all),
        ('changes', '`incremental=True`, the first', save_changes),
        ('changes', '`incremental=True`, each of the next', save_changes),
    ):
        times = 1 if words.endswith('first') else repeats
        seconds = measure(step, act, times, None if times == 1 else touch)
        megabytes = '%.1f' % (bytes_of(paths[name]) / 1e6)
        said(strategy, 'a save, ' + words, megabytes, *map('{:.2f}'.format, seconds))
    for words, seconds in (
        ('without marks', unmarked),
        ('with marks', measure(step, touch, 5 * repeats)),
    ):
        said(strategy, 'four steps ' + words, '', *map('{:.4f}'.format, seconds))
    save_changes()
    deltas = len(manifest.read_manifest(paths['changes'], checked=False).deltas)
    for name, words in (
        ('file.h5', 'one file'),
        ('parts', '`sharded=True`'),
        ('changes', 'a base and %d deltas' % deltas),
    ):
        seconds = measure(step, lambda path=paths[name]: strategy.resume(model, path), 3)
        said(strategy, 'to resume, ' + words, '', *map('{:.2f}'.format, seconds))
    for path in paths.values():
        remove(strategy, path)


def remove(strategy, path):
    """Removes what was saved, on the chief."""
    if strategy.is_chief:
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(path) if os.path.isdir(path) else os.remove(path)


if __name__ == '__main__':
    main()
