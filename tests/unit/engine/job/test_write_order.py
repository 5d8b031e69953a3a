# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Who goes on among workers that have come to a write of a sharded table."""

from keras_parallax.engine.failures.diagnosis import AWAITED_SECONDS, diagnose, report_due
from keras_parallax.engine.job.write_order import BEGIN, END, call_of, met

IDLE = {'state': 'running', 'host': 'a', 'steps': 3, 'gathers': 2, 'in_step': 0}


def at(number, phase=BEGIN, has_written=False, **fields):
    return dict(IDLE, in_write=[number, phase, has_written], **fields)


def test_a_rank_waits_at_a_write_for_one_that_may_still_read():
    assert met([at(1), IDLE]) == []
    assert met([IDLE, at(1), at(1)]) == []
    # Such a step has been begun by the writer, too, and ends without it.
    assert met([at(1), dict(IDLE, in_lockstep=True)]) == []
    assert met([at(1), dict(IDLE, steps=4)]) == []


def test_all_ranks_that_have_come_to_a_write_go_on_together():
    assert met([at(1), at(1), at(1)]) == [0, 1, 2]
    assert met([dict(IDLE, state='finished'), at(1), at(1)]) == [1, 2]


def test_a_rank_writes_alone_if_the_others_cannot_go_on_without_it():
    for elsewhere in (
        dict(IDLE, steps=4, in_lockstep=True),
        dict(IDLE, gathers=3, in_gather=True),
        dict(IDLE, state='finished'),
        dict(IDLE, in_horovod='HorovodBroadcast'),
    ):
        assert met([elsewhere, at(1)]) == [1]
        assert met([elsewhere, at(1), IDLE]) == []


def test_of_ranks_at_different_writes_the_lowest_goes_on():
    assert met([at(1), at(2)]) == [0]
    assert met([at(2), at(1), at(2)]) == [0, 2]
    assert met([at(1), at(1, gathers=3)]) == [0]


def test_nobody_goes_on_before_the_one_that_writes_has_written():
    assert met([IDLE, at(1, END)]) == []
    assert met([at(1, END, True), at(1, END)]) == [0, 1]
    assert met([at(1, END, True), at(1, END), IDLE]) == []
    # That of which one writes comes before another write.
    assert met([at(2), at(1, END, True), at(1, END)]) == [1, 2]


def test_ranks_report_soon_where_one_waits_at_a_write():
    assert report_due(100, 110, is_awaited=True) == 100 + AWAITED_SECONDS


def test_a_wait_at_a_write_ends_with_step_timeout_and_names_who_did_not_come():
    waiting = at(1, in_call=61, call=call_of(['words/embeddings'], 'train.py, line 7'))
    assert diagnose([waiting, IDLE], step_timeout=0) is None
    problem = str(diagnose([waiting, at(1), IDLE], step_timeout=60))
    told = 'Rank 0 has waited 61 s in a write to words/embeddings (train.py, line 7) for rank 2,'
    assert told in problem and 'on every worker' in problem


def test_a_write_of_many_tables_names_some():
    names = ['t%d' % number for number in range(9)]
    assert call_of(names, None) == 'a write to t0, t1, t2 and 6 more'
