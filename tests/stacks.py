"""Which files of tests a stack runs: on TensorFlow 1.11 all, on TensorFlow 2 those seen to pass."""

from frameworks import TF2

#: Files and folders below the project's.
ON_TENSORFLOW_2 = (
    'tests/parallel/test_equality.py',
    'tests/unit/callbacks/test_callback_code.py',
    'tests/unit/callbacks/test_epoch_reports.py',
    'tests/unit/callbacks/test_fit_output.py',
    'tests/unit/callbacks/test_learning_rate.py',
    'tests/unit/callbacks/test_replicas.py',
    'tests/unit/checkpoint/test_keras_file_',
    'tests/unit/checkpoint/test_manifest.py',
    'tests/unit/checkpoint/test_once.py',
    'tests/unit/checkpoint/test_path_patterns.py',
    'tests/unit/checkpoint/test_random_state.py',
    'tests/unit/checkpoint/test_sample_inputs.py',
    'tests/unit/checkpoint/test_save.py',
    'tests/unit/checkpoint/test_saved_model_check.py',
    'tests/unit/checkpoint/test_tensorflow_slots.py',
    'tests/unit/checkpoint/test_weight_pairs.py',
    'tests/unit/compat/test_session_hooks.py',
    'tests/unit/compat/test_tensorflow_optimizers.py',
    'tests/unit/session/test_graph_sessions.py',
    'tests/unit/session/test_run_errors.py',
    'tests/unit/session/test_state_updates.py',
    'tests/unit/test_single_process.py',
    'tests/unit/compat/test_keras_optimizers.py',
    'tests/unit/compat/test_tensorflow_2.py',
    'tests/unit/compat/test_versions.py',
    'tests/unit/compat/test_datasets.py',
    'tests/unit/data/',
    'tests/unit/planning/',
    'tests/unit/step/',
    'tests/unit/tables/',
    'tests/unit/updates/test_asked_gradients.py',
    'tests/unit/updates/test_clipping.py',
    'tests/unit/updates/test_formula_graph.py',
)


def is_run(path):
    """Whether this stack runs the tests of a file.

    Args:
        path: its path from the project's folder.
    """
    return not TF2 or path.startswith(ON_TENSORFLOW_2)
