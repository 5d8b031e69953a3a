# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Keras 2.2.4's own tests of what we touch, in the scope of a strategy."""

import xml.etree.ElementTree

import launch
import pytest

# Run by two workers. Not those of optimizers, nor the integration tests, which train each for long
# until it is good enough, where `test_equality.py` compares every number.
TESTS = """
keras/test_callbacks.py keras/test_sequential_model.py keras/engine/test_training.py
test_model_saving.py test_loss_masking.py test_dynamic_trainability.py
keras/layers/embeddings_test.py
""".split()
#: Run by one process: what they call does not know of workers, or `test_compiling.py`,
#: `test_metrics.py` and `test_training.py` compare it on two.
ALONE = """
keras/regularizers_test.py keras/constraints_test.py keras/engine/test_topology.py
test_model_pickling.py test_loss_weighting.py keras/metrics_test.py
keras/wrappers/scikit_learn_test.py
""".split()
#: They fail without us as well: PyYAML's `load` wants a loader, and a test wants a warning that
#: is silenced here.
FAIL_IN_PLAIN_KERAS = {
    'test_ReduceLROnPlateau_backwards_compatibility',
    'test_sequential',
    'test_nested_sequential',
    'test_recursion',
    'test_constant_initializer_with_numpy',
}
#: So many pass at least, by the number of workers: if they were not run, it would be seen.
FEWEST = {0: 60, 2: 75}
#: What several workers may refuse: they call `clear_session` inside the scope and compile on the
#: new graph.
REFUSED = {'test_clone_functional_model', 'test_clone_sequential_model'}


def run(ranks, code, environ, folder):
    """Runs Keras's tests on each worker.

    Returns:
        For each worker a dict from the names of failed tests to the messages, the number of tests
        that passed on rank 0, and what was printed.
    """
    outcome = launch.run(
        ranks,
        'outside/run_keras_tests.py',
        code.keras_tests,
        folder,
        *(TESTS if ranks else ALONE),
        environ=environ,
        # The longest job of all, beside others.
        limit=2 * launch.LIMIT_SECONDS,
    )
    failed, passed = [], 0
    for rank in range(max(ranks, 1)):
        report = folder / ('%d.xml' % rank)
        assert report.exists(), outcome.output[-5000:]
        cases = list(xml.etree.ElementTree.parse(str(report)).getroot().iter('testcase'))
        failed.append(
            {
                case.get('name'): verdict.get('message')
                for case in cases
                for verdict in case
                if verdict.tag in ('failure', 'error')
            }
        )
        if rank == 0:
            passed = sum(case.find('skipped') is None for case in cases) - len(failed[0])
    return failed, passed, outcome.output


@pytest.mark.parametrize('ranks', [0, 2])
def test_what_passes_in_plain_keras_passes_in_a_scope(ranks, code, environ, tmp_path):
    failed, passed, output = run(ranks, code, environ, tmp_path)
    for messages in failed:
        refused = {name for name, text in messages.items() if 'errors.ScopeError' in text}
        ours = set(messages) - refused - FAIL_IN_PLAIN_KERAS
        assert not ours, '\n'.join([name + ': ' + messages[name] for name in ours] + [output])
        assert refused <= (REFUSED if ranks else set()), messages
    assert passed >= FEWEST[ranks]
