# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What each host sends in a step, counted by the kernel. Needs root."""

import os
import re
import sys

import pytest
from cluster.emulated_cluster import EmulatedCluster

WORKER = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'bytes_worker.py')
STEPS = 40
#: Bytes a step beside the rows: requests, acknowledgements, Horovod's coordination, the watch.
OVERHEAD = 15000

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason='network namespaces need root')


@pytest.fixture(scope='module')
def cluster():
    with EmulatedCluster(4) as made:
        yield made


def bytes_per_step(cluster, rows, width, ids, hosts=2, units=1, dense=0):
    """Bytes that each of some hosts with a worker sends in a training step.

    Returns:
        Lists: the bytes that were counted, those that the plan predicts, the floor, and those that
        `StepMetrics` would log.
    """
    outcome = cluster.run(
        [sys.executable, WORKER, rows, width, ids, STEPS, 1, units, dense],
        environ={'TF_CPP_MIN_LOG_LEVEL': '2'},
        hosts=list(range(hosts)),
    )
    assert outcome.code == 0, outcome.output
    found = [
        list(map(int, re.findall(name + r' (\d+);', outcome.output)))
        for name in ('BYTES', 'PREDICTED', 'FLOOR', 'MEASURED')
    ]
    assert [len(numbers) for numbers in found] == [hosts] * 4
    return found


def floor(width, ids):
    """Half of a worker's rows are in the other's shard: each sends as many pulled and pushed."""
    return 2 * (ids // 2) * (width * 4 + 4)


@pytest.mark.parametrize('ids', [16, 1024, 4096])
def test_a_step_sends_each_unique_row_once_each_way_and_never_the_table(cluster, ids):
    rows, width = 20000, 64
    for sent, predicted, _, measured in zip(*bytes_per_step(cluster, rows, width, ids)):
        assert sent <= 1.05 * floor(width, ids) + OVERHEAD
        # Half of the rows must really travel, or something other than training was counted.
        assert sent >= 0.95 * floor(width, ids)
        assert sent < rows * width * 4
        assert abs(sent - predicted) <= 0.1 * predicted + OVERHEAD
        assert abs(sent - measured) <= 0.05 * measured + OVERHEAD


def test_four_hosts_send_at_most_a_tenth_more_than_the_rows_and_a_ring_of_dense_gradients(cluster):
    width, ids, units = 64, 4096, 4096
    # Three of four rows lie on another host: each goes once each way. A ring of four passes one and
    # a half times the dense gradients.
    least = 3 * 2 * (ids // 4) * width * 4 + 1.5 * (width + 1) * units * 4
    found = bytes_per_step(cluster, 20000, width, ids, hosts=4, units=units)
    for sent, predicted, said, measured in zip(*found):
        assert abs(said - least) <= 0.03 * least  # Row numbers are in the plan's floor.
        assert least <= sent <= 1.1 * least
        assert abs(sent - predicted) <= 0.1 * predicted
        assert measured <= sent <= 1.1 * measured


def test_the_bytes_of_a_step_do_not_depend_on_the_size_of_the_table(cluster):
    small, *_ = bytes_per_step(cluster, 5000, 64, 1024)
    large, *_ = bytes_per_step(cluster, 200000, 64, 1024)
    assert sum(large) <= 1.05 * sum(small) + OVERHEAD


def test_a_table_that_is_made_dense_is_sent_whole_with_a_number_for_each_row(cluster):
    rows, width = 20000, 3
    # Of two hosts, each passes on half of the numbers twice.
    expected = rows * (width + 1) * 4
    for sent, predicted, _, measured in zip(*bytes_per_step(cluster, rows, width, 64, dense=1)):
        assert predicted == pytest.approx(expected, rel=0.001)
        assert measured == pytest.approx(expected, rel=0.001)
        assert expected <= sent <= 1.1 * expected + OVERHEAD
