# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The graph of a worker, as files. `tests/parallel/test_behaviour.py` has those of two workers."""

import glob

import cases
import numpy as np
import pytest
from frameworks import KERAS_PACKAGES, tf
from google.protobuf import text_format

import keras_parallax as kp

PACKAGES = pytest.mark.parametrize('package', KERAS_PACKAGES)


def fit(package, directory):
    """Trains a model; returns it, its weights before, and the graph that it was trained in."""
    keras = cases.keras_module(package)
    keras.backend.clear_session()
    model = keras.models.Sequential([keras.layers.Embedding(9, 2, input_length=1)])
    model.compile('sgd', 'mse')
    before = model.get_weights()[0]
    graphs = []
    note = keras.callbacks.LambdaCallback(
        on_train_begin=lambda logs: graphs.append(model.total_loss.graph.as_graph_def())
    )
    export = kp.callbacks.GraphExport(str(directory))
    model.fit(np.ones([4, 1]), np.ones([4, 1, 2]), verbose=0, callbacks=[export, note])
    return model, before, graphs[0]


def read(folder):
    """The graphs of a worker's two files."""
    as_text = tf.GraphDef()
    text_format.Merge(folder.join('graph.pbtxt').read(), as_text)
    (path,) = glob.glob(str(folder.join('events.out.*')))
    (events,) = [
        event.graph_def
        for event in tf.train.summary_iterator(path)
        if event.WhichOneof('what') == 'graph_def'
    ]
    return as_text, tf.GraphDef.FromString(events)


@PACKAGES
def test_both_files_have_the_graph_that_is_trained(package, tmpdir):
    with kp.ParallaxStrategy():
        *_, graph = fit(package, tmpdir.join('made', 'graphs'))
    as_text, as_events = read(tmpdir.join('made', 'graphs', 'rank-0'))
    assert as_text == graph
    for node in as_events.node:
        # What TensorBoard shows beside a node.
        node.attr.pop('_output_shapes', None)
    assert as_events == graph


@PACKAGES
def test_a_plain_model_has_a_graph_too(package, tmpdir):
    *_, graph = fit(package, tmpdir)
    assert read(tmpdir.join('rank-0'))[0] == graph


@PACKAGES
def test_what_cannot_be_written_is_warned_of_and_training_goes_on(package, tmpdir):
    file = tmpdir.join('file')
    file.write('no folder')
    with pytest.warns(UserWarning, match='could not write the graph to .*file/rank-0: .* goes on'):
        model, before, _ = fit(package, file)
    assert not np.array_equal(model.get_weights()[0], before)
