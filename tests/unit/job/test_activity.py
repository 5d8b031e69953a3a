"""What a rank reports of what it does."""

import pytest

from keras_parallax.job.activity import Activity


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
