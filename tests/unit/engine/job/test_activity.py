# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What a worker reports of what it does."""

import threading

import pytest

from keras_parallax.engine.job.activity import Activity


def test_a_rank_reports_the_outermost_call_and_only_errors_of_steps_that_are_news():
    activity = Activity()
    with activity.call('outer'), activity.call('inner'), activity.gathering() as call:
        report = activity.report()
        assert call == report['call'] == 'outer' and activity.waits
        assert (report['gathers'], report['in_gather'], report['in_step']) == (1, True, 0)
    with activity.gathering() as call:
        assert call is None
    assert not activity.waits and 'in_call' not in activity.report()
    with pytest.raises(KeyError), activity.step(lockstep=True):
        assert activity.report()['in_lockstep'] and activity.waits
        raise KeyError('a')
    activity.break_off(KeyError('a'))
    assert activity.report()['broken'][:3] == [1, 2, "KeyError: 'a'"]
    with activity.step(lockstep=False):
        pass
    assert activity.report()['steps'] == 2 and not activity.waits
    activity.break_off(KeyError('b'))
    assert activity.report()['broken'][:3] == [3, 2, "KeyError: 'b'"]


def test_a_step_within_a_step_and_one_that_finds_no_batch_do_not_count():
    activity = Activity()
    with activity.step(lockstep=True):
        with activity.step(lockstep=True), activity.gathering():
            pass
        assert activity.waits and activity.report()['in_lockstep']
    assert activity.report()['steps'] == 1 and not activity.waits
    with pytest.raises(StopIteration), activity.step(lockstep=True, ends_of_data=(StopIteration,)):
        raise StopIteration
    assert activity.report()['steps'] == 1 and 'broken' not in activity.report()
    with activity.step(lockstep=True):
        assert activity.report()['steps'] == 2


def test_a_call_of_another_thread_does_not_end_that_of_the_script():
    activity, has_begun, may_end = Activity(), threading.Event(), threading.Event()

    def other():
        with activity.call('another'):
            has_begun.set()
            may_end.wait(60)

    thread = threading.Thread(target=other)
    thread.start()
    has_begun.wait(60)
    with activity.call('the end of an epoch'):
        may_end.set()
        thread.join()
        with activity.gathering() as call:
            assert call == 'the end of an epoch'
