# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Going on from a checkpoint in one process: of a former version, too."""

import os
import shutil

import former_files
import h5py
import numpy as np
import pytest
from frameworks import tf

import keras_parallax as kp
from keras_parallax.checkpoint import manifest


@pytest.mark.parametrize('kind', former_files.KINDS)
def test_one_process_has_every_bit_of_what_a_former_version_saved(kind):
    ways = 0
    for arrays in former_files.loaded(kind):
        ways += 1
        former_files.assert_equal(kind, arrays)
    assert ways == former_files.WAYS[kind]


@pytest.mark.parametrize('form', former_files.FORMS)
def test_the_callback_removes_what_it_wrote_in_a_former_version(form, tmpdir):
    folder = os.path.join(str(tmpdir), 'run')
    shutil.copytree(os.path.join(former_files.FOLDER, 'keras'), folder)
    pattern = os.path.join(folder, form)
    strategy, model = former_files.build('keras')
    epoch = strategy.resume(model, kp.latest_checkpoint(pattern))
    callback = kp.callbacks.ModelCheckpoint(pattern, sharded='parts' in form, max_to_keep=1)
    model.fit(
        *former_files.batch(0, 1), epochs=epoch + 1, initial_epoch=epoch, verbose=0,
        callbacks=[callback],
    )  # fmt: skip
    assert not os.path.exists(pattern.format(epoch=epoch))
    assert kp.latest_checkpoint(pattern) == pattern.format(epoch=epoch + 1)


def test_a_folder_of_a_model_of_keras_3_is_refused(tmp_path):
    part = tmp_path / ('0' * 16 + '-model.weights.h5')
    h5py.File(str(part), 'w').close()
    parts = (manifest.describe_part(str(part)),)
    manifest.write_manifest(str(tmp_path), manifest.Manifest('0' * 16, parts, {}, part.name))
    strategy, model = former_files.build('keras')
    with pytest.raises(kp.CheckpointError, match='Keras 3'):
        strategy.resume(model, str(tmp_path))


@pytest.mark.parametrize('kind', ['keras', 'tf.keras'])
def test_tensorflow_serves_what_a_former_version_exported(kind):
    path = os.path.join(former_files.FOLDER, kind, 'exported')
    with tf.Graph().as_default(), tf.Session() as session:
        tags = [tf.saved_model.tag_constants.SERVING]
        signature = tf.saved_model.loader.load(session, tags, path).signature_def['serving_default']
        (given,), (returned,) = signature.inputs.values(), signature.outputs.values()
        predictions = session.run(returned.name, {given.name: former_files.batch(0, 1)[0]})
    expected = former_files.expected(kind)[2]
    np.testing.assert_allclose(predictions, expected, rtol=0, atol=1e-6)
