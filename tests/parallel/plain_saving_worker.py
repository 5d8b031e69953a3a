# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Plain Keras, in a process that can import neither Horovod nor keras-parallax.

Usage: plain_saving_worker.py FOLDER PACKAGE CASE... For each case: trains half of the steps, saves
to CASE.plain.h5, trains to the end; and trains from CASE.h5, which a job has saved, to the end.
"""

import os
import sys

for absent in ('horovod', 'keras_parallax'):
    sys.modules[absent] = None
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir))
import cases  # noqa: E402
import numpy as np  # noqa: E402
import reference  # noqa: E402
import saved  # noqa: E402
from frameworks import tf  # noqa: E402


def gated(optimizer):
    """An optimizer that does not race, with its own name."""
    name = type(optimizer).__name__
    optimizer = reference.gated(optimizer)
    type(optimizer).__name__ = name
    return optimizer


def note(folder, name, model):
    folder = os.path.join(folder, 'results', name)
    os.makedirs(folder, exist_ok=True)
    weights = model.get_weights() + model.optimizer.get_weights()
    np.savez(os.path.join(folder, '0.npz'), *weights)


def serve(folder, name, ids):
    """Predicts with what a job has exported, by TensorFlow alone."""
    with tf.Graph().as_default(), tf.Session() as session:
        tags = [tf.saved_model.tag_constants.SERVING]
        path = os.path.join(folder, name + '.export')
        signature = tf.saved_model.loader.load(session, tags, path).signature_def['serving_default']
        feeds = {
            info.name: values
            for info, values in zip(
                [signature.inputs[key] for key in sorted(signature.inputs)], ids
            )
        }
        return session.run(signature.outputs['out'].name, feeds)


def main(folder, package, *names):
    keras = cases.keras_module(package)
    for name in names:
        case = cases.CASES[name]
        keras.backend.clear_session()
        model = case.model(keras)
        model.compile(gated(case.optimizer(keras)), case.loss)
        model.set_weights(cases.start_weights(model))
        cases.train(model, cases.batches(case, saved.RANKS, 0, saved.HALF))
        note(folder, 'plain/half/' + name, model)
        model.save(os.path.join(folder, name + '.plain.h5'))
        with open(os.path.join(folder, name + '.plain.json'), 'w') as file:
            file.write(model.to_json())
        cases.train(model, cases.batches(case, saved.RANKS, saved.HALF, saved.STEPS))
        note(folder, 'plain/end/' + name, model)

        keras.backend.clear_session()
        path = os.path.join(folder, name + '.h5')
        model = reference.load_model(keras, path, type(case.optimizer(keras)))
        (batch,) = cases.joined_batches(case, saved.RANKS, 1)
        ids = batch[0] if isinstance(batch[0], list) else [batch[0]]
        served, expected = serve(folder, name, ids), model.predict(ids)
        np.testing.assert_allclose(served, expected, rtol=1e-5)
        assert len(np.unique(served)) > 1
        note(folder, 'loaded/half/' + name, model)
        cases.train(model, cases.batches(case, saved.RANKS, saved.HALF, saved.STEPS))
        note(folder, 'loaded/end/' + name, model)


main(*sys.argv[1:])
