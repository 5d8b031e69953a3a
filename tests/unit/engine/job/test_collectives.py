# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""How a worker waits in a collective, and what keeps TensorFlow from merging two.

TensorFlow merges two of Horovod's operations of the same input. Which of the two names is left
differs from process to process, so that workers wait for ever.
"""

import threading

import pytest
from frameworks import tf
from systems import settings

from keras_parallax.compat import session_config
from keras_parallax.compat.horovod_api import horovod_ops, hvd
from keras_parallax.engine.job.collectives import run_beside, unmerged

NAMES = {'ids_of_one_table', 'ids_of_another'}


def collectives_that_run(wrap, config):
    """The names of the allgathers that a session runs when two tables have the same ids."""
    hvd.init()
    with tf.Graph().as_default(), tf.Session(config=config) as session:
        ids = tf.placeholder(tf.int32, [None])
        gathered = [wrap(horovod_ops.allgather(ids, name=name)) for name in sorted(NAMES)]
        seen = tf.RunMetadata()
        # Twice: grappler's work is done on the first.
        for _ in range(2):
            session.run(
                gathered, {ids: [1, 2]}, tf.RunOptions(output_partition_graphs=True), seen
            )  # fmt: skip
        nodes = [node for graph in seen.partition_graphs for node in graph.node]
        return {node.name for node in nodes if node.op == 'HorovodAllgather'}


def as_it_is(tensor):
    return tensor


def test_tensorflow_merges_collectives_of_the_same_input():
    """Should this fail, Horovod or TensorFlow has mended it, and `unmerged` may go."""
    assert len(collectives_that_run(as_it_is, tf.ConfigProto())) == 1


@pytest.mark.parametrize(
    'wrap, config',
    [
        (unmerged, tf.ConfigProto),
        (as_it_is, lambda: session_config.of_local(session_config.of_worker(0))),
        (as_it_is, lambda: settings.horovod_config(threads=1)),
    ],
    ids=['ours', 'local session', 'benchmarks'],
)
def test_every_collective_runs(wrap, config):
    assert collectives_that_run(wrap, config()) == NAMES


def test_what_a_collective_returns_or_raises_comes_to_who_waits_for_it():
    assert run_beside(lambda: 7, lambda: None) == 7
    with pytest.raises(KeyError, match='no such'):
        run_beside(lambda: {}['no such'], lambda: None)


def test_a_rank_waits_no_longer_than_the_job_can_go_on():
    over, lost = threading.Event(), KeyError('a worker is lost')
    threading.Timer(1, over.set).start()
    with pytest.raises(KeyError, match='a worker is lost'):
        run_beside(lambda: threading.Event().wait(60), lambda: lost if over.is_set() else None)


def test_no_collective_begins_where_the_job_cannot_go_on():
    with pytest.raises(KeyError, match='a worker is lost'):
        run_beside(pytest.fail, lambda: KeyError('a worker is lost'))
