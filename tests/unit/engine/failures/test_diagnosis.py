# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The diagnosis of a job, from the reports of its workers."""

import hypothesis.strategies as st
import pytest
from hypothesis import given

from keras_parallax.engine.failures.diagnosis import diagnose, different_calls, report_due
from keras_parallax.errors import (
    ServerLostError,
    UnequalBatchesError,
    UnequalCallsError,
    WorkerFailedError,
)


def running(steps, in_step=0, host='here'):
    return {'state': 'running', 'steps': steps, 'in_step': in_step, 'host': host, 'error': None}


def finished(steps):
    return dict(running(steps), state='finished')


def failed(steps, host='there', error='ValueError: no such file'):
    return dict(running(steps), state='failed', host=host, error=error)


def broken(steps, step, ago=5):
    """A worker whose script has caught the error of a step."""
    return dict(running(steps), gathers=2, broken=[step, 2, 'KeyError: 7', ago])


@pytest.mark.parametrize(
    'states',
    [
        [running(0)],
        [running(3), running(3)],
        # Workers are seldom at the same step when they are asked.
        [running(3), running(4), running(2)],
        [finished(5), finished(5)],
        [finished(5), running(5)],
        # A slower rank has the last batches still to do.
        [finished(5), running(4)],
        [finished(0), running(0)],
        # The collective for which rank 1 waits is over: rank 0 has come from it.
        [dict(finished(5), gathers=4), dict(running(5), gathers=4, in_gather=True)],
        # Who has ended is no concern of one that waits for a worker that runs.
        [dict(running(0), gathers=1), dict(running(0), gathers=2, in_gather=True, in_call=500)],
        # An error that all have had, or that nobody has to suffer from.
        [broken(5, 4), broken(5, 4)],
        [broken(5, 5), running(4)],
        # Where all fail alike, one is the first.
        [broken(5, 5, ago=1), running(5, 1)],
    ],
)
def test_a_job_that_can_go_on_has_no_problem(states):
    assert diagnose(states, 600) is None


def test_a_rank_that_waits_in_a_call_for_one_that_has_ended_is_told():
    waiting = dict(running(3), gathers=5, in_gather=True, call='strategy.resume')
    problem = diagnose([dict(finished(3), gathers=4), waiting, dict(finished(3), gathers=4)])
    assert isinstance(problem, UnequalCallsError)
    expected = 'Rank 1 waits in strategy.resume for rank 0 and rank 2, which have ended'
    assert str(problem).startswith(expected)


def test_a_rank_that_has_long_been_in_horovod_after_another_has_ended_is_told():
    waiting = dict(running(3), in_horovod='HorovodAllreduce_7')
    assert diagnose([waiting, running(3)]) is None
    problem = diagnose([waiting, finished(3)])
    assert isinstance(problem, UnequalCallsError)
    expected = "Rank 0 waits in Horovod's operation HorovodAllreduce_7 for rank 1, which has ended"
    assert str(problem).startswith(expected)


@pytest.mark.parametrize('ahead', [running(4, 1), dict(running(3), gathers=1, in_gather=True)])
def test_what_has_ended_a_rank_is_told_to_those_that_wait_for_it(ahead):
    ended = dict(finished(3), gathers=0, by_exit="sys.exit('no data')", in_thread='KeyError: 7')
    told = str(diagnose([ahead, ended]))
    assert told.endswith(
        "Rank 1 ended by sys.exit('no data'). A thread of rank 1 had ended with KeyError: 7."
    )


def test_a_thread_that_has_ended_is_told_of_a_rank_that_does_not_come():
    late = dict(running(3), in_thread='KeyError: 7')
    assert 'A thread of rank 1 had ended' in str(diagnose([running(4, 700), late], 600))


def test_a_rank_that_catches_the_error_of_its_step_is_named_to_those_that_wait():
    problem = diagnose([running(4, 5), broken(4, 4)])
    assert isinstance(problem, WorkerFailedError)
    assert str(problem) == 'Rank 1 on host here failed in training batch 4: KeyError: 7'
    # Also when it has ended since, or trains on by itself.
    assert str(diagnose([running(4, 5), dict(broken(4, 4), state='finished')])) == str(problem)
    assert str(diagnose([running(4, 5), broken(5, 4)])) == str(problem)
    # Or when the others have come from their step to where all are to meet.
    waiting = dict(running(3), gathers=3, in_gather=True)
    assert str(diagnose([waiting, broken(3, 4)])) == str(problem)


def test_a_wait_in_a_call_may_last_as_long_as_a_step():
    waiting = dict(running(3), gathers=5, in_gather=True, call='strategy.resume', in_call=601)
    problem = diagnose([waiting, dict(running(3), gathers=4)], 600)
    assert isinstance(problem, WorkerFailedError)
    assert str(problem).startswith('Rank 0 has waited 601 s in strategy.resume for rank 1.')
    assert diagnose([waiting, dict(running(3), gathers=4)], 0) is None


def test_ranks_that_meet_in_different_calls_are_told():
    assert different_calls(['strategy.resume'] * 3) is None and different_calls([None]) is None
    problem = different_calls(['strategy.resume', 'strategy.resume', None])
    assert isinstance(problem, UnequalCallsError)
    expected = 'Rank 0 is in strategy.resume, but rank 2 in a call that all workers make'
    assert str(problem).startswith(expected)
    waiting = dict(running(3), gathers=5, in_gather=True, call='strategy.resume')
    assert diagnose([waiting, dict(waiting)]) is None
    assert diagnose([waiting, dict(waiting, gathers=6, call='fit')]) is None
    problem = diagnose([dict(running(3), gathers=4), waiting, dict(waiting, call='fit')])
    assert str(problem).startswith('Rank 1 is in strategy.resume, but rank 2 in fit')


def test_a_failed_rank_is_named_with_its_host_and_its_error():
    problem = diagnose([running(3), running(3), failed(2, 'gpu-7', 'ValueError: no such file')])
    assert isinstance(problem, WorkerFailedError)
    assert str(problem) == 'Rank 2 on host gpu-7 failed: ValueError: no such file'


def test_the_first_of_two_failed_ranks_is_named():
    problem = diagnose([running(3), failed(2, 'a'), failed(2, 'b')])
    assert str(problem).startswith('Rank 1 on host a failed')


def test_a_failure_counts_more_than_unequal_batches():
    assert isinstance(diagnose([finished(2), running(3), failed(3)]), WorkerFailedError)


def test_a_lost_server_counts_more_than_the_ranks_that_fail_for_it():
    sentence = 'The server at a:1 is gone.'
    problem = diagnose([failed(3), dict(running(3), lost=sentence)])
    assert isinstance(problem, ServerLostError) and str(problem) == sentence


def test_a_rank_that_begins_a_batch_which_another_never_will_is_told():
    problem = diagnose([running(4), finished(3)])
    assert isinstance(problem, UnequalBatchesError)
    message = str(problem)
    assert 'Rank 1 ended after 3 training batches while rank 0 began batch 4' in message
    assert 'give every worker the same number of batches' in message


def test_all_ranks_that_wait_are_told():
    message = str(diagnose([running(4), finished(3), running(3), running(5)]))
    assert 'rank 0 began batch 4, rank 3 began batch 5' in message
    assert 'rank 2' not in message


def test_the_rank_that_ended_first_is_told():
    message = str(diagnose([finished(4), finished(2), running(4)]))
    assert message.startswith('Rank 1 ended after 2 training batches')


def test_a_rank_that_ended_without_training_is_told_like_any_other():
    problem = diagnose([finished(0), running(1)])
    assert isinstance(problem, UnequalBatchesError)
    assert 'Rank 0 ended after 0 training batches' in str(problem)


def gathering(steps, gathers):
    return dict(running(steps), gathers=gathers, in_gather=True, in_lockstep=False)


def stepping(steps, gathers):
    return dict(running(steps, 7), gathers=gathers, in_gather=False, in_lockstep=True)


def test_ranks_that_wait_for_each_other_at_different_places_are_told():
    problem = diagnose([gathering(6, 4), stepping(7, 3)])
    assert isinstance(problem, UnequalBatchesError)
    assert 'Rank 0 waits for the other workers after 6 training batches' in str(problem)
    assert 'rank 1 began batch 7' in str(problem)


@pytest.mark.parametrize(
    'states',
    [
        # Rank 1 does its last step before the gather, or has come from it.
        [gathering(6, 4), stepping(6, 3)],
        [gathering(6, 4), stepping(7, 4)],
        # A step that ends without the other worker.
        [gathering(6, 4), dict(stepping(7, 3), in_lockstep=False)],
        [gathering(6, 4), gathering(7, 4)],
        [gathering(6, 4), dict(stepping(7, 3), in_step=0, in_lockstep=False)],
    ],
)
def test_a_rank_that_waits_for_one_that_can_come_has_no_problem(states):
    assert diagnose(states) is None


def test_a_step_may_last_as_long_as_the_deadline_allows():
    assert diagnose([running(4, 600), running(3, 0)], 600) is None
    assert diagnose([running(4, 10**6), running(3, 0)], 0) is None
    assert diagnose([running(4, 0), running(3, 0)], 600) is None


@pytest.mark.parametrize('more', [[], [finished(4)]])
def test_the_rank_that_does_not_begin_a_step_in_time_is_named(more):
    problem = diagnose([running(4, 601.5), running(3, 0, 'gpu-7'), running(4, 590)] + more, 600)
    assert isinstance(problem, WorkerFailedError)
    assert str(problem).startswith(
        'Rank 0 has waited 601 s in training batch 4 for rank 1 on host gpu-7, which did not begin'
    )
    assert 'step_timeout' in str(problem)


def test_a_step_that_all_ranks_have_begun_and_none_ends_is_named():
    problem = diagnose([running(4, 590), running(4, 601, 'gpu-7')], 600)
    assert 'Training batch 4 has lasted 601 s on rank 1 on host gpu-7' in str(problem)


def test_a_failure_counts_more_than_a_step_that_is_overdue():
    assert 'failed' in str(diagnose([running(4, 700), failed(3)], 600))


# --- when workers report --------------------------------------------------------


def test_ranks_report_every_four_seconds_where_no_step_shows_that_all_are_well():
    assert report_due(reported=100, lockstep_began=0) == 104
    assert report_due(reported=100, lockstep_began=100) == 104


def test_a_step_that_does_not_end_is_reported_four_seconds_after_it_began():
    assert report_due(reported=100, lockstep_began=120) == 124
    assert report_due(reported=124, lockstep_began=120) == 128


@given(st.lists(st.floats(0.01, 3.9), min_size=1, max_size=200))
def test_while_steps_of_lockstep_go_on_ranks_report_every_32_seconds(lengths):
    reported, now = 0, 0
    for length in lengths:
        began, now = now, now + length
        due = report_due(reported, began)
        assert due == reported + 32 or due > now
        if due <= now:
            reported = due
