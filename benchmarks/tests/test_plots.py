# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The plots of the report."""

import pytest
from measuring import suites
from records import language_records, record
from report import compare, plots
from systems.catalog import SHARD_COUNTS, SYSTEMS


def test_the_line_over_link_speeds_needs_two_of_them():
    assert plots.link_speed_lines(compare.variants(language_records())) == {}
    records = language_records(40) + language_records(200, 5.0)[1:]
    lines = plots.link_speed_lines(compare.variants(records))
    assert lines == {'Language model, 0.25 cores a host': [(40, 6.0), (200, 2.0)]}


def test_every_system_of_a_suite_is_there():
    of_suites = {system for suite in suites.SUITES.values() for system in suite['systems']}
    assert of_suites <= set(SYSTEMS)
    assert suites.SUITES['shards']['systems'] == tuple('shards-%d' % n for n in SHARD_COUNTS)


@pytest.mark.parametrize('system', sorted(SYSTEMS))
def test_every_system_can_be_drawn(system, tmp_path):
    records = language_records() + [
        record(system, suite='lm', hosts=hosts, speed=40) for hosts in (4, 8)
    ]
    (variant,) = compare.variants(records)
    assert plots.draw([variant], {}, str(tmp_path)) == {variant.plot}
