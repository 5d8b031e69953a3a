# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The script that finds what comments, docstrings and pages refer to and that does not exist."""

import importlib.util
import os
import subprocess
import sys

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SCRIPT = os.path.join(ROOT, 'scripts', 'check_references.py')
_spec = importlib.util.spec_from_file_location('check_references', SCRIPT)
check_references = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(check_references)

FILES = {
    'pack/plan.py': 'class Plan:\n    def rows(self):\n        self.cost = 1\n\n\nLIMIT = 3\n',
    'tests/unit/planning/test_plan.py': 'def test_rows_are_dealt():\n    pass\n',
    'docs/guide.md': '# A heading, of *two* parts\n',
    'docs/api.md': '',
}


def missing(text, path='pack/other.py'):
    repository = check_references.Repository(FILES, 'pack')
    found = []
    for passage in check_references.passages(path, text):
        found += repository.problems(passage)
    return found


@pytest.mark.parametrize(
    'reference',
    [
        'tests/unit/test_gone.py',
        'tests/unit/planning/test_plan.py::test_gone',
        'docs/gone/',
        '`test_gone`',
        '`gone.py`',
        '`planning/gone.py`',
        '`gone/plan.py`',
        '`plan.Gone`',
        '`Plan.gone`',
    ],
)
def test_a_comment_and_a_docstring_may_not_refer_to_what_does_not_exist(reference):
    expected = reference.strip('`')
    assert missing('x = 1\n# see\n# %s.\n' % reference) == [(3, expected)]
    assert missing('"""Says.\n\nSee %s.\n"""\n' % reference) == [(3, expected)]


@pytest.mark.parametrize(
    'reference',
    [
        'tests/unit/planning/test_plan.py',
        'tests/unit/planning/test_plan.py::test_rows_are_dealt',
        'tests/unit/',
        '`test_rows_are_dealt`',
        '`test_plan`',
        '`plan.py`',
        '`pack/plan.py`',
        '`planning/test_plan.py`',
        '`plan.Plan`',
        '`plan.LIMIT`',
        '`Plan.rows`',
        '`Plan.cost`',
        '`Other.rows`',
        'keras/engine/saving.py',
    ],
)
def test_what_exists_and_what_is_of_others_may_be_referred_to(reference):
    assert missing('# see %s.\n' % reference) == []


def test_a_string_of_a_program_is_no_comment():
    assert missing("path = 'tests/unit/test_gone.py'\n") == []


def test_a_link_of_a_page_leads_to_a_file_and_a_heading():
    good = (
        '[a](guide.md#a-heading-of-two-parts) [b](api.md) [c](https://x.org/y) [d](../pack/plan.py)'
    )
    assert missing(good, 'docs/index.md') == []
    assert missing('[a](gone.md)\n[b](guide.md#gone)\n', 'docs/index.md') == [
        (1, 'gone.md'),
        (2, 'guide.md#gone'),
    ]


def test_a_picture_of_a_page_is_a_file():
    assert missing('<img src="guide.md">', 'docs/index.md') == []
    assert missing('<img src="gone.svg" width="600">', 'docs/index.md') == [(1, 'gone.svg')]


def test_the_code_of_a_page_may_name_what_it_likes():
    assert missing('```bash\npython tests/unit/test_gone.py\n```\n', 'docs/index.md') == []


def test_the_script_fails_where_something_is_missing_and_says_where(tmp_path):
    subprocess.check_call(['git', 'init', '-q', str(tmp_path)])
    page = tmp_path / 'README.md'
    page.write_text('See [that](gone.md).\n')
    run = [sys.executable, SCRIPT]
    failed = subprocess.run(run, cwd=str(tmp_path), stdout=subprocess.PIPE)
    assert (failed.returncode, failed.stdout) == (1, b'README.md:1: gone.md does not exist\n')
    page.write_text('See [this](README.md).\n')
    subprocess.check_call(run, cwd=str(tmp_path))


def test_classes_of_one_name_may_be_each_others_ancestors():
    files = {
        'pack/session.py': 'class Ours(tf.Session):\n    def run(self):\n        pass\n',
        'tests/test_session.py': 'class Session(Ours):\n    pass\n',
    }
    repository = check_references.Repository(files, 'pack')
    problems = [
        repository.problems(passage)
        for passage in check_references.passages('pack/a.py', '# `Session.gone`, `Session.run`')
    ]
    assert len(problems) == 1 and 'Session.gone' in str(problems) and 'run' not in str(problems)
