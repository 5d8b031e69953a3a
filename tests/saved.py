"""What the tests of saving save: the names that their processes share."""

import stacks

#: Cases of `cases.py` to the further arguments of `ParallaxOptimizer`.
CASES = {
    'momentum': {},
    'adagrad': {},
    'adam': {},
    'nadam': {},
    'few_rows': {'sparse_update': 'lazy'},
}
CASES = {
    name: CASES[name] for name in CASES if not stacks.reason_against('tests/saved.py::' + name)
}
#: Those that have the numbers of plain Keras.
EXACT = [name for name, wrap in CASES.items() if 'sparse_update' not in wrap]
#: The job that saves has two ranks; batches are those of two.
RANKS = 2
STEPS, HALF = 8, 4
#: For a number of ranks that goes on, pairs of a case and the form that it goes on from.
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
    ],
}
RESUMED = {size: [pair for pair in RESUMED[size] if pair[0] in CASES] for size in RESUMED}
