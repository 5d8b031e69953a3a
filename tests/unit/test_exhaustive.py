"""What `make test` leaves out is named by files and tests that exist."""

import os
import re

import exhaustive
import launch
import pytest

ROOT = os.path.dirname(launch.HERE)


@pytest.mark.parametrize('file', sorted(exhaustive.SAMPLED))
def test_each_pattern_is_of_a_test_of_its_file(file):
    with open(os.path.join(ROOT, file)) as source:
        tests = re.findall(r'^def (test_\w+)', source.read(), re.MULTILINE)
    for pattern, _, reason in exhaustive.SAMPLED[file]:
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
