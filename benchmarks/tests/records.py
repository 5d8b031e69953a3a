# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Records of measurements that nobody took."""


def record(
    system, losses=(3.0, 2.0), seconds=1.0, sent=100.0, floor=100.0, hosts=2, suite='smoke',
    speed=200, cores=0.25, options=None,
):  # fmt: skip
    return dict(
        suite=suite, options=options or {}, system=system, hosts=hosts, workers_per_host=1,
        bandwidth_mbit=None if hosts == 1 else speed, cores_per_host=cores, losses=list(losses),
        step_seconds=seconds, step_seconds_quarter=seconds, step_seconds_three_quarters=seconds,
        sent_bytes=sent, received_bytes=sent, floor_bytes=floor, load=2.0, unit='words', steps=3,
        units_per_second=100 * hosts / seconds, cpu_seconds=0.1, peak_mib=100.0, alpha=0.5,
        first_step_seconds=1.0,
    )  # fmt: skip


def language_records(speed=40, horovod=15.0):
    """Records at 1, 2 and 8 hosts; a compute step takes a second."""
    return [
        record('tf', suite='lm', hosts=1, seconds=1.0, speed=speed),
        record('hvd-allgather', suite='lm', hosts=2, seconds=3.0, speed=speed),
        record('hybrid', suite='lm', hosts=2, seconds=2.0, speed=speed),
        record('hvd-keras', suite='lm', hosts=8, seconds=100.0, speed=speed),
        record('hvd-allgather', suite='lm', hosts=8, seconds=horovod, speed=speed),
        record('tf-ps', suite='lm', hosts=8, seconds=6.0, speed=speed),
        record('hybrid', suite='lm', hosts=8, seconds=2.5, sent=105.0, speed=speed),
    ]


def smoke_records(**changes):
    found = {
        'hvd-allgather': record('hvd-allgather', sent=200.0),
        'hybrid': record('hybrid', sent=105.0),
        'allreduce': record('allreduce', sent=150.0),
    }
    found.update(changes)
    return list(found.values())
