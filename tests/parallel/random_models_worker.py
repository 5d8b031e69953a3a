# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Runs scripts that it finds in a folder, one after the other: plain Keras, or a worker of a job.

Usage: random_models_worker.py FOLDER

A script is a folder of its own, `FOLDER/NUMBER`, in which each process writes what the script has
shown. An empty folder ends the process.
"""

import json
import os
import pickle
import sys
import time
import traceback

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir))
from random_models.results import Error, Result, Shown  # noqa: E402

RANK = int(os.environ.get('HOROVOD_RANK', 0))


def arrays_of(value):
    """The numbers of a value, a flat list of arrays."""
    if isinstance(value, dict):
        return [array for name in sorted(value) for array in arrays_of(value[name])]
    if isinstance(value, (list, tuple)) and value and isinstance(value[0], np.ndarray):
        return [array for part in value for array in arrays_of(part)]
    return [np.asarray(value, float)]


def run(header, body):
    """Runs a script: a `Result`."""
    shown, names, begin = [], {}, time.process_time()

    def show(label, numbers=()):
        numbers = {name: arrays_of(numbers[name]) for name in numbers}
        weights = [
            (weight.name, value)
            for model in names['models']
            for weight, value in zip(model.weights, model.get_weights())
        ]
        shown.append(Shown(label, numbers, weights))

    error = None
    try:
        exec(compile(header, 'header', 'exec'), names)
        names['show'] = show
        names['keras'].backend.clear_session()
        exec(compile(body, 'body', 'exec'), names)
    except Exception as raised:
        classes = [cls.__name__ for cls in type(raised).__mro__]
        error = Error(classes, str(raised), traceback.format_exc(), _line(raised))
    return Result(shown, error, time.process_time() - begin)


def _line(raised):
    """The number of the line of the script's body that an exception comes from."""
    lines = [frame[1] for frame in traceback.extract_tb(raised.__traceback__) if frame[0] == 'body']
    return lines[0] if lines else 0


def main(folder):
    number = 0
    while True:
        place = os.path.join(folder, str(number))
        while not os.path.exists(os.path.join(place, 'ready')):
            time.sleep(0.02)
        with open(os.path.join(place, 'ready')) as file:
            given = json.load(file)
        if not given:
            return
        os.chdir(place)
        result = run(given['header'], given['body'])
        path = os.path.join(place, 'result-%d' % RANK)
        with open(path + '.part', 'wb') as file:
            pickle.dump(result, file)
        os.rename(path + '.part', path)
        number += 1


main(sys.argv[1])
