# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Many tables: every system gets the same rows, is measured, and is on the page."""

import many_tables
import numpy as np
import pytest
from report import page, results, scripts


def test_one_table_of_all_the_rows_is_asked_for_the_rows_of_many():
    many, one = (next(many_tables.batches(3, one_table, 1)) for one_table in (False, True))
    np.testing.assert_array_equal(np.hstack(many[0]), one[0] - [0, 1000, 2000])
    np.testing.assert_array_equal(many[1], one[1])
    other_rank, _ = next(many_tables.batches(3, True, 0))
    assert (other_rank != one[0]).any()


@pytest.mark.parametrize('system', [many_tables.KERAS, many_tables.OURS])
def test_a_system_learns_and_its_start_its_steps_and_its_memory_are_measured(system):
    found = many_tables.run(system, 2)
    assert 0 < found['losses'][1] < found['losses'][0]
    assert found['first_cpu_seconds'] > 0 and found['step_cpu_ms'] >= 0
    assert found['peak_mib'] > 50 and found['nodes'] > 20


def test_the_page_has_the_medians_of_what_was_measured(tmp_path):
    rounds = [
        {'first_cpu_seconds': first, 'step_cpu_ms': 7.0, 'peak_mib': 300, 'nodes': 4115}
        for first in (3.0, 2.0, 9.0)
    ]
    kept = [{'tables': 1000, 'title': 'keras-parallax', 'workers': 2, 'rounds': rounds}]
    results.publish_part(str(tmp_path), 'many_tables', kept, many_tables.TOLD_BY)
    page.write([], str(tmp_path))
    text = (tmp_path / 'tables.md').read_text(encoding='utf-8')
    cells = [cell.strip() for cell in scripts.many_tables_table(kept).splitlines()[-1].split('|')]
    assert cells[1:-1] == ['1,000', 'keras-parallax, 2 workers', '3.0', '7.0', '300', '4,115']
    assert '## Models with many tables' in text and '| 1,000 ' in text
