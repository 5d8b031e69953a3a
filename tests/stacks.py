"""Which files of tests a stack runs: on TensorFlow 1.11 all, on TensorFlow 2 those seen to pass."""

from frameworks import TF2

#: Files and folders below the project's.
ON_TENSORFLOW_2 = (
    'tests/parallel/test_equality.py',
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
)


def is_run(path):
    """Whether this stack runs the tests of a file.

    Args:
        path: its path from the project's folder.
    """
    return not TF2 or path.startswith(ON_TENSORFLOW_2)
