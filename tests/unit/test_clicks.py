# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Lines of clicks of `examples/`: read from files in Criteo's layout, or made."""

import gzip

import example_runs
import numpy as np
import pytest

clicks = example_runs.module('clicks')
TRAIN, HELD_OUT = clicks.make_days(7, 2, (350, 140))
LINES = [day.lines for day in TRAIN + HELD_OUT]
ROWS = clicks.table_rows(50)


@pytest.fixture
def days(tmp_path):
    """A folder with a file for each day, of which one is compressed."""
    for number, lines in enumerate(LINES):
        text = '\n'.join(lines) + '\n'
        if number == 3:
            with gzip.open(str(tmp_path.joinpath('day_3.gz')), 'wt') as file:
                file.write(text)
        else:
            tmp_path.joinpath('day_%d' % number).write_text(text)
    return tmp_path


def test_made_lines_are_the_same_each_time_and_some_are_clicked():
    assert clicks.make_days(7, 2, (350, 140)) == (TRAIN, HELD_OUT)
    labels = clicks.encode(TRAIN, ROWS)[2]
    assert labels.shape == (350, 1) and 0.2 < labels.mean() < 0.6


def test_days_are_read_in_order_and_the_last_are_held_out(days):
    days.joinpath('day_10').write_text('\n'.join(LINES[0]))
    train, held_out = clicks.read_days(str(days), 2, (10000, 10000))
    assert [day.name for day in train] == ['day_0', 'day_1', 'day_2', 'day_3.gz', 'day_4', 'day_5']
    assert [day.lines for day in train] == LINES[:6]
    assert held_out == [clicks.Day('day_6', LINES[6]), clicks.Day('day_10', LINES[0])]


def test_limits_are_shared_by_the_days(days):
    train, held_out = clicks.read_days(str(days), 1, (12, 7))
    assert [day.lines for day in train] == [lines[:2] for lines in LINES[:6]]
    assert held_out[0].lines == LINES[6][:7]


def test_one_file_is_cut_into_seven_days_without_losing_or_repeating_a_line(tmp_path):
    whole = [line for lines in LINES for line in lines]
    tmp_path.joinpath('train.txt').write_text('\n'.join(whole) + '\n')
    train, held_out = clicks.read_days(str(tmp_path), 2, (10000, 10000))
    assert (len(train), len(held_out)) == (5, 2)
    assert [line for day in train + held_out for line in day.lines] == whole
    counts = [len(day.lines) for day in train + held_out]
    assert max(counts) - min(counts) < 10


def test_without_rows_a_category_is_an_id_of_its_column_and_its_hash():
    line = '1' + '\t' * 14 + 'ffffffff' + '\t' * 24 + '\tffffffff'
    _, categories, _ = clicks.encode([clicks.Day('', [line])])
    assert categories.dtype == np.int64
    assert categories[0].tolist() == [2**32 - 1, *range(-2, -26, -1), 26 * 2**32 - 1]


def test_categories_have_rows_of_their_columns_and_missing_ones_the_first():
    numbers, categories, labels = clicks.encode(
        [clicks.Day('', ['1\t7\t-2' + '\t' * 12 + '0000000a' + '\t' * 25])], [5] * 26
    )
    np.testing.assert_allclose(numbers[0], np.log1p([7] + [0] * 12), rtol=1e-6)
    assert categories[0].tolist() == [1 + 10 % 4] + [5 * column for column in range(1, 26)]
    assert labels.tolist() == [[1]]
    found = clicks.encode(TRAIN, ROWS)[1]
    ends = np.cumsum(ROWS)
    assert (found < ends).all() and (found >= ends - ROWS).all()


@pytest.mark.parametrize(
    'line, says',
    [
        ('1\t2', 'it has 2 fields, not 40'),
        ('2' + '\t' * 39, "its label is '2'"),
        ('1\tx' + '\t' * 38, "could not convert string to float: 'x'"),
        ('1' + '\t' * 39 + 'xyz', "invalid literal for int.*'xyz'"),
    ],
)
def test_a_line_of_another_layout_is_told_with_its_place(line, says):
    with pytest.raises(clicks.ClicksError, match='Line 2 of day_9 is not one of Criteo: ' + says):
        clicks.encode([clicks.Day('day_9', [LINES[0][0], line])], ROWS)


def test_missing_files_and_too_few_days_are_told(tmp_path, days):
    with pytest.raises(clicks.ClicksError, match='No such file'):
        clicks.read_days(str(tmp_path.joinpath('none')), 1, (1, 1))
    empty = tmp_path.joinpath('empty')
    empty.mkdir()
    with pytest.raises(clicks.ClicksError, match='neither files day_0, day_1 ... nor train.txt'):
        clicks.read_days(str(empty), 1, (1, 1))
    with pytest.raises(clicks.ClicksError, match='has 7 days, of which 7 are to judge by'):
        clicks.read_days(str(days), 7, (1, 1))
