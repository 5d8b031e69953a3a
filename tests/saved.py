# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What the tests of saving save: the names that their processes share."""

import stacks
from frameworks import TF2

#: Cases of `cases.py` to the further arguments of `ParallaxOptimizer`.
CASES = {
    'momentum': {},
    'adagrad': {},
    'adam': {},
    'nadam': {},
    'few_rows': {'sparse_update': 'lazy'},
}
if not TF2:
    # Beside Adam of dense variables, an optimizer that keeps another number of slots.
    CASES['shared_adam'] = {'sparse_update': 'lazy', 'tables': 'adagrad'}
CASES = {
    name: CASES[name] for name in CASES if not stacks.reason_against('tests/saved.py::' + name)
}
#: Those of which Keras knows all that is saved.
OF_KERAS = [name for name, wrap in CASES.items() if 'tables' not in wrap]
#: Those that have the numbers of plain Keras.
EXACT = [name for name, wrap in CASES.items() if 'sparse_update' not in wrap]
#: The job that saves has two workers; batches are those of two.
RANKS = 2
STEPS, HALF = 8, 4
#: For a number of workers that goes on, pairs of a case and the form that it goes on from.
RESUMED = {
    1: [
        ('momentum', 'single.h5'),
        ('adam', 'parts'),
        ('adagrad', 'h5'),
    ],
    3: [
        ('momentum', 'h5'),
        ('momentum', 'parts'),
        ('adagrad', 'plain.h5'),
        ('adagrad', 'alone.h5'),
        ('adam', 'single.h5'),
        ('adam', 'parts'),
        ('adam', 'plain.h5'),
        ('nadam', 'single.h5'),
        ('few_rows', 'parts'),
        ('shared_adam', 'parts'),
        ('shared_adam', 'single.h5'),
    ],
}
RESUMED = {size: [pair for pair in RESUMED[size] if pair[0] in CASES] for size in RESUMED}
