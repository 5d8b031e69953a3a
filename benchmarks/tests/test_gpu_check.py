# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The parts of the GPU check that need neither TensorFlow nor a card."""

import json
import os
import sys

import pytest
from gpu import check, findings, install, running, wheels
from gpu.findings import FAILED, PASSED, SKIPPED, Finding
from gpu.parts import STAGES, Part, parts

HERE = os.path.dirname(os.path.abspath(__file__))
LOCK = os.path.join(HERE, '..', '..', 'requirements', 'lock-tf2.21.txt')
HAS_EVERYTHING = dict(tensorflow=True, tf_keras=True, keras=True, jax=True)


def part(*checks, **fields):
    return Part('speed', 'a part', 'script', (), checks, **fields)


def of_speed(work, system, step_ms, verdict=PASSED):
    numbers = dict(work=work, system=system, step_ms=step_ms)
    return Finding('speed', '%s, %s' % (work, system), 'step time', verdict, '', numbers)


def test_a_budget_gives_what_is_left_and_nothing_below_the_least():
    now = [100.0]
    budget = findings.Budget(60, lambda: now[0])
    assert budget.limit(90, 15) == 60
    now[0] += 40
    assert (budget.left(), budget.limit(10, 5), budget.limit(90, 15)) == (20, 10, 20)
    now[0] += 10
    assert budget.limit(90, 15) == 0
    now[0] += 100
    assert budget.left() == 0


def test_results_are_whole_after_every_part(tmp_path):
    found = findings.Findings(str(tmp_path), {'GPU': 'none'})
    for number, verdict in enumerate((PASSED, SKIPPED, FAILED)):
        found.add([Finding('speed', 'part %d' % number, 'a|b', verdict, 'because\nof it')])
        content = json.loads((tmp_path / 'results.json').read_text())
        assert [one['part'] for one in content['findings']] == [
            'part %d' % earlier for earlier in range(number + 1)
        ]
        assert content['GPU'] == 'none'
        page = (tmp_path / 'results.md').read_text()
        assert page.count('| speed |') == number + 1
        assert 'a\\|b | %s | because of it |' % verdict in page


@pytest.mark.parametrize(
    'verdicts, code',
    [
        ([PASSED, SKIPPED], 0),
        ([PASSED, FAILED], 1),
        # If nothing was checked, nothing is known to work.
        ([SKIPPED], 1),
        ([], 1),
    ],
)
def test_the_exit_code_says_whether_anything_failed(verdicts, code, tmp_path):
    found = findings.Findings(str(tmp_path), {})
    found.add([Finding('speed', 'part', 'check', verdict) for verdict in verdicts])
    assert found.exit_code() == code


def test_ratios_are_of_the_fastest_turns_of_one_work():
    found = [
        of_speed('deepfm', 'ours, hybrid', 4.0),
        of_speed('deepfm', 'ours, hybrid', 2.0),
        of_speed('deepfm', "Horovod's allgather", 8.0),
        of_speed('deepfm', "Horovod's allgather", 1.0, FAILED),
        of_speed('language model', 'ours, one process', 1.0),
    ]
    assert findings.ratios(found) == [
        dict(work='deepfm', system='ours, hybrid', over="Horovod's allgather", ratio=0.25)
    ]


def test_a_part_reports_its_checks_and_what_it_never_reports_has_failed():
    code = (
        'import json, os, sys\n'
        'file = open(os.environ["GPU_CHECK_REPORT"], "a")\n'
        'one = dict(check="one", passed=True, reason="", numbers=dict(off=0.5))\n'
        'file.write(json.dumps(one) + "\\n{\\"check\\": \\"half a li")\n'
        'file.close()\n'
        'raise ValueError("too small")\n'
    )
    outcome = running.run([sys.executable, '-c', code], dict(os.environ), 60)
    found = running.findings(part('one', 'two'), outcome, 60)
    assert [(one.check, one.verdict) for one in found] == [('one', PASSED), ('two', FAILED)]
    assert found[0].numbers == {'off': 0.5}
    assert found[1].reason == 'not reported: exit code 1, ValueError: too small'
    # All checks are there, and still it did not end well.
    found = running.findings(part('one'), outcome, 60)
    assert [(one.check, one.verdict) for one in found] == [('one', PASSED), ('ends well', FAILED)]


def test_a_part_whose_time_is_over_ends_with_all_that_it_started():
    # As the ranks of horovodrun, it has a session of its own.
    command = ['sh', '-c', 'setsid sleep 600 & echo child $!; sleep 600']
    # On a busy machine it may take a while until the child is there.
    for limit in (1, 10, 100):
        outcome = running.run(command, dict(os.environ), limit)
        if outcome.output:
            break
    assert outcome.code is None
    child = int(outcome.output.split()[1])
    # Ended, or waiting for somebody to ask for its exit code.
    path = '/proc/%d/stat' % child
    if os.path.exists(path):
        with open(path) as file:
            assert file.read().rpartition(')')[2].split()[0] == 'Z'
    (failed,) = running.findings(part('one'), outcome, limit)
    assert failed.reason.startswith('not reported: the part did not end within %d s' % limit)


def test_the_first_error_of_a_rank_says_why_a_job_failed():
    output = (
        '[1]<stderr>:E0000 00:00:17960 cuda_platform.cc:52] failed call: CUDA error: unknown\n'
        '[1]<stderr>:keras_parallax.errors.PlanError: no such card\n'
        'RuntimeError: Horovod detected that one or more processes exited\n'
    )
    words = running.last_words(running.Outcome(1, 1.0, output, []))
    assert words == 'exit code 1, [1]<stderr>:keras_parallax.errors.PlanError: no such card'


def test_the_use_of_a_card_is_that_between_two_times():
    assert running.sample_of('37, 1024\n') == (37, 1024)
    assert running.sample_of('[N/A], 1024\n') is None
    samples = [(1.0, 0.0, 10.0), (2.0, 50.0, 30.0), (3.0, 100.0, 20.0), (4.0, 0.0, 90.0)]
    assert running.use_between(samples, 2, 3) == dict(card_use_percent=75, card_memory_mib=30)
    assert running.use_between(samples, 5, 6) == {}


def test_ranks_that_take_the_whole_card_fail():
    trained = Finding('three lines', 'two ranks', 'trains', PASSED)
    for memory, verdict in ((8000.0, PASSED), (70000.0, FAILED)):
        found = check.with_card_use([trained], [(1.0, 10.0, memory)], 80000)
        assert [(one.check, one.verdict) for one in found] == [
            ('trains', PASSED),
            ('memory growth', verdict),
        ]


def test_what_needs_something_that_is_missing_is_skipped_with_the_reason():
    assert 'no GPU' in check.lacking(part(needs='card'), HAS_EVERYTHING, False, False)
    assert check.lacking(part(needs='card'), HAS_EVERYTHING, True, False) == ''
    without = dict(HAS_EVERYTHING, keras=False, jax=False)
    assert 'Keras 3' in check.lacking(part(needs='keras 3'), without, True, False)
    assert 'JAX' in check.lacking(part(needs='jax'), dict(without, keras=True), True, False)
    assert '--smoke' in check.lacking(part(), HAS_EVERYTHING, True, True)
    assert check.lacking(part(in_smoke=True), HAS_EVERYTHING, True, True) == ''


def test_all_ranks_of_a_part_share_the_card():
    environ = check.environ_of(part(ranks=2), '/env/bin/python', '3')
    assert environ['CUDA_VISIBLE_DEVICES'] == '3'
    # The only card that a rank sees has the number 0.
    assert environ['KERAS_PARALLAX_GPUS'] == '0,0'
    assert check.environ_of(part(), '/env/bin/python', None)['CUDA_VISIBLE_DEVICES'] == ''


@pytest.mark.parametrize('smoke', [False, True])
def test_parts_are_in_the_order_of_the_stages_and_have_scripts(smoke):
    every = parts('folder', smoke)
    stages = [STAGES.index(one.stage) for one in every]
    assert stages == sorted(stages) and set(stages) == set(range(len(STAGES)))
    assert len({(one.stage, one.name) for one in every}) == len(every)
    for one in every:
        assert one.checks
        assert os.path.exists(os.path.join(HERE, '..', 'gpu', one.script + '.py'))


def test_the_wheels_are_the_lock_files_with_cuda():
    with open(LOCK) as file:
        asked = wheels.requirements(file.read().splitlines())
    assert 'tensorflow[and-cuda]==2.21.0' in asked
    assert any(line.startswith('jax[cuda12]==') for line in asked)
    assert any(line.startswith('cloudpickle==') for line in asked)
    assert not any(line.startswith('horovod') for line in asked)


def test_wheels_for_another_python_are_refused(tmp_path):
    with pytest.raises(install.WheelsError, match='make the folder with'):
        install.install(str(tmp_path), str(tmp_path / 'env'), 60)
    content = dict(python='2.7', tensorflow='2.21.0', horovod='Gloo, without NCCL')
    (tmp_path / install.DESCRIPTION).write_text(json.dumps(content))
    assert install.described(str(tmp_path)) == (
        'Python 2.7, TensorFlow 2.21.0, Horovod with Gloo, without NCCL'
    )
    with pytest.raises(install.WheelsError, match='for Python 2.7, but this is Python 3'):
        install.install(str(tmp_path), str(tmp_path / 'env'), 60)
    assert not (tmp_path / 'env').exists()
