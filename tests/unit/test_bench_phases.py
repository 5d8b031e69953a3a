"""The benchmarks' choice of cases, and how a job goes through its phases, without a cluster."""

import os
import subprocess
import sys
import threading
import time

import pytest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), '..', '..', 'benchmarks'))
import emulated_cluster  # noqa: E402
import measure  # noqa: E402
import phases  # noqa: E402
import schedule  # noqa: E402
import suites  # noqa: E402


def test_what_sends_nothing_is_measured_once_whatever_the_link_speeds():
    found = suites.cases('lm', hosts=(1, 2), systems=('tf', 'hybrid'), bandwidths=(200, None))
    assert [(case['system'], case['hosts'], case['bandwidth_mbit']) for case in found] == [
        ('tf', 1, None), ('hybrid', 1, None), ('hybrid', 2, 200), ('hybrid', 2, None),
    ]  # fmt: skip


def test_every_suite_has_cases_and_one_process_systems_come_with_one_host_only():
    for suite in suites.SUITES:
        cases = suites.cases(suite)
        assert cases
        for case in cases:
            assert (case['system'] in suites.ALONE) <= (case['hosts'] == 1)


def test_a_job_measures_all_link_speeds_of_a_case_the_fastest_first():
    cases = suites.cases(
        'lm', hosts=(1, 2), systems=('hvd-allgather', 'hybrid'), bandwidths=(40, None, 200)
    )
    jobs = suites.jobs(cases)
    found = [
        (job[0]['system'], job[0]['hosts'], [case['bandwidth_mbit'] for case in job])
        for job in jobs
    ]
    assert found == [
        ('hybrid', 1, [None]),
        ('hvd-allgather', 2, [None, 200, 40]),
        ('hybrid', 2, [None, 200, 40]),
    ]
    for job in jobs:
        assert all(dict(case, bandwidth_mbit=None) == dict(job[0], bandwidth_mbit=None)
                   for case in job)  # fmt: skip


def test_every_case_of_a_suite_is_in_one_job():
    for suite in suites.SUITES:
        cases = suites.cases(suite)
        taken = [case for job in suites.jobs(cases) for case in job]
        assert len(taken) == len(cases) and all(case in taken for case in cases)


def test_what_sends_tables_whole_is_not_measured_at_the_speed_of_a_headline():
    speeds = {}
    for case in suites.cases('lm', hosts=(8,)):
        speeds.setdefault(case['system'], set()).add(case['bandwidth_mbit'])
    headline = suites.SUITES['lm']['headline']
    assert speeds['hybrid'] - speeds['hvd-dense'] == {headline}
    asked = suites.cases('lm', hosts=(8,), systems=['hvd-dense'], bandwidths=(headline,))
    assert [case['bandwidth_mbit'] for case in asked] == [headline]


def test_rounds_share_the_steps_of_a_suite():
    for suite in suites.SUITES:
        steps = {case['steps'] for case in suites.cases(suite, steps=30)}
        assert steps == {30 // suites.rounds_of(suite)}
    assert suites.rounds_of('dense') > 1 == suites.rounds_of('lm')


def test_long_steps_are_measured_a_few_times_only():
    assert [schedule.steps(30, seconds) for seconds in (0.1, 2.0, 60.0)] == [30, 15, 5]
    assert [schedule.warmup(12, seconds) for seconds in (0.1, 3.0, 60.0)] == [12, 10, 2]
    assert schedule.steps(2, 60.0) == 2


@pytest.mark.parametrize(
    'slowest, warmup, steps', [(0.01, 5, 30), (2.0, 5, 15), (60.0, 2, 5)], ids=str
)
def test_the_slowest_rank_settles_how_many_steps_a_phase_has(slowest, warmup, steps):
    began, seen = [], []

    def step(inputs, target):
        seen.append(inputs)
        return float(target)

    batches = iter([(number, -number) for number in range(100)])
    trained = phases.train(
        step,
        lambda: next(batches),
        lambda value: [value, slowest],
        5,
        30,
        lambda: began.append(len(seen)),
    )
    assert (trained.warmup, trained.steps) == (warmup, steps) and began == [warmup]
    assert seen == list(range(warmup + steps)) and len(trained.seconds) == warmup + steps
    assert trained.losses == [-number for number in seen]


def test_rank_0_waits_for_the_links_in_each_phase(tmp_path):
    path = str(tmp_path / 'seen')
    for phase in range(2):
        assert not phases.is_ready(path, phase)
        rank = threading.Thread(target=phases.wait_for_links, args=(path, phase))
        rank.start()
        while not phases.is_ready(path, phase):
            assert rank.is_alive()
        phases.begin(path, phase)
        rank.join()


def test_a_phase_counts_when_every_rank_has_left_what_it_saw(tmp_path):
    path = str(tmp_path / 'seen')
    for rank in (1, 0):
        assert phases.read(path, 0, 2) is None
        phases.write(path, 0, rank, {'rank': rank})
    assert phases.read(path, 0, 2) == [{'rank': 0}, {'rank': 1}]
    assert phases.read(path, 1, 2) is None


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

    assert measure._wait(copies, time.time() + 60, left) == found


def test_copies_of_a_job_keep_a_machine_busy():
    def copies(hosts, share, cores):
        return measure.copies_of({'hosts': hosts, 'cores_per_host': share}, cores)

    assert [copies(hosts, 0.25, 2) for hosts in (1, 2, 4, 8, 16)] == [8, 4, 2, 1, 1]
    assert [copies(hosts, 0.5, 2) for hosts in (1, 2, 8)] == [4, 2, 1]
    assert [copies(hosts, 0.083, 2) for hosts in (1, 2, 8)] == [24, 12, 3]
    assert copies(2, 0.25, 64) == 4 and copies(2, None, 2) == 1
    case = {'hosts': 2, 'cores_per_host': 0.25}
    assert [measure.copies_of(case, 2, systems) for systems in (1, 2, 3, 4)] == [4, 2, 1, 1]


def test_systems_train_side_by_side_as_many_as_there_are_hosts_for():
    def groups(hosts, room, bandwidths=None):
        cases = suites.cases(
            'lm',
            hosts=hosts,
            systems=('hvd-keras', 'tf-ps', 'hybrid', 'ps'),
            bandwidths=bandwidths,
        )
        jobs = suites.jobs(cases)
        found = suites.side_by_side(jobs, room)
        assert sorted(map(id, jobs)) == sorted(id(job) for group in found for job in group)
        return [[job[0]['system'] for job in group] for group in found]

    speeds = (None, 200)
    assert groups((2,), 8, speeds) == [['hvd-keras', 'tf-ps', 'hybrid', 'ps']]
    assert groups((4,), 8, speeds) == [['hvd-keras', 'tf-ps'], ['hybrid', 'ps']]
    one_by_one = [['hvd-keras'], ['tf-ps'], ['hybrid'], ['ps']]
    assert groups((8,), 8, speeds) == groups((2,), 1, speeds) == one_by_one
    # One that leaves a link speed out would be done with the others still at work.
    assert groups((2,), 8) == [['hvd-keras'], ['tf-ps', 'hybrid', 'ps']]


def test_the_three_systems_of_the_dense_suite_train_side_by_side_on_eight_hosts_each():
    cores = suites.cores_of('dense')
    cases = suites.cases('dense', hosts=(8,), cores_per_host=cores)
    (group,) = suites.side_by_side(suites.jobs(cases), measure._hosts_for(cases[0], 2))
    assert [job[0]['system'] for job in group] == ['hvd-keras', 'hvd-allgather', 'hybrid']
    assert measure.copies_of(cases[0], 2, len(group)) == 1
