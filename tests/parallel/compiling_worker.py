# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Run by `horovodrun`: models that plain Keras compiles, in the scope of a strategy and outside.

Usage: compiling_worker.py FOLDER PACKAGE NAME... Each worker writes what the script or the function
called NAME returns, a list of arrays, to FOLDER/NAME.RANK.npz. PACKAGE is `tf.keras` or `alias`,
which is tf.keras under the name `keras`, or `keras`, which is imported in the first scope.
"""

import contextlib
import functools
import importlib
import os
import sys
import traceback
import warnings

import numpy as np
from frameworks import keras_module, tf

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir))
import user_scripts  # noqa: E402
from raised import error_of  # noqa: E402

import keras_parallax as kp  # noqa: E402

# --- What is refused, or warned about ----------------------------------------------------------


def compiled_after(run):
    """What is raised by training a model of a scope that is compiled after it, and its weights."""
    errors = []
    for optimizer in ('sgd', run.keras.optimizers.Adam(), tf.train.AdagradOptimizer(0.1)):
        with run.scope():
            model = user_scripts.words_and_dense(run.keras)
        model.compile(optimizer, 'mse')
        before = model.get_weights()
        errors += [error_of(run.fit, model), error_of(model.train_on_batch, *run.data())]
        assert all(map(np.array_equal, before, model.get_weights()))
        # It may be evaluated.
        assert np.isfinite(model.evaluate(*run.data(), verbose=0))
    with run.scope():
        model.compile('adagrad', 'mse')
    run.fit(model)
    model.compile('sgd', 'mse')
    return errors + [error_of(run.fit, model)]


def own_step_not_wrapped(run):
    """What is raised for a step that is made of another optimizer's updates."""

    def step():
        user_scripts.own_step(run._replace(wrapped=lambda optimizer: optimizer))

    with run.scope():
        model = user_scripts.words_and_dense(run.keras)
        model.compile('sgd', 'mse')
        # Who asks for gradients alone, gets them.
        run.keras.optimizers.SGD().get_gradients(model.total_loss, model.trainable_weights)

    def native_step(optimizer):
        with run.scope():
            model = user_scripts.words_and_dense(run.keras)
            loss = run.keras.backend.mean(model.output)
            optimizer.minimize(loss, var_list=model.trainable_weights)

    import horovod.tensorflow as hvd

    adagrad = tf.train.AdagradOptimizer(0.1)
    native_step(hvd.DistributedOptimizer(adagrad))  # It exchanges gradients itself.
    return [error_of(step), error_of(native_step, adagrad)]


def step_by_hand(run):
    """What is raised for steps of gradients and assignments, and the weights after others."""
    import horovod.tensorflow as hvd

    backend = run.keras.backend
    with run.scope():
        model = user_scripts.words_and_dense(run.keras)
        model.compile('sgd', 'mse')
    words, targets = run.data()
    target = backend.placeholder(ndim=2)
    loss = backend.mean(backend.square(model.output - target))
    weights = model.trainable_weights
    gradients = [tf.convert_to_tensor(g) for g in backend.gradients(loss, weights)]

    def step(gradients, count=None):
        pairs = list(zip(weights, gradients))[-count:] if count else zip(weights, gradients)
        updates = [backend.update(w, w - 0.1 * g) for w, g in pairs]
        return backend.function([model.input, target], [loss], updates=updates)

    session, last = backend.get_session(), tf.assign_sub(weights[-1], 0.1 * gradients[-1])
    feeds = {model.input: words, target: targets}
    errors = [error_of(step(gradients), [words, targets]), error_of(session.run, last, feeds)]
    # Who exchanges the gradients, or computes no update of them, may go on.
    step([None] * (len(weights) - 1) + [hvd.allreduce(gradients[-1])], 1)([words, targets])
    session.run(backend.update(weights[-1], weights[-1] * 0.5))
    backend.function([model.input, target], gradients[-1:])([words, targets])
    return errors + [backend.get_value(weights[-1])]


def loaded_after(run):
    """What a model predicts that is loaded after the scope, of which the file has slots."""
    keras, path = run.keras, os.path.join(run.folder, 'loaded_after_%d.h5' % run.rank)
    with run.scope():
        model = user_scripts.words_and_dense(keras)
        model.compile('adagrad', 'mse')
    run.fit(model)
    model.save(path)
    words, _ = run.data()
    expected = model.predict(words)
    return [expected, keras.models.load_model(path).predict(words)]


def of_horovod(run):
    """What is raised for Horovod's optimizers."""
    import horovod.tensorflow as hvd

    # That of Horovod 0.28.1 is for the Keras package that tf.keras is, which may be Keras 3.
    name = (
        'horovod.keras' if run.keras is not keras_module('tf.keras') else 'horovod.tensorflow.keras'
    )
    wrap, sgd = importlib.import_module(name).DistributedOptimizer, run.keras.optimizers.SGD
    errors = []
    with run.scope():
        model = user_scripts.words_and_dense(run.keras)
        native = hvd.DistributedOptimizer(tf.train.AdagradOptimizer(0.1))
        for optimizer in (wrap(sgd()), native):
            errors.append(error_of(kp.ParallaxOptimizer, optimizer))
            errors.append(error_of(model.compile, optimizer, 'mse'))
        errors.append(error_of(wrap, kp.ParallaxOptimizer(sgd())))
    return errors


def loss_of_neither_kind(run):
    """What is raised for a loss that is neither a sum nor a mean over the samples."""

    def root_of_mean(targets, outputs):
        return tf.sqrt(tf.reduce_mean(tf.square(targets - outputs)))

    with run.scope():
        model = user_scripts.words_and_dense(run.keras)
        model.compile('sgd', root_of_mean)
    run.start(model)
    before = model.get_weights()
    errors = [error_of(run.fit, model), error_of(model.train_on_batch, *run.data())]
    assert all(map(np.array_equal, before, model.get_weights()))
    with run.scope():
        sgd = kp.ParallaxOptimizer(run.keras.optimizers.SGD(), loss_reduction='mean')
        model.compile(sgd, root_of_mean)
    run.fit(model)
    return errors


def cleared_inside(run):
    """What is raised when the scope's graph is no longer the default one."""
    with run.scope():
        run.keras.backend.clear_session()
        model = user_scripts.words_and_dense(run.keras)
        return [error_of(model.compile, 'sgd', 'mse')]


def warned(function, *arguments):
    """The warnings of ours that a call gives."""
    with warnings.catch_warnings(record=True) as noted:
        warnings.simplefilter('always')
        function(*arguments)
    texts = [str(warning.message) for warning in noted]
    return [text for text in texts if 'ParallaxStrategy' in text]


def never_entered(run):
    """What is warned about training outside of all scopes, and its weights."""
    kp.ParallaxStrategy()
    model = user_scripts.words_and_dense(run.keras)
    model.compile('sgd', 'mse')
    texts = warned(model.train_on_batch, *run.data()) + warned(run.fit, model)
    model = user_scripts.words_and_dense(run.keras)
    model.compile(kp.ParallaxOptimizer(run.keras.optimizers.Adagrad()), 'mse')
    texts += warned(run.fit, model) + warned(run.fit, model)
    with run.scope():
        model = user_scripts.words_and_dense(run.keras)
        model.compile('sgd', 'mse')
    return texts + warned(run.fit, model)


def main(folder, package, names):
    if package == 'alias':
        sys.modules['keras'] = tf.keras
    keras = keras_module('tf.keras') if package != 'keras' else None
    assert package != 'keras' or 'keras' not in sys.modules
    strategy = kp.ParallaxStrategy()
    for name in names:
        path = os.path.join(folder, '%s.%d' % (name, strategy.rank))
        with contextlib.ExitStack() as stack:
            if keras is None:
                stack.enter_context(strategy)
                import keras

                scope = contextlib.ExitStack
            else:
                keras.backend.clear_session()
                scope = kp.ParallaxStrategy
            run = user_scripts.Run(
                keras,
                scope,
                wrapped=kp.ParallaxOptimizer,
                summing=functools.partial(kp.ParallaxOptimizer, loss_reduction='sum'),
                rank=strategy.rank,
                ranks=strategy.size,
                folder=folder,
            )
            try:
                np.savez(path, *(user_scripts.SCRIPTS.get(name) or globals()[name])(run))
            except Exception:
                with open(path + '.error', 'w') as file:
                    file.write(traceback.format_exc())
                raise


main(sys.argv[1], sys.argv[2], sys.argv[3:])
