"""What each host sends in a step, counted by the kernel. Needs root."""

import os
import re
import sys

import pytest
from emulated_cluster import EmulatedCluster

WORKER = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'bytes_worker.py')
STEPS = 40
#: Bytes a step beside the rows: requests, acknowledgements, Horovod's coordination, the watch.
OVERHEAD = 15000

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason='network namespaces need root')


@pytest.fixture(scope='module')
def cluster():
    with EmulatedCluster(2) as made:
        yield made


def bytes_per_step(cluster, rows, width, ids):
    """Bytes that each of two hosts with a worker sends in a training step, and the predicted ones.

    Returns:
        A pair of lists.
    """
    outcome = cluster.run(
        [sys.executable, WORKER, rows, width, ids, STEPS],
        environ={'TF_CPP_MIN_LOG_LEVEL': '2'},
    )
    assert outcome.code == 0, outcome.output
    sent, predicted = (
        list(map(int, re.findall(name + r' (\d+);', outcome.output)))
        for name in ('BYTES', 'PREDICTED')
    )
    assert len(sent) == len(predicted) == 2
    return sent, predicted


def floor(width, ids):
    """Half of a worker's rows are in the other's shard: each sends as many pulled and pushed."""
    return 2 * (ids // 2) * (width * 4 + 4)


@pytest.mark.parametrize('ids', [16, 1024, 4096])
def test_a_step_sends_each_unique_row_once_each_way_and_never_the_table(cluster, ids):
    rows, width = 20000, 64
    for sent, predicted in zip(*bytes_per_step(cluster, rows, width, ids)):
        assert sent <= 1.05 * floor(width, ids) + OVERHEAD
        # Half of the rows must really travel, or something other than training was counted.
        assert sent >= 0.95 * floor(width, ids)
        assert sent < rows * width * 4
        assert abs(sent - predicted) <= 0.1 * predicted + OVERHEAD


def test_the_bytes_of_a_step_do_not_depend_on_the_size_of_the_table(cluster):
    small, _ = bytes_per_step(cluster, 5000, 64, 1024)
    large, _ = bytes_per_step(cluster, 200000, 64, 1024)
    assert sum(large) <= 1.05 * sum(small) + OVERHEAD
