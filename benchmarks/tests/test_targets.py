# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The project's targets, judged by records."""

from records import language_records, record, smoke_records
from report import compare, targets


def measured(records, what, alone=None):
    """The columns of what was measured, and whether a target is met."""
    rows = targets.rows(compare.variants(records), alone or {})
    (row,) = [row for row in rows if what in row[0]]
    return row[2], row[3]


def test_a_faster_run_that_learns_differently_does_not_count():
    def short(seconds, losses):
        records = smoke_records(hybrid=record('hybrid', seconds=seconds, losses=losses))
        return str(targets.short_rows(compare.variants(records)))

    assert '10.00x' not in short(0.1, (3.0, 2.1))
    assert '10.00x' in short(0.1, (3.0, 2.0))


def test_the_headline_is_taken_where_the_ratio_is_the_papers():
    records = language_records(40, 16.0) + language_records(200, 5.0)
    shown, verdict = measured(records, 'Language model, 8 hosts')
    assert shown == '6.40x (40 Mbit/s, ratio 16.0)' and verdict == 'yes'
    assert measured(records, "the same / TensorFlow's") == (
        '2.40x (40 Mbit/s, ratio 16.0)', 'no',
    )  # fmt: skip


def test_a_ratio_far_from_the_papers_is_named():
    assert "not the paper's 15" in measured(language_records(20, 33.0), 'Language model, 8')[0]


def test_without_a_compute_step_there_is_no_headline():
    assert measured(language_records()[1:], 'Language model, 8') == ('', 'not measured')


def test_clicks_are_judged_at_the_papers_ratio_and_told_elsewhere_too():
    records = language_records(40, 16.0) + language_records(200, 5.0)
    for one in records:
        one.update(suite='ctr', options={'kind': 'deepfm', 'width': 64})
    shown, verdict = measured(records, 'Clicks')
    assert shown == '6.40x (40 Mbit/s, ratio 16.0) - elsewhere 2.00x (200 Mbit/s, ratio 5.0)'
    assert verdict == 'no'


def test_growth_is_told_for_each_link_speed_and_may_be_met_in_part():
    slow = language_records(20)
    slow[-1]['step_seconds'] = 4.0
    shown, verdict = measured(language_records(40) + slow[1:], 'our step at 8 hosts / at 2')
    assert shown == '2.00x (20 Mbit/s); 1.25x (40 Mbit/s)' and verdict == 'in part'


def test_bytes_over_the_floor_are_told_where_they_are_most():
    shown, verdict = measured(language_records(), 'bytes sent / floor')
    assert shown == '1.05x (Language model, 40 Mbit/s, 0.25 cores a host, 8 hosts)'
    assert verdict == 'yes'


def test_what_needs_no_cluster_is_judged_too():
    alone = {
        'one_process': {
            'raw TensorFlow': [{'step_ms': 10, 'peak_gib': 2.0}] * 3,
            'keras-parallax (keras)': [{'step_ms': 13, 'peak_gib': 2.1}] * 3,
        },
        'startup': {
            name: [{'total': {'seconds': seconds, 'cpu_seconds': 1.0}}]
            for name, seconds in (
                ('Keras', 1.0), ('keras-parallax', 2.0),
                ('horovod.keras, 2 workers', 2.0), ('keras-parallax, 2 workers', 5.5),
            )
        },
    }  # fmt: skip
    assert measured([], 'time / raw', alone) == ('1.30x (keras-parallax (keras))', 'no')
    assert measured([], 'memory / raw', alone) == ('1.05x (keras-parallax (keras))', 'yes')
    assert measured([], 'Start-up', alone)[1] == 'in part'
    assert measured([], 'Start-up') == ('', 'not measured')
