# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""A unit test is where the name of what it tests says."""

import glob
import os

UNIT = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(UNIT))
#: What tests of this folder itself may be of: modules of users, scripts and helpers.
FOLDERS = ('keras_parallax', 'scripts', 'examples', 'tests')
#: Tests of something else than one module.
OTHERS = {
    'engine/updates/optimizers/test_formulas.py',  # every module there with a formula
    'engine/updates/optimizers/test_tensorflow.py',  # every module there with one of TensorFlow
    'keras3/test_own_tests_of_keras.py',  # every module there
    'keras3/test_example_layers.py',  # examples/keras3/
    'keras3/test_keras3_notebook.py',  # examples/keras3/
    'test_api_pages.py',  # docs/api
    'test_from_parallax.py',  # docs/from-parallax.md
    'test_choose_stack.py',  # scripts/choose_stack.sh
    'test_layout.py',
    'test_merged_collectives.py',  # Horovod and TensorFlow
    'test_packaging.py',  # setup.py
    'test_public_names.py',  # the whole package
    'test_single_process.py',  # the whole package
}
#: Modules of `engine` without a test of their name, from a reason to their paths.
WITHOUT_TEST = {
    'says what is asked of something else, and does nothing': (
        'job/job_interface.py',
        'session/scope_interface.py',
        'session/session_scope.py',
        'step/step_observer.py',
        'tables/former_interface.py',
        'tables/scope_interface.py',
    ),
    'data alone': (
        'step/synchronization.py',
        'step/table_traffic.py',
        'tables/pull_data.py',
        'updates/part_updates.py',
    ),
    'names optimizers of which there is no formula; test_tensorflow.py there trains with them': (
        'updates/optimizers/adagrad_da.py',
        'updates/optimizers/ftrl.py',
        'updates/optimizers/proximal.py',
    ),
}


def modules_of(test):
    """The modules that a test may be of by its name: paths from the root of the repository.

    Args:
        test: the test's path below `tests/unit`.
    """
    room, name = os.path.split(test)
    module = name[len('test_') :]
    if room:
        return [os.path.join('keras_parallax', room, module)]
    return [os.path.join(folder, module) for folder in FOLDERS]


def test_a_unit_test_has_the_path_of_a_module():
    paths = glob.glob(os.path.join(UNIT, '**', 'test_*.py'), recursive=True)
    tests = {os.path.relpath(path, UNIT) for path in paths}
    assert 'planning/test_costs.py' in tests
    lost = [
        test
        for test in sorted(tests - OTHERS)
        if not any(os.path.exists(os.path.join(ROOT, module)) for module in modules_of(test))
    ]
    assert lost == []


def test_a_module_of_the_engine_has_a_unit_test_or_decides_nothing():
    engine = os.path.join(ROOT, 'keras_parallax', 'engine')
    paths = glob.glob(os.path.join(engine, '**', '*.py'), recursive=True)
    modules = {os.path.relpath(path, engine) for path in paths}
    modules = {module for module in modules if os.path.basename(module) != '__init__.py'}
    assert 'step/gradients.py' in modules

    def is_tested(module):
        room, name = os.path.split(module)
        return os.path.exists(os.path.join(UNIT, 'engine', room, 'test_' + name))

    exceptions = [module for of_reason in WITHOUT_TEST.values() for module in of_reason]
    assert sorted(module for module in modules if not is_tested(module)) == sorted(exceptions)
