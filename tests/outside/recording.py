# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What recorders of all Keras packages share: what is noted, and when it is enough."""

import functools
import inspect
import json
import os

import numpy as np

#: A script is stopped when it has trained so much, as is every worker of it.
MOST_EPOCHS, MOST_STEPS, MOST_FITS, MOST_BATCHES = 2, 4, 3, 12
#: It is judged by so many samples.
MOST_JUDGED = 60


class Enough(BaseException):
    """The script has trained as much as is compared."""


def first(data):
    """The first array of nested lists, tuples and dicts."""
    while isinstance(data, (list, tuple, dict)) and len(data):
        data = next(iter(data.values())) if isinstance(data, dict) else data[0]
    return data


class Recorder:
    """Notes what models train, of which some methods are replaced while it is open.

    Args:
        place: whose share of the data is trained on, a `shares.Place`.

    Attributes:
        tables: from the names of tables to where they are, in words; of Keras 3 alone.
    """

    def __init__(self, place):
        self.place = place
        self.models, self.losses, self.reasons, self.tables = [], [], set(), {}
        self._fits = self._batches = 0
        self._inside = False
        self._undo = []

    def __exit__(self, *error):
        for cls, name, original in reversed(self._undo):
            setattr(cls, name, original)

    def wrap(self, cls, name, replacement, signature=None):
        """Has a class call `replacement(original, model, arguments)` for a method of its models."""
        original = getattr(cls, name)
        signature = signature or inspect.signature(original)

        @functools.wraps(original)
        def method(model, *args, **kwargs):
            if self._inside:  # Keras's own methods call each other.
                return original(model, *args, **kwargs)
            bound = signature.bind(model, *args, **kwargs)
            bound.apply_defaults()
            arguments = bound.arguments
            arguments.update(arguments.pop('kwargs', {}))
            del arguments[next(iter(signature.parameters))]
            self._inside = True
            try:
                return replacement(functools.partial(original, model), model, arguments)
            finally:
                self._inside = False

        setattr(cls, name, method)
        self._undo.append((cls, name, original))

    def save(self, path):
        """Writes the losses, the models' weights, and why workers need not equal one process."""
        weights = {}
        for number, model in enumerate(self.models):
            for index, weight in enumerate(model.get_weights()):
                weights['model%d_weight%d' % (number, index)] = weight
        temporary = path + '.new.npz'
        np.savez(
            temporary,
            losses=np.array(self.losses, float),
            reasons=json.dumps(sorted(self.reasons)),
            tables=json.dumps(self.tables),
            **weights,
        )
        os.rename(temporary, path)
