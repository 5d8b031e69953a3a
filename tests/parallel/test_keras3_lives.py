# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Random lives of Keras 3 models: two workers equal plain Keras 3 after every act, or refuse it."""

import json

import frameworks
import launch
import pytest

keras = pytest.importorskip('keras', minversion='3', reason='models of Keras 3 need Keras 3')
if not frameworks.TF2 or frameworks.TF1_15:
    pytest.skip('models of Keras 3 need TensorFlow 2', allow_module_level=True)

#: What differs by rounding alone, after some forty steps.
BOUND = 2e-5
#: Lives that save and share tables (both), copy a model, clear the session and give LoRA to a table
#: (16), and quantize (47).
FEW = (16, 47)
#: 12 gives LoRA to a layer.
MORE = (12, *range(20, 44))
#: As of `test_keras3`: all steps of a process share a graph.
PER_JOB = 6


@pytest.mark.parametrize(
    'backend, seeds',
    [
        ('tensorflow', FEW),
        pytest.param('jax', FEW, marks=pytest.mark.exhaustive),
        *[
            pytest.param(backend, MORE[first : first + PER_JOB], marks=pytest.mark.exhaustive)
            for backend in ('tensorflow', 'jax')
            for first in range(0, len(MORE), PER_JOB)
        ],
    ],
)
def test_a_life_of_a_model_is_that_of_plain_keras_3_or_is_refused(backend, seeds, tmp_path):
    if backend == 'jax':
        pytest.importorskip('jax')
    worker = 'parallel/keras3_lives_worker.py'
    outcome = launch.run(2, worker, backend, tmp_path, *map(str, seeds))
    assert outcome.code == 0, outcome.output
    found = [json.loads((tmp_path / ('%d.json' % rank)).read_text()) for rank in range(2)]
    for seed in map(str, seeds):
        lives = [of_rank[seed] for of_rank in found]
        assert max(max(life['differences']) for life in lives) < BOUND, lives
        assert lives[0].get('refused') == lives[1].get('refused')
    of_keras = 'plain Keras'
    ours = [
        life for life in found[0].values() if not life.get('refused', of_keras).startswith(of_keras)
    ]
    assert 2 * len(ours) < len(found[0]), 'most are trained to their end, or to where Keras refuses'
