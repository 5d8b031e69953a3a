# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What `make test` leaves out is named by files and tests that exist."""

import os
import re

import exhaustive
import launch
import pytest

ROOT = os.path.dirname(launch.HERE)


@pytest.mark.parametrize(
    'table, file',
    [(table, file) for table in ('COVERED', 'SAMPLED') for file in getattr(exhaustive, table)],
)
def test_each_pattern_is_of_a_test_of_its_file(table, file):
    with open(os.path.join(ROOT, file)) as source:
        tests = re.findall(r'^def (test_\w+)', source.read(), re.MULTILINE)
    for pattern, _, reason in getattr(exhaustive, table)[file]:
        assert [test for test in tests if re.fullmatch(pattern, test)]
        assert reason


def test_a_test_is_left_out_by_its_parameters_or_altogether(monkeypatch):
    sampled = {'some.py': [('test_a', '2-.*', 'why'), ('test_b.*', None, 'why')]}
    monkeypatch.setattr(exhaustive, 'SAMPLED', sampled)
    names = [
        'test_a',
        'test_a[2-keras]',
        'test_a[3-keras]',
        'test_a_b[1]',
        'test_b',
        'test_bc[2-x]',
    ]
    found = [exhaustive.is_exhaustive('some.py', name) for name in names]
    assert found == [False, False, True, False, True, True]
    assert not exhaustive.is_exhaustive('another.py', 'test_b')
    assert exhaustive.is_exhaustive('tests/outside/test_given.py', 'test_x')


def test_a_test_is_covered_with_some_parameters_or_altogether(monkeypatch):
    covered = {'some.py': [('test_a', '2-.*', 'why'), ('test_b.*', None, 'why')]}
    monkeypatch.setattr(exhaustive, 'COVERED', covered)
    names = ['test_a', 'test_a[2-keras]', 'test_a[3-keras]', 'test_b', 'test_bc[2-x]', 'test_c']
    found = [exhaustive.is_covered('some.py', name) for name in names]
    assert found == [False, True, False, True, True, False]
    assert not exhaustive.is_covered('another.py', 'test_b')


def test_of_tests_that_differ_in_the_package_one_runs_in_turn(monkeypatch):
    monkeypatch.setattr(exhaustive, 'KERAS_PACKAGES', ('keras', 'tf.keras'))
    monkeypatch.setattr(exhaustive, 'IN_TURN', ('some.py',))
    names = ['test_a[keras-1]', 'test_a[tf.keras-1]', 'test_a[keras-2]', 'test_a[tf.keras-2]']
    names += ['test_b[1-tf.keras]', 'test_b[1-keras]', 'test_c[keras]', 'test_d']
    left_out = {'test_a[tf.keras-1]', 'test_a[keras-2]', 'test_b[1-tf.keras]'}
    assert exhaustive.left_out('some.py', names) == left_out
    assert exhaustive.left_out('another.py', names) == set()


@pytest.mark.parametrize('file', exhaustive.IN_TURN)
def test_a_file_whose_tests_take_turns_exists(file):
    assert os.path.exists(os.path.join(ROOT, file))
