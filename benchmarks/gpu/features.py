# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Trains and exports with what the other scripts leave out: see `features` in `parts.py`.

Usage: features.py tf_keras|tensorflow
"""

import os
import sys
import tempfile

import numpy as np

from gpu.reporting import is_small, relative, report, report_error

NAME = sys.argv[1]
if NAME == 'tf_keras':
    from works.stack import HAS_TENSORFLOW_2, K, keras, keras_optimizers, tf

    if HAS_TENSORFLOW_2:
        # Policies of mixed precision have no effect without.
        tf.keras.layers.enable_v2_dtype_behavior()
else:
    os.environ['KERAS_BACKEND'] = NAME
    import keras

import keras_parallax as kp  # noqa: E402
from keras_parallax.engine.job import job  # noqa: E402

ROWS, WIDTH, FIELDS = (1000, 8, 4) if is_small() else (100000, 64, 26)
BATCH, STEPS = (64, 8) if is_small() else (2048, 20)
#: What numbers of 16 bits may change: they have 11 significant bits, and errors add up over steps.
BOUND_OF_16_BITS = 1e-2
#: What an exported model may answer otherwise than the model.
BOUND_OF_EXPORT = 1e-5


def batches():
    """This rank's batches of ids and targets."""
    random = np.random.RandomState(5 + int(os.environ.get('HOROVOD_RANK', '0')))
    for _ in range(STEPS):
        ids = ((random.zipf(1.2, (BATCH, FIELDS)) - 1) % ROWS).astype(np.int32)
        yield ids, (1 + ids[:, :1] % 2).astype(np.float32)


def adagrad():
    """The optimizer."""
    return (keras_optimizers() if NAME == 'tf_keras' else keras.optimizers).Adagrad(0.05)


def model_of(lookup, dtype='int32', **last):
    """A model of a lookup and two dense layers."""
    # One object for both layers: their shapes differ.
    options = {'kernel_initializer': keras.initializers.GlorotUniform(7)}
    ids = keras.layers.Input((FIELDS,), dtype=dtype)
    hidden = keras.layers.Flatten()(lookup(ids))
    hidden = keras.layers.Dense(64, activation='relu', **options)(hidden)
    return keras.models.Model(ids, keras.layers.Dense(1, **options, **last)(hidden))


def table():
    """A table with the same start values each time."""
    start = keras.initializers.RandomUniform(-0.05, 0.05, seed=3)
    return keras.layers.Embedding(ROWS, WIDTH, embeddings_initializer=start)


def clear():
    """Begins anew."""
    (K.clear_session if NAME == 'tf_keras' else keras.utils.clear_session)()


def train(build, wrap=lambda optimizer: optimizer, ids_of=lambda ids: ids, **arguments):
    """Trains in a strategy; returns the model and the losses, means over ranks."""
    clear()
    with kp.ParallaxStrategy(**arguments):
        model = build()
        model.compile(wrap(adagrad()), 'mse')
    losses = [float(np.ravel(model.train_on_batch(ids_of(x), y))[0]) for x, y in batches()]
    return model, [float(loss) for loss in np.mean(job.start().gather(losses), 0)]


def report_training(check, losses, others=None, **numbers):
    """Reports whether losses fall, and whether they are like others."""
    falls = bool(np.isfinite(losses).all() and np.mean(losses[-3:]) < losses[0])
    off = relative(losses, others) if others else 0.0
    reason = '' if falls else 'the loss does not fall'
    if off > BOUND_OF_16_BITS:
        reason = 'differs from single precision by more than the bound'
    if others:
        numbers.update(losses_off=off, bound=BOUND_OF_16_BITS)
    report(check, not reason, reason, first_loss=losses[0], last_loss=losses[-1], **numbers)


def dynamic():
    """A table whose rows are given to raw ids in training."""
    ids_of = lambda ids: ids.astype(np.int64) * 2654435761 + 7  # noqa: E731
    layer = kp.layers.DynamicEmbedding
    model, losses = train(
        lambda: model_of(layer(WIDTH, capacity=8 * ROWS, name='users'), 'int64'), ids_of=ids_of
    )
    del model
    report_training('DynamicEmbedding', losses)


def fp16(single):
    """Rows of 16 bits on servers, and gradients and rows of 16 bits on their way."""
    half = kp.Compression.fp16
    _, losses = train(
        lambda: model_of(table()),
        lambda optimizer: kp.ParallaxOptimizer(optimizer, compression=half, pull_compression=half),
        row_dtype='float16',
    )
    report_training('fp16 rows and gradients', losses, single)


def mixed(single):
    """The policy by which layers compute in 16 bits."""

    def build():
        # Here, for Keras 3 forgets the policy where a session is cleared.
        former = policy('mixed_float16')
        try:
            return model_of(table())
        finally:
            policy(former)

    model, losses = train(build)
    assert model.layers[-1].compute_dtype == 'float16', model.layers[-1].compute_dtype
    # Keras 3 scales losses, and leaves out the first steps, whose gradients are too large.
    report_training('mixed precision', losses, single if NAME == 'tf_keras' else None)


def policy(name):
    """Sets the policy of new layers; returns the former one."""
    if NAME == 'tf_keras':
        former = keras.mixed_precision.global_policy()
        keras.mixed_precision.set_global_policy(name)
    else:
        former = keras.config.dtype_policy()
        keras.config.set_dtype_policy(name)
    return former


def export(model):
    """Exports, and compares what TensorFlow alone says with what the model says."""
    ids, _ = next(batches())
    predicted = np.asarray(model.predict(ids))
    job.start().barrier()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, 'model')
        if NAME == 'tf_keras':
            # Rank 0 alone: each rank has a folder of its own.
            served = exported_by_keras_2(model, path, ids) if is_chief() else None
        else:
            model.export(path, verbose=False)
            if is_chief():
                import tensorflow

                # Its variables live as long as it does.
                loaded = tensorflow.saved_model.load(path)
                served = np.asarray(loaded.serve(ids))
    job.start().barrier()
    if is_chief():
        off = relative(served, predicted)
        passed = off <= BOUND_OF_EXPORT
        report('export', passed, '' if passed else 'answers differ', off=off, bound=BOUND_OF_EXPORT)


def is_chief():
    """Whether this is rank 0."""
    return job.start().rank == 0


def exported_by_keras_2(model, path, ids):
    """What a SavedModel says, loaded into a graph of its own."""
    kp.export_saved_model(model, path)
    with tf.Graph().as_default(), tf.Session(config=job.start().config) as session:
        loaded = tf.saved_model.loader.load(session, ['serve'], path)
        signature = loaded.signature_def['serving_default']
        (entry,), (answer,) = signature.inputs.values(), signature.outputs.values()
        return session.run(answer.name, {entry.name: ids})


def main():
    """Makes all checks of a Keras."""
    model, single = train(lambda: model_of(table()))
    # First, for the model is gone when the session is cleared.
    report_error('export', lambda: export(model))
    if NAME == 'tf_keras':
        report_error('DynamicEmbedding', dynamic)
        report_error('fp16 rows and gradients', lambda: fp16(single))
        if not HAS_TENSORFLOW_2:
            return
    report_error('mixed precision', lambda: mixed(single))


if __name__ == '__main__':
    main()
