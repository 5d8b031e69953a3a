# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Records of what workers saw, and copies of jobs, without a cluster."""

import subprocess
import time

import pytest
from cluster import emulated_cluster
from measuring import measure, suites


def test_a_record_has_the_slowest_ranks_steps_and_the_mean_of_all_losses():
    def seen(rank, seconds, losses):
        return dict(
            rank=rank, local_rank=0, warmup=1, steps=3, seconds=seconds, losses=losses, sent=10.0,
            received=20.0, cpu_seconds=0.5, peak_mib=100, start_peak_mib=200, unit='words',
            units=6, first_step_seconds=rank,
        )  # fmt: skip

    job = [
        seen(0, [1.0, 5.0, 2.0], [8.0, 6.0, 4.0, 2.0, 1.0]),
        seen(1, [3.0, 1.0, 1.0], [6.0, 6.0, 4.0, 2.0, 2.0]),
    ]
    record = measure.summary([job])
    assert record['step_seconds'] == 3.0 and record['units_per_second'] == 4.0
    assert record['losses'] == [7.0, 6.0, 4.0, 2.0, 1.5] and record['first_step_seconds'] == 1
    # Where one worker reports for all, its losses are theirs.
    of_one = [dict(job[0]), dict(job[1], losses=[])]
    assert measure.summary([of_one])['losses'] == job[0]['losses']
    # A copy trains by itself: its steps count, but nobody waits for it.
    copy = [
        dict(seen(0, [4.0, 4.0, 4.0], [9.0]), cpu_seconds=1.5),
        dict(seen(1, [1.0, 1.0, 1.0], [9.0]), cpu_seconds=1.5),
    ]
    record = measure.summary([job, copy])
    assert record['step_seconds'] == 4.0 and record['units_per_second'] == 3.0
    assert record['steps'] == 6 and record['cpu_seconds'] == 1.0 and record['losses'][0] == 7.0


@pytest.mark.parametrize('last, found', [('touch second', ['first', 'second']), ('exit 1', None)])
def test_a_copy_may_end_before_the_others_if_it_has_left_what_it_saw(tmp_path, last, found):
    commands = {'first': 'touch first', 'second': 'sleep 0.5; ' + last}
    copies = [
        measure.Copy(
            emulated_cluster.Job(subprocess.Popen(['sh', '-c', command], cwd=tmp_path), ''), name
        )
        for name, command in commands.items()
    ]

    def left(copy):
        return copy.path if (tmp_path / copy.path).exists() else None

    assert measure.wait(copies, time.time() + 60, left) == found


def test_copies_of_a_job_keep_a_machine_busy():
    def copies(hosts, share, cores):
        return measure.copies_of({'hosts': hosts, 'cores_per_host': share}, cores)

    assert [copies(hosts, 0.25, 2) for hosts in (1, 2, 4, 8, 16)] == [8, 4, 2, 1, 1]
    assert [copies(hosts, 0.5, 2) for hosts in (1, 2, 8)] == [4, 2, 1]
    assert [copies(hosts, 0.083, 2) for hosts in (1, 2, 8)] == [24, 12, 3]
    assert copies(2, 0.25, 64) == 4 and copies(2, None, 2) == 1
    case = {'hosts': 2, 'cores_per_host': 0.25}
    assert [measure.copies_of(case, 2, systems) for systems in (1, 2, 3, 4)] == [4, 2, 1, 1]


def test_the_three_systems_of_the_dense_suite_train_side_by_side_on_eight_hosts_each():
    cores = suites.cores_of('dense')
    cases = suites.cases('dense', hosts=(8,), cores_per_host=cores)
    (group,) = suites.side_by_side(suites.jobs(cases), measure._hosts_for(cases[0], 2))
    assert [job[0]['system'] for job in group] == ['hvd-keras', 'hvd-allgather', 'hybrid']
    assert measure.copies_of(cases[0], 2, len(group)) == 1
