# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Run by `horovodrun`: saves models while they train, or goes on from what was saved.

Usage: saving_worker.py FOLDER PACKAGE save|resume CASE[:FORM]...

`save` trains each case for half of the steps, saves it in every form and trains to the end.
`resume` trains the other half, each case from the form named. What a worker ends with goes to
FOLDER/RESULT/RANK.npz, with the name of what it shows as RESULT.
"""

import functools
import os
import sys

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir))
import cases  # noqa: E402
import saved  # noqa: E402
from raised import error_of  # noqa: E402

import keras_parallax as kp  # noqa: E402
from keras_parallax.engine.job import job  # noqa: E402


def share(case, strategy, begin, end):
    """This worker's part of the joined batches, which two workers share, as one batch each."""
    return cases.batches(case, saved.RANKS, begin, end, strategy.rank, strategy.size)


def fit(model, case, strategy, begin, end, callbacks=(), **arguments):
    ids, targets = zip(*share(case, strategy, begin, end))
    inputs = list(zip(*ids)) if isinstance(ids[0], list) else [ids]
    model.fit(
        [np.concatenate(batches) for batches in inputs],
        np.concatenate(targets),
        batch_size=len(targets[0]),
        shuffle=False,
        verbose=0,
        callbacks=list(callbacks),
        **arguments,
    )


def build(keras, case, **wrap):
    """A compiled model in the scope of a strategy; start weights that nothing depends on."""
    keras.backend.clear_session()
    with kp.ParallaxStrategy() as strategy:
        model = case.model(keras)
        model.compile(kp.ParallaxOptimizer(case.optimizer(keras), **wrap), case.loss)
    model.set_weights(cases.start_weights(model))
    return strategy, model


def note(folder, name, strategy, model, **others):
    """Writes what this worker has."""
    folder = os.path.join(folder, 'results', name)
    os.makedirs(folder, exist_ok=True)
    weights = model.get_weights() + model.optimizer.get_weights()
    np.savez(os.path.join(folder, '%d.npz' % strategy.rank), *weights, **others)


def save(folder, keras, name):
    case = cases.CASES[name]
    strategy, model = build(keras, case, **saved.CASES[name])
    np.random.seed(100 + strategy.rank)
    in_folder = functools.partial(os.path.join, folder)
    callbacks = [
        kp.callbacks.BroadcastGlobalVariablesCallback(0),
        kp.callbacks.ModelCheckpoint(in_folder(name + '.single.h5')),
        kp.callbacks.ModelCheckpoint(in_folder(name + '.parts'), sharded=True),
    ]
    if strategy.is_chief:
        path = in_folder(name + '.callback.h5')
        callbacks.append(keras.callbacks.ModelCheckpoint(path))
        path = in_folder(name + '.alone.h5')
        callbacks.append(kp.callbacks.ModelCheckpoint(path))
    fit(model, case, strategy, 0, saved.HALF, callbacks)
    if strategy.is_chief:
        model.save(in_folder(name + '.h5'))
        model.save_weights(in_folder(name + '.weights.h5'))
        kp.export_saved_model(model, in_folder(name + '.export'))
        with open(in_folder(name + '.json'), 'w') as file:
            file.write(model.to_json())
    cases.train(model, share(case, strategy, saved.HALF, saved.STEPS))
    note(folder, 'unbroken/' + name, strategy, model, next_random=np.random.uniform(size=3))


def resume(folder, keras, name, form):
    """Goes on from a checkpoint, in a job of another size than the one that saved it."""
    case, path = cases.CASES[name], os.path.join(folder, '%s.%s' % (name, form))
    if form in ('h5', 'plain.h5', 'parts'):
        keras.backend.clear_session()
        with kp.ParallaxStrategy() as strategy:
            # Our own files have the options but for optimizers of tables.
            wrap = saved.CASES[name]
            own = {key: wrap[key] for key in wrap if form == 'plain.h5' or key == 'tables'}
            model = kp.load_model(path, **own)
        epoch = 1
    else:
        strategy, model = build(keras, case, **saved.CASES[name])
        # Whatever was before must not count.
        cases.train(model, share(case, strategy, 0, 1))
        keras.backend.set_value(model.optimizer.lr, 123.0)
        epoch = strategy.resume(model, path)
    loaded = model.get_weights() + model.optimizer.get_weights()
    random = np.random.uniform(size=3)
    fit(model, case, strategy, saved.HALF, saved.STEPS)
    others = {'loaded.%d' % number: value for number, value in enumerate(loaded)}
    result = 'resumed/%d/%s.%s' % (strategy.size, name, form)
    note(folder, result, strategy, model, epoch=epoch, next_random=random, **others)


def load_alone(path, strategy, model, before):
    """The weights after rank 0 alone has loaded a file by names; those of before are set again."""
    # The others may still be comparing what they have with what they had.
    job.start().barrier()
    if strategy.is_chief:
        model.load_weights(path, by_name=True)
    job.start().barrier()
    loaded = model.get_weights()
    job.start().barrier()
    model.set_weights(before)
    job.start().barrier()
    return loaded


def refuse(folder, keras):
    """What cannot be loaded is told with its name; the model trains on."""
    strategy, model = build(keras, cases.CASES['adam'])
    before = model.get_weights()
    errors = {}
    for name in ('cut.h5', 'cut.parts', 'mixed.parts', 'empty.parts', 'missing.h5'):
        path = os.path.join(folder, name)
        errors[name] = error_of(strategy.resume, model, path)
    errors['optimizer'] = error_of(strategy.resume, model, os.path.join(folder, 'adagrad.h5'))
    errors['weights'] = error_of(kp.load_model, os.path.join(folder, 'adam.weights.h5'))
    with strategy:
        path = os.path.join(folder, 'adam.weights.h5')
        errors['no model'] = error_of(kp.load_model, path)
    errors['shape'] = error_of(model.optimizer.set_weights, [np.zeros(3)])
    same = all(map(np.array_equal, before, model.get_weights()))
    loaded = load_alone(os.path.join(folder, 'adam.weights.h5'), strategy, model, before)
    cases.train(model, share(cases.CASES['adam'], strategy, 0, saved.STEPS))
    loaded = {'loaded.%d' % number: value for number, value in enumerate(loaded)}
    note(folder, 'refused', strategy, model, same=same, **loaded, **errors)


def main(folder, package, phase, *asked):
    keras = cases.keras_module(package)
    if phase == 'save':
        for name in asked:
            save(folder, keras, name)
        return
    for name in asked:
        resume(folder, keras, *name.split(':'))
    if kp.ParallaxStrategy().size > 1:
        refuse(folder, keras)
    job.start().barrier()


main(*sys.argv[1:])
