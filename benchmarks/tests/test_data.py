# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The benchmarks' data: real Criteo lines, and the generated ones."""

import numpy as np
import pytest
from works import data

#: In the layout of the published `train.txt`: missing fields are empty, integers may be negative.
CRITEO_LINES = (
    '0\t1\t1\t5\t0\t1382\t4\t15\t2\t181\t1\t2\t\t2\t68fd1e64\t80e26c9b\tfb936136\t7b4723c4'
    '\t25c83c98\t7e0ccccf\tde7995b8\t1f89b562\ta73ee510\ta8cd5504\tb2cb9c98\t37c9c164\t2824a5f6'
    '\t1adce6ef\t8ba8b39a\t891b62e7\te5ba7672\tf54016b9\t21ddcdc9\tb1252a9d\t07b5194c\t'
    '\t3a171ecb\tc5c50484\te8b83407\t9727dd16\n'
    '1\t\t-1\t\t\t\t\t\t\t\t\t\t\t' + '\t' * 26 + '\n'
)


def criteo_like(lines, seed):
    return data.criteo_like(lines, data.criteo_streams(seed))


def generated(lines, seed):
    return data.generated_criteo(lines, data.criteo_streams(seed))


def test_a_line_of_the_published_file_is_read_as_it_is(tmp_path):
    path = tmp_path / 'train.txt'
    path.write_text(CRITEO_LINES)
    labels, integers, categories = data.read_criteo(str(path))
    assert labels.tolist() == [[0.0], [1.0]]
    assert integers.shape == (2, 13) and categories.shape == (2, 26)
    assert integers[0, 4] == pytest.approx(np.log1p(1382))
    assert integers[0, 11] == 0  # missing
    assert integers[1].tolist() == [0] * 13  # -1 and missing
    rows = data.column_rows()
    assert categories[0, 0] == 1 + 0x68FD1E64 % (rows[0] - 1)
    assert categories[0, 21] == 0 and categories[1].tolist() == [0] * 26
    assert (categories < rows).all()


@pytest.mark.parametrize('line', ['0\t1\t2\n', '0' + '\t1' * 13 + '\tnot hex' * 26 + '\n'])
def test_a_line_of_another_layout_is_refused_with_its_number(tmp_path, line):
    path = tmp_path / 'other.tsv'
    path.write_text(CRITEO_LINES + line)
    with pytest.raises(ValueError, match='Line 3'):
        data.read_criteo(str(path))


def test_generated_lines_are_skewed_and_repeatable(tmp_path):
    first, second = str(tmp_path / 'a.tsv'), str(tmp_path / 'b.tsv')
    data.write_criteo(first, *criteo_like(400, seed=1))
    data.write_criteo(second, *criteo_like(400, seed=1))
    with open(first) as one, open(second) as other:
        assert one.read() == other.read()
    labels, integers, categories = data.read_criteo(first)
    assert len(labels) == 400 and 0.1 < labels.mean() < 0.9
    # A few values make up much of even the largest column, and most values are rare.
    values, counts = np.unique(categories[:, 2], return_counts=True)
    assert counts.max() > 10 * np.median(counts)
    assert len(values) > 100


def test_generated_samples_are_what_the_reader_makes_of_generated_lines(tmp_path):
    path = str(tmp_path / 'generated.tsv')
    data.write_criteo(path, *criteo_like(300, seed=3))
    for read, made in zip(data.read_criteo(path), generated(300, seed=3)):
        assert made.dtype == read.dtype
        np.testing.assert_array_equal(made, read)


def test_the_first_generated_lines_are_the_same_however_many_there_are():
    for few, many in zip(criteo_like(50, seed=2), criteo_like(170, seed=2)):
        np.testing.assert_array_equal(few, many[:50])


def test_batches_that_are_made_in_parts_are_those_that_are_made_at_once(monkeypatch):
    monkeypatch.setattr(data, 'BATCHES_AT_ONCE', 2)
    batches = list(data.generated_batches(5, 30, seed=2))
    assert len(batches) == 5
    for parts, whole in zip(zip(*batches), generated(150, seed=2)):
        np.testing.assert_array_equal(np.concatenate(parts), whole)


def test_generated_batches_repeat_ids_about_as_often_as_the_published_lines():
    categories = generated(48, seed=4)[2]
    distinct = sum(len(np.unique(column)) for column in categories.T)
    # 623 in the first 48 lines of the Kaggle data; more repeats would favour deduplication.
    assert 623 <= distinct <= 1.25 * 623


def test_the_tables_have_a_million_rows_in_all():
    assert sum(data.column_rows()) > 1000000


def test_zipf_ids_follow_their_law():
    ids = data.Zipf(1000, 1.0)(np.random.RandomState(0), 200000)
    counts = np.bincount(ids, minlength=1000)
    assert ids.max() < 1000
    assert counts[0] / counts[9] == pytest.approx(10, rel=0.1)
    assert counts[0] / counts[99] == pytest.approx(100, rel=0.2)


def test_the_corpus_gives_windows_of_real_words():
    draw = data.corpus_words(5000, max_tokens=20000)
    ids = draw(np.random.RandomState(0), 4, 20)
    assert ids.shape == (4, 20) and ids.dtype == np.int32
    assert (ids >= 0).all() and (ids < 5000).all() and len(np.unique(ids)) > 10
