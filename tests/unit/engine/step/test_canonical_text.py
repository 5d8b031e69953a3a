# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Values that mean the same have one text, in whatever process; others have others."""

import collections
import enum
import functools
import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
from any_keras import keras
from frameworks import tf
from hypothesis import given
from hypothesis import strategies as st

from keras_parallax.engine.step import agreement
from keras_parallax.engine.step.canonical_text import canonical

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=8,
)
Pair = collections.namedtuple('Pair', 'first second')
Color = enum.Enum('Color', 'RED BLUE')


class Rate:
    """A parameter that is an object to be called."""

    def __init__(self, rate):
        self.rate = rate

    def __call__(self, step):
        return self.rate / step


class Trainer:
    """Has a method that is a parameter, and much else that is not."""

    def __init__(self, began):
        self.began = began

    def rate(self, step):
        return 0.1 / step


class Configured:
    def __init__(self, rate):
        self._rate, self.cache = rate, object()

    def get_config(self):
        return {'rate': self._rate}


class Failing:
    def get_config(self):
        raise NotImplementedError


def decay(rate):
    return lambda step: rate / step


def scaled(step, rate=0.1):
    return step * rate


def nested(step):
    return [inner * 2 for inner in (step, lambda: 3)]


# Each is made twice, as two workers make it.
SAME = {
    'a set of strings': lambda: {'a', 'b', 'c', 'd', 'e'},
    'a frozen set': lambda: frozenset('abcdef'),
    'a function': lambda: scaled,
    'a lambda': lambda: lambda step: 0.1 / step,
    'a closure': lambda: decay(0.1),
    'a constant set in code': lambda: lambda step: step in {'a', 'b', 'c'},
    'a function within a function': lambda: nested,
    'a partial': lambda: functools.partial(scaled, rate=0.2),
    'a bound method': lambda: Trainer(object()).rate,
    'an object to call': lambda: Rate(0.1),
    'an object': object,
    'an object with a configuration': lambda: Configured(0.1),
    'an object whose configuration fails': Failing,
    'an array': lambda: np.arange(3.0),
    'an array of objects': lambda: np.array([{1, 2}, None]),
    'a class': lambda: Rate,
    'a path': lambda: pathlib.Path('a/b'),
    'an enumeration': lambda: Color.RED,
    'a regularizer': lambda: keras.regularizers.l2(0.1),
    'text of an object': lambda: str(object()),
    'a tensor': lambda: tf.ones([2, 3]),
    'a variable': lambda: tf.Variable([1.0]),
    'noise': lambda: np.random.choice([0.1 + 0.2, 0.3]),
    'a module function': lambda: np.tanh,
    'nan': lambda: float('nan'),
}


@pytest.mark.parametrize('make', SAME.values(), ids=SAME)
def test_what_is_made_twice_has_one_text(make):
    assert canonical(make()) == canonical(make())
    assert canonical({'a': [make()]}) == canonical({'a': [make()]})


DIFFERENT = {
    'numbers': (0.1, 0.1001),
    'a number and text': (1, '1'),
    'types': (None, False),
    'order': ([1, 2], [2, 1]),
    'sets': ({1, 2}, {1, 3}),
    'keys': ({'a': 1}, {'b': 1}),
    'code': (lambda step: 0.1 / step, lambda step: 0.2 / step),
    'operators': (lambda step: step + 1, lambda step: step - 1),
    'names': (np.tanh, np.sinh),
    'closures': (decay(0.1), decay(0.2)),
    'partials': (functools.partial(scaled, rate=1), functools.partial(scaled, rate=2)),
    'objects to call': (Rate(0.1), Rate(0.2)),
    'configurations': (Configured(0.1), Configured(0.2)),
    'regularizers': (keras.regularizers.l2(0.1), keras.regularizers.l2(0.2)),
    'methods': (Trainer(1).rate, Rate(1).__call__),
    'arrays': (np.arange(3), np.arange(1, 4)),
    'shapes': (np.zeros([2, 3]), np.zeros([3, 2])),
    'classes': (Rate, Trainer),
    'tuples with names': (Pair(1, 2), Pair(2, 1)),
    'members': (Color.RED, Color.BLUE),
}


@pytest.mark.parametrize('one, other', DIFFERENT.values(), ids=DIFFERENT)
def test_what_differs_has_another_text(one, other):
    assert canonical(one) != canonical(other)


@given(PLAIN, PLAIN)
def test_plain_data_have_one_text_exactly_if_they_are_equal(one, other):
    equal = json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
    assert (canonical(one) == canonical(other)) == equal


def test_a_value_within_itself_ends():
    loop = [1]
    loop.append(loop)
    assert canonical(loop) == '[1, <builtins.list>]'


PROGRAM = """
import sys
sys.modules['tensorflow'] = None
from keras_parallax.engine.step.canonical_text import canonical
def scaled(step, rate={'a', 'b', 'c', 'd'}):
    return step in {'x', 'y', 'z'}
print(canonical({'f': scaled, 's': {'a', 'b', 'c', 'd'}, 'l': lambda x: x, 'o': object()}))
"""


def test_processes_say_the_same():
    package = 'import types, sys; p = types.ModuleType("keras_parallax"); '
    folder = os.path.dirname(os.path.dirname(os.path.dirname(agreement.__file__)))
    package += 'p.__path__ = [%r]; sys.modules["keras_parallax"] = p\n' % folder
    texts = {
        subprocess.check_output(
            [sys.executable, '-c', package + PROGRAM], env={'PYTHONHASHSEED': str(seed)}
        )
        for seed in range(4)
    }
    assert len(texts) == 1
