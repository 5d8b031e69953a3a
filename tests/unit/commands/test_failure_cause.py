# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The cause of a failed job, from lines as workers and Horovod print them."""

import pytest

from keras_parallax.commands.failure_cause import FailureCause

KEY_ERROR = (
    'Traceback (most recent call last):',
    '  File "train.py", line 3, in <module>',
    "    raise KeyError('my mistake')",
    "KeyError: 'my mistake'",
)
OTHERS_ERROR = (
    'Traceback (most recent call last):',
    '  File "train.py", line 9, in <module>',
    "keras_parallax.errors.WorkerFailedError: Rank 1 on host vm failed: KeyError: 'my mistake'",
)
KILLED = (
    'Rank 1 on host vm was killed from outside or crashed; the exit status that the launcher '
    'shows tells how: 137 is SIGKILL, 143 SIGTERM.'
)
TERMINATED = 'Rank 0 on host vm is told to end by SIGTERM, as by the launcher after Ctrl-C.'
STATUS = 'Process %d exit with status code %d.'


def cause_of(*lines):
    """The cause, given triples of a rank, a line and when it came, or pairs without the time."""
    cause = FailureCause()
    for rank, line, *at in lines:
        cause.take(rank, line, *(at or [0.0]))
    return cause.found()


def of_rank(rank, lines, *at):
    return [(rank, line, *at) for line in lines]


def test_an_exception_is_named_with_its_rank_and_has_its_traceback():
    found = cause_of(*of_rank(1, KEY_ERROR), *of_rank(0, OTHERS_ERROR), (None, STATUS % (0, 1)))
    assert found == (1, "Rank 1 failed: KeyError: 'my mistake'", list(KEY_ERROR))


def test_what_another_worker_says_first_is_the_same_cause_with_the_traceback_that_comes_later():
    found = cause_of(*of_rank(0, OTHERS_ERROR), *of_rank(1, KEY_ERROR))
    assert found == (1, "Rank 1 on host vm failed: KeyError: 'my mistake'", list(KEY_ERROR))


def test_the_last_of_several_exceptions_in_a_row_counts():
    chained = KEY_ERROR + (
        '',
        'During handling of the above exception, another exception occurred:',
        '',
        'Traceback (most recent call last):',
        '  File "train.py", line 5, in <module>',
        'ValueError',
    )
    assert cause_of(*of_rank(1, chained)).text == 'Rank 1 failed: ValueError'


def test_an_error_of_ours_explains_what_tensorflow_raised_before():
    lines = (
        'Traceback (most recent call last):',
        '  File "session.py", line 5, in run',
        'tensorflow.python.framework.errors_impl.OutOfRangeError: FIFOQueue is closed',
        '',
        'The above exception was the direct cause of the following exception:',
        '',
        'Traceback (most recent call last):',
        '  File "train.py", line 9, in <module>',
        'keras_parallax.errors.UnequalBatchesError: Rank 1 ended after 3 training batches while '
        'rank 0 began batch 4; give every worker the same number of batches.',
    )
    found = cause_of(*of_rank(0, lines))
    assert found.rank == 1 and found.text.startswith('Rank 1 ended after 3 training batches')


def test_a_script_that_python_cannot_read_is_named():
    lines = ('  File "train.py", line 3', '    x = ', '        ^', 'SyntaxError: invalid syntax')
    found = cause_of(*of_rank(0, lines))
    assert found[:2] == (0, 'Rank 0 failed: SyntaxError: invalid syntax')


@pytest.mark.parametrize('code, name', [(137, 'SIGKILL'), (139, 'SIGSEGV')])
def test_a_worker_that_is_killed_is_told_with_its_signal(code, name):
    lines = [(0, KILLED), (None, STATUS % (1, code)), (0, TERMINATED), (None, STATUS % (0, 143))]
    assert cause_of(*lines)[:2] == (1, 'Rank 1 on host vm was killed by ' + name)


def test_a_worker_that_is_killed_without_a_launcher_that_says_how():
    assert cause_of((0, KILLED))[:2] == (1, 'Rank 1 on host vm was killed from outside or crashed')


def test_who_is_ended_by_the_launcher_is_not_the_cause():
    lines = [(0, TERMINATED), (None, STATUS % (0, 143)), (1, 'no data'), (None, STATUS % (1, 1))]
    found = cause_of(*lines)
    expected = 'Rank 1 ended with exit code 1; the last line of its standard error is: no data'
    assert found[:2] == (1, expected)


def test_who_has_only_lost_the_others_counts_if_nobody_says_more():
    lost = 'Rank 0 ends: Rank 0 on host vm has waited in vain for rank 1 to start; see horovodrun.'
    assert cause_of((0, lost)).text.startswith('Rank 0 on host vm has waited in vain for rank 1')
    assert cause_of((0, lost), (None, STATUS % (1, 137)))[:2] == (1, 'Rank 1 was killed by SIGKILL')


def test_an_exception_that_is_caught_is_not_the_cause():
    lines = of_rank(1, KEY_ERROR, 0.0) + [(1, 'training goes on', 60.0), (0, KILLED, 90.0)]
    assert cause_of(*lines).text == 'Rank 1 on host vm was killed from outside or crashed'
    on_the_way_out = of_rank(1, KEY_ERROR, 0.0) + [(1, 'terminate called', 0.5), (0, KILLED, 0.6)]
    assert cause_of(*on_the_way_out).text == "Rank 1 failed: KeyError: 'my mistake'"


@pytest.mark.parametrize(
    'line', ['Terminated', '26/36 - loss: 0.0121' + STATUS % (0, 143)], ids=['shell', 'launcher']
)
def test_a_worker_that_is_ended_on_its_way_out_has_not_caught_its_exception(line):
    found = cause_of(*of_rank(0, KEY_ERROR, 0.0), (0, line, 4.0), (None, STATUS % (1, 1)))
    assert found.text == "Rank 0 failed: KeyError: 'my mistake'"


def test_nothing_is_found_where_nobody_says_anything():
    assert cause_of((None, 'ssh: Could not resolve hostname'), (0, 'Epoch 1/2')) is None
    assert cause_of((None, STATUS % (0, 0))) is None
