# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The notebook of `examples/keras3/` runs from its first cell to its last, in one process."""

import json
import os
import subprocess
import sys

import frameworks
import notebook
import pytest

FOLDER = os.path.join(os.path.dirname(__file__), '..', '..', '..', 'examples', 'keras3')
NOTEBOOK = os.path.join(FOLDER, 'quickstart.ipynb')


@pytest.fixture(
    scope='module', params=['tensorflow', pytest.param('jax', marks=pytest.mark.exhaustive)]
)
def shown(request):
    """What it prints, and the texts and pages of its cells that end with a value."""
    pytest.importorskip('keras', minversion='3', reason='models of Keras 3 need Keras 3')
    if not frameworks.TF2 or frameworks.TF1_15:
        pytest.skip('models of Keras 3 need TensorFlow 2')
    if request.param == 'jax':
        pytest.importorskip('jax')
    process = subprocess.run(
        [sys.executable, notebook.__file__, NOTEBOOK],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        cwd=FOLDER,
        universal_newlines=True,
        env=dict(os.environ, KERAS_BACKEND=request.param, TF_CPP_MIN_LOG_LEVEL='2'),
    )
    assert process.returncode == 0, process.stderr[-5000:]
    *printed, results = process.stdout.splitlines()
    values = [(text, page) for text, page in json.loads(results) if text is not None]
    return '\n'.join(printed), values


def test_the_plan_of_a_keras_3_model_is_shown_as_a_page(shown):
    text, page = shown[1][0]
    assert text.startswith('<Plan: hybrid') and page.startswith('<iframe')


def test_the_model_of_the_keras_3_notebook_learns_who_likes_what(shown):
    losses = json.loads(shown[1][2][0])
    assert len(losses) == 8 and losses[0] > 0.6 and losses[-1] < 0.1


def test_the_summary_says_which_tables_are_sparse(shown):
    for table in ('users/embeddings', 'items/embeddings'):
        assert any(line.startswith(table) and 'sparse' in line for line in shown[0].splitlines())


def test_files_and_the_export_predict_what_the_model_does(shown):
    assert [text for text, _ in shown[1][-2:]] == ['[True, True]', 'True']


def test_outputs_in_the_keras_3_notebook_are_of_its_cells():
    with open(NOTEBOOK, encoding='utf-8') as file:
        cells = [cell for cell in json.load(file)['cells'] if cell['cell_type'] == 'code']
    assert [cell['execution_count'] for cell in cells] == list(range(1, len(cells) + 1))
    assert not any(output.get('name') == 'stderr' for cell in cells for output in cell['outputs'])
