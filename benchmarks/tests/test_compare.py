# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What records say about each other."""

import pytest
from records import language_records, record
from report import compare, targets


def test_one_process_belongs_to_every_link_speed_and_other_shares_to_none():
    other = record('hybrid', suite='lm', hosts=8, cores=None)
    records = language_records(40) + language_records(200)[1:] + [other]
    found = {variant.title: variant for variant in compare.variants(records)}
    assert list(found) == [
        'Language model, 200 Mbit/s',
        'Language model, 40 Mbit/s, 0.25 cores a host',
        'Language model, 200 Mbit/s, 0.25 cores a host',
    ]
    hosts = [variant.hosts for variant in found.values()]
    assert hosts == [[8], [1, 2, 8], [1, 2, 8]]
    assert len({variant.plot for variant in found.values()}) == 3


def test_one_process_alone_makes_a_variant_of_its_own():
    (variant,) = compare.variants(language_records()[:1])
    assert variant.hosts == [1] and targets.short_rows([variant]) == []


def test_speed_ups_over_alpha_begin_at_one_and_need_both_systems():
    records = [
        dict(record(system, suite='alpha', hosts=8, seconds=seconds, options={'length': length}),
             alpha=alpha)
        for length, alpha, system, seconds in (
            (4, 0.04, 'hybrid', 1.0), (4, 0.04, 'hvd-allgather', 3.0),
            (120, 1.0, 'hybrid', 2.0), (120, 1.0, 'hvd-allgather', 4.0),
            (1, 0.01, 'hybrid', 1.0),
        )
    ]  # fmt: skip
    assert compare.alpha_points(records) == [(1.0, 2.0), (0.04, 3.0)]
    assert compare.alpha_points(records, 'tf-ps') == []


def test_of_several_rounds_the_one_of_the_median_step_counts_and_failed_ones_if_all_did():
    rounds = [record('hybrid', seconds=seconds) for seconds in (3.0, 1.0, 2.0)]
    failed = {'error': 'did not end'}
    found = dict(rounds[2], rounds=3, step_seconds_of_rounds=[3.0, 1.0, 2.0])
    assert compare.middle(rounds) == found
    assert compare.middle([failed] + rounds) == dict(rounds[2], rounds=3)
    assert compare.middle([failed, failed]) == dict(failed, rounds=2)


def test_of_several_rounds_the_median_ratio_counts_and_not_that_of_the_medians():
    def of_rounds(system, *seconds, hosts=2):
        return compare.middle([record(system, seconds=one, hosts=hosts) for one in seconds])

    ours, theirs = of_rounds('hybrid', 1.0, 2.0, 4.0), of_rounds('hvd-allgather', 1.5, 2.2, 3.6)
    assert compare.speed_up(ours, theirs) == pytest.approx(1.1)
    ours, theirs = of_rounds('hybrid', 1.0, 4.0, 2.0), of_rounds('hvd-allgather', 2.0, 3.0, 1.0)
    assert compare.speed_up(ours, theirs) == pytest.approx(0.75)
    # What did not run in the same rounds has none in common.
    assert compare.speed_up(dict(ours, run=1), dict(theirs, run=2)) == pytest.approx(1.0)
    assert compare.speed_up(ours, of_rounds('tf-ps', 6.0)) == pytest.approx(3.0)
    wider = of_rounds('hybrid', 3.0, 4.0, 2.0, hosts=8)
    assert compare.speed_up(wider, ours) == pytest.approx(2 / 3)
