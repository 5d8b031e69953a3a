"""Keras 2.2.4's own tests of what we touch, in the scope of a strategy."""

import xml.etree.ElementTree

import launch
import pytest

TESTS = """
keras/optimizers_test.py keras/test_callbacks.py keras/test_sequential_model.py
keras/engine/test_training.py keras/engine/test_topology.py test_model_saving.py
test_model_pickling.py test_loss_weighting.py test_loss_masking.py test_dynamic_trainability.py
keras/regularizers_test.py keras/constraints_test.py keras/metrics_test.py
keras/layers/embeddings_test.py integration_tests/test_temporal_data_tasks.py
integration_tests/test_vector_data_tasks.py keras/wrappers/scikit_learn_test.py
""".split()
#: They fail without us as well: PyYAML's `load` and numpy's arrays of lists are newer, and pytest
#: has no `warns(None)` with no warning any more.
FAIL_IN_PLAIN_KERAS = {
    'test_ReduceLROnPlateau_backwards_compatibility',
    'test_sequential',
    'test_nested_sequential',
    'test_recursion',
    'test_constant_initializer_with_numpy',
}


def run(ranks, code, environ, folder):
    """The names of failed tests of each rank, the number of passed ones of rank 0, and output."""
    outcome = launch.run(
        ranks,
        'outside/run_keras_tests.py',
        code.keras_tests,
        folder,
        *TESTS,
        environ=environ,
    )
    failed, passed = [], 0
    for rank in range(max(ranks, 1)):
        report = folder / ('%d.xml' % rank)
        assert report.exists(), outcome.output[-5000:]
        cases = xml.etree.ElementTree.parse(str(report)).getroot().iter('testcase')
        kinds = {case.get('name'): {child.tag for child in case} for case in cases}
        failed.append({name for name, kind in kinds.items() if kind & {'failure', 'error'}})
        if rank == 0:
            passed = sum('skipped' not in kind for kind in kinds.values()) - len(failed[0])
    return failed, passed, outcome.output


@pytest.mark.parametrize('ranks', [0, 2])
def test_what_passes_in_plain_keras_passes_in_a_scope(ranks, code, environ, tmp_path):
    failed, passed, output = run(ranks, code, environ, tmp_path)
    for names in failed:
        assert names <= FAIL_IN_PLAIN_KERAS, output[-10000:]
    assert passed > 150
