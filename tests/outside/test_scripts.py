# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Scripts and packages that know nothing of us, as two workers against their plain runs."""

import os

import compare
import pytest
import script_runs as runner
from frameworks import TF2

SCRIPTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'scripts')
MODELS = (
    'DeepFM xDeepFM DCN NFM AFM PNN WDL AutoInt FNN CCPM MLR FiBiNET FLEN FGCNN DIN DIEN DSIN'
).split()
#: What normalizes batches; DeepCTR 0.9.4, for TensorFlow 2, has another name for it.
NORMALIZES = 'ONN' if TF2 else 'NFFM'
MODELS += [NORMALIZES] + ('BST DCNMix DIFM DeepFEFM EDCN FwFM IFM'.split() if TF2 else [])
OPTIMIZERS = ['radam', 'lookahead', 'multiplier']
LINES = [os.path.join(SCRIPTS, 'deepctr_model.py,' + name) for name in MODELS]
LINES += [os.path.join(SCRIPTS, 'optimizer.py,' + name) for name in OPTIMIZERS]


@pytest.fixture(scope='module')
def lines(request):
    """The scripts of the selected tests, or all if none names one."""
    selected = [
        item
        for item in request.session.items
        if item.module is request.module and not item.get_closest_marker('skip')
    ]
    return [each.callspec.params['line'] for each in selected if hasattr(each, 'callspec')] or LINES


@pytest.fixture(scope='module')
def results(run_scripts, lines, tmp_path_factory):
    """The folder of results of the scripts, plain and with two workers, and the job's output."""
    folder = tmp_path_factory.mktemp('scripts')
    plain = run_scripts('plain', 0, folder, lines)
    assert plain.code == 0, plain.output[-5000:]
    return str(folder), run_scripts('parallax', 2, folder, lines)


@pytest.mark.parametrize('line', LINES, ids=runner.name_of)
def test_two_ranks_train_as_the_plain_script_does(results, line):
    folder, job = results
    try:
        differences = compare.difference(folder, runner.name_of(line), ranks=2)
    except AssertionError as error:
        raise AssertionError('%s\n%s' % (error, job.output[-3000:])) from None
    *differences, reasons = differences
    if not reasons:
        assert max(differences) < compare.TOLERANCE, differences


def test_only_batch_normalization_keeps_a_script_from_being_compared(results, lines):
    for name in map(runner.name_of, lines):
        reasons = compare.difference(results[0], name, ranks=2)[-1]
        assert bool(reasons) == (name == 'deepctr_model_' + NORMALIZES)
