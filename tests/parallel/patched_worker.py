# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Run by `horovodrun`: what training in a scope changes in TensorFlow, Keras and Horovod.

Usage: patched_worker.py FOLDER PACKAGE... Each package trains the same model twice, before
keras_parallax is imported and in a scope. Rank 0 writes `FOLDER/changes.json`: what is replaced in
modules and classes, and which attributes objects have that plain Keras does not give them, or that
hold something of ours.
"""

import gc
import json
import os
import sys
import types

import numpy as np
from frameworks import keras_module

FRAMEWORKS = ('horovod', 'keras', 'tensorflow', 'tf_keras')
FOLDER, PACKAGES = sys.argv[1], sys.argv[2:]


def is_theirs(name):
    return isinstance(name, str) and name.split('.')[0] in FRAMEWORKS


def is_ours(value):
    """Whether something is a function of ours, or an object of a class that is ours alone."""
    if isinstance(value, types.MethodType):
        value = value.__func__
    if isinstance(value, types.FunctionType):
        return 'keras_parallax' in value.__code__.co_filename
    if isinstance(value, type):
        return False
    modules = [cls.__module__ for cls in type(value).__mro__]
    return modules[0].startswith('keras_parallax') and not any(map(is_theirs, modules))


def train(keras, folder, callbacks=()):
    """Does what a script does with a model."""
    model = keras.models.Sequential(
        [
            keras.layers.Embedding(12, 2, input_length=1, name='words'),
            keras.layers.Flatten(),
            keras.layers.Dense(1, activation='sigmoid'),
        ]
    )
    model.compile('adam', 'binary_crossentropy', metrics=['accuracy'])
    x, y = np.arange(8).reshape(8, 1), np.ones((8, 1))
    model.fit(x, y, 4, 2, verbose=0, validation_data=(x, y), callbacks=list(callbacks))
    model.evaluate(x, y, verbose=0)
    model.predict(x)
    path = os.path.join(folder, 'weights.h5')
    model.save_weights(path)
    model.load_weights(path)
    model.set_weights(model.get_weights())
    keras.backend.set_value(model.optimizer.iterations, 3)
    return model


def owners():
    """Dict from modules and classes of theirs to what they have."""
    found = {
        module: dict(vars(module))
        for name, module in list(sys.modules.items())
        if is_theirs(name) and isinstance(module, types.ModuleType)
    }
    for thing in gc.get_objects():
        # A weak proxy of a class is no class.
        if issubclass(type(thing), type) and is_theirs(getattr(thing, '__module__', None)):
            found[thing] = dict(vars(thing))
    return found


def instances():
    """Pairs of a class of theirs and a dict of the attributes of an object of it."""
    for thing in gc.get_objects():
        cls = type(thing)
        if not is_theirs(cls.__module__) or issubclass(cls, (type, types.ModuleType)):
            continue
        try:
            yield cls, dict(object.__getattribute__(thing, '__dict__'))
        except (AttributeError, TypeError):
            continue


def name_of(owner):
    if isinstance(owner, types.ModuleType):
        return owner.__name__
    return '%s.%s' % (owner.__module__, owner.__name__)


def main():
    folder = os.path.join(FOLDER, os.environ['HOROVOD_RANK'])
    os.makedirs(folder)
    modules = [keras_module(name) for name in PACKAGES]
    kept = [train(keras, folder) for keras in modules]
    before = owners()
    known = {(cls, name) for cls, attributes in instances() for name in attributes}
    del kept[:]
    for keras in modules:
        keras.backend.clear_session()

    import keras_parallax as kp

    for keras in modules:
        with kp.ParallaxStrategy(partitions=2) as strategy:
            kept.append(train(keras, folder, [kp.callbacks.StepMetrics()]))
    replaced = {
        (name_of(owner), name)
        for owner, attributes in owners().items()
        if owner in before
        for name, value in attributes.items()
        if before[owner].get(name, owner) is not value and is_ours(value)
    }
    classes = {cls for cls, _ in known}
    attributes = {
        (name_of(cls), name)
        for cls, of_object in instances()
        if cls in classes
        for name, value in of_object.items()
        if (cls, name) not in known or is_ours(value)
    }
    if strategy.rank == 0:
        with open(os.path.join(FOLDER, 'changes.json'), 'w') as file:
            json.dump({'replaced': sorted(replaced), 'attributes': sorted(attributes)}, file)


main()
