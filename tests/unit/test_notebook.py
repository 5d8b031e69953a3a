# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The notebook among the examples runs from its first cell to its last, in one process."""

import json
import os
import subprocess
import sys

import notebook
import pytest

EXAMPLES = os.path.join(
    os.path.dirname(os.path.abspath(__file__)), os.pardir, os.pardir, 'examples'
)
NOTEBOOK = os.path.join(EXAMPLES, 'quickstart.ipynb')


@pytest.fixture(scope='module')
def shown():
    """What its cells show that end with a value: pairs of text and page."""
    process = subprocess.run(
        [sys.executable, notebook.__file__, NOTEBOOK],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        cwd=EXAMPLES,
        universal_newlines=True,
        env=dict(os.environ, TF_CPP_MIN_LOG_LEVEL='2'),
    )
    assert process.returncode == 0, process.stderr[-5000:]
    results = json.loads(process.stdout.splitlines()[-1])
    return [(text, page) for text, page in results if text is not None]


def test_the_plan_is_shown_as_a_page(shown):
    text, page = shown[0]
    assert text.startswith('<Plan: hybrid') and page.startswith('<iframe')


def test_the_model_learns_who_likes_what(shown):
    losses = json.loads(shown[2][0])
    assert len(losses) == 8 and losses[0] > 0.6 and losses[-1] < 0.1


def test_numbers_of_a_step_and_files_for_tensorboard_are_there(shown):
    assert "'rows/touched': 166.0" in shown[3][0]
    assert 'projector_config.pbtxt' in shown[4][0] and "'rank-0'" in shown[4][0]


def test_the_export_predicts_what_the_model_does(shown):
    assert shown[-1][0] == 'True'


def test_outputs_that_are_in_the_file_are_of_its_cells():
    with open(NOTEBOOK, encoding='utf-8') as file:
        cells = [cell for cell in json.load(file)['cells'] if cell['cell_type'] == 'code']
    assert [cell['execution_count'] for cell in cells] == list(range(1, len(cells) + 1))
    assert not any(output.get('name') == 'stderr' for cell in cells for output in cell['outputs'])


def test_a_cell_that_fails_is_noticed(tmp_path):
    cell = {'cell_type': 'code', 'source': ['1 / 0\n']}
    path = tmp_path / 'failing.ipynb'
    path.write_text(json.dumps({'nbformat': 4, 'cells': [cell]}))
    with pytest.raises(ZeroDivisionError):
        notebook.main(str(path))
