"""TensorFlow merges two of Horovod's operations of the same input, unless it is kept from it.

Which of the two names is left differs from process to process, so that ranks wait for ever.
"""

import pytest
import tensorflow as tf
from systems import settings

from keras_parallax.compat import session_config
from keras_parallax.compat.horovod_api import horovod_ops, hvd
from keras_parallax.job.collectives import unmerged

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
        (unmerged, tf.ConfigProto()),
        (as_it_is, session_config.of_local(session_config.of_worker(0))),
        (as_it_is, settings.horovod_config(threads=1)),
    ],
    ids=['ours', 'local session', 'benchmarks'],
)
def test_every_collective_runs(wrap, config):
    assert collectives_that_run(wrap, config) == NAMES
