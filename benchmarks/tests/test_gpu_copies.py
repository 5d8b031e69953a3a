# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Copies between host and card, as TensorFlow notes them, with two CPUs for host and card."""

from gpu import copies
from works.stack import tf


def traced_step():
    """A step that sends 400 bytes to the second device, and the same back."""
    with tf.Graph().as_default():
        with tf.device('/cpu:0'):
            numbers = tf.random_normal([10, 10])
        with tf.device('/cpu:1'):
            added = numbers + 1
        with tf.device('/cpu:0'):
            total = tf.reduce_sum(added * 2)
        metadata = tf.RunMetadata()
        options = tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE, output_partition_graphs=True)
        with tf.Session(config=tf.ConfigProto(device_count={'CPU': 2})) as session:
            session.run(total, options=options, run_metadata=metadata)
    return metadata


def test_copies_between_devices_are_counted_with_their_bytes():
    found = copies.in_graphs(traced_step(), lambda device: 'hd'[int(device[-1])])
    assert found == dict(to_card=1, to_card_bytes=400, from_card=1, from_card_bytes=400)


def test_a_host_alone_copies_nothing():
    assert copies.in_graphs(traced_step()) == copies.NOTHING
    assert copies.kind('/job:worker/replica:0/task:0/device:GPU:0') == 'd'
    assert copies.kind('/job:worker/replica:0/task:0/device:CPU:0') == 'h'


def test_the_trace_of_a_card_has_copies_on_a_line_of_their_own():
    stats = tf.RunMetadata().step_stats
    # Made as TensorFlow's conversion of CUPTI's events is documented: no card has shown it here.
    for device, labels in (
        ('/device:GPU:0/stream:14', ['MEMCPYHtoD num_bytes:4096 kind_src:pageable']),
        ('/device:GPU:0/memcpy', ['MEMCPYHtoD num_bytes:4096', 'MemcpyD2H size:12', 'MEMSET']),
    ):
        line = stats.dev_stats.add()
        line.device = device
        for label in labels:
            line.node_stats.add().timeline_label = label
    assert copies.in_trace(stats) == dict(
        to_card=1, to_card_bytes=4096, from_card=1, from_card_bytes=12
    )
