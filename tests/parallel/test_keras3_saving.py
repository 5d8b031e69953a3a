# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Files of Keras 3 models, with the state of their optimizers."""

import json

import frameworks
import launch
import pytest

from keras_parallax.checkpoint import manifest

keras = pytest.importorskip('keras', minversion='3', reason='models of Keras 3 need Keras 3')
if not frameworks.TF2 or frameworks.TF1_15:
    pytest.skip('models of Keras 3 need TensorFlow 2', allow_module_level=True)

#: What differs by rounding alone, in formulas that divide by small roots more.
BOUND = 2e-5
#: The other optimizers whose tables are sharded differ in their slots alone, of which
#: `tests/unit/keras3/test_optimizer.py` says the same without a job.
OPTIMIZERS = ('Adagrad', 'Adam')
MORE = ('SGD', 'RMSprop', 'Adadelta', 'Adamax', 'Nadam', 'Lion')


def run(backend, folder, optimizers):
    """What `keras3_saving_worker.py` finds, a list by rank."""
    if backend == 'jax':
        pytest.importorskip('jax')
    outcome = launch.run(2, 'parallel/keras3_saving_worker.py', backend, folder, *optimizers)
    assert outcome.code == 0, outcome.output
    return [json.loads((folder / ('%d.json' % rank)).read_text()) for rank in range(2)]


@pytest.fixture(
    scope='module', params=('tensorflow', pytest.param('jax', marks=pytest.mark.exhaustive))
)
def found(request, tmp_path_factory):
    return run(request.param, tmp_path_factory.mktemp(request.param), OPTIMIZERS)


@pytest.fixture(scope='module', params=('tensorflow', 'jax'))
def found_more(request, tmp_path_factory):
    return run(request.param, tmp_path_factory.mktemp(request.param), MORE)


def check(found, optimizer):
    """Asserts that a file is plain Keras's, and that either goes on from the other's."""
    for of_rank in found:
        of_optimizer = of_rank[optimizer]
        assert of_optimizer.pop('sharded') == 2
        assert max(of_optimizer.values()) < BOUND, of_optimizer


@pytest.mark.parametrize('optimizer', OPTIMIZERS)
def test_a_file_has_the_state_of_the_optimizer_from_which_either_goes_on(found, optimizer):
    check(found, optimizer)


@pytest.mark.exhaustive
@pytest.mark.parametrize('optimizer', MORE)
def test_a_file_has_the_state_of_each_optimizer(found_more, optimizer):
    check(found_more, optimizer)


def test_a_model_of_a_file_that_is_loaded_in_a_scope_goes_on(found):
    for of_rank in found:
        assert of_rank['model'] < BOUND


def test_a_fit_that_was_broken_off_goes_on_from_what_keras_has_backed_up(found):
    for of_rank in found:
        backed_up = of_rank['backed up']
        assert backed_up['saved'] == ['after-1.weights.h5', 'after-2.weights.h5']
        assert backed_up['epochs'] == [2, 3]
        assert backed_up['difference'] < BOUND
        assert backed_up['of the last file'] == 0
        assert not backed_up['left']


@pytest.mark.parametrize('ending', ('.keras', '.weights.h5'))
def test_a_job_goes_on_within_an_epoch_from_its_newest_checkpoint(found, ending):
    for of_rank in found:
        of_file = of_rank[ending]
        assert of_file['latest'] == 'at-2-02' + ending
        assert of_file['first'] == 1
        assert of_file['losses'] < BOUND, 'the epoch counts the batches before, too'
        assert of_file['difference'] < BOUND
        assert len([name for name in of_file['left'] if name.endswith(ending)]) == 2
        assert of_file['refused']
        assert of_file['warnings'] == 1, 'arrays that are shuffled come in another order'
        assert of_file['alone'] == 'MetricMismatchError', 'one worker alone has the callback'


@pytest.mark.parametrize(
    'first, last',
    [
        (('tensorflow', 2), ('jax', 3)),
        pytest.param(('jax', 3), ('tensorflow', 1), marks=pytest.mark.exhaustive),
        pytest.param(('tensorflow', 1), ('tensorflow', 2), marks=pytest.mark.exhaustive),
    ],
)
def test_a_job_goes_on_with_other_workers_and_on_the_other_backend(first, last, tmp_path):
    pytest.importorskip('jax')
    assert goes_on(first, last, 'whole', tmp_path) == {('at-2-3.keras', 1, 8)}


def goes_on(first, last, form, folder):
    """What the workers of a second job have gone on from: pairs of a name, epochs and steps."""
    for (backend, ranks), part in ((first, 'first'), (last, 'last')):
        worker = 'parallel/keras3_resume_worker.py'
        outcome = launch.run(ranks, worker, backend, folder, form, part)
        ends = form == 'killed' and part == 'first'
        assert (outcome.code == 0) != ends, outcome.output
    found = [json.loads((folder / ('%d.json' % rank)).read_text()) for rank in range(last[1])]
    for of_rank in found:
        assert max(of_rank['weights'], of_rank['history']) < BOUND
    return {(of_rank['from'], of_rank['began'], of_rank['steps']) for of_rank in found}


@pytest.mark.parametrize(
    'first, last, form, expected',
    [
        (('tensorflow', 2), ('jax', 3), 'sharded', ('at-2-3', 1, 8)),
        (('jax', 2), ('tensorflow', 2), 'killed', ('parts', 0, 4)),
        *[
            pytest.param(*given, marks=pytest.mark.exhaustive)
            for given in (
                (('jax', 3), ('tensorflow', 1), 'sharded', ('at-2-3', 1, 8)),
                (('tensorflow', 2), ('tensorflow', 2), 'dense', ('at-2-3', 1, 8)),
                (('tensorflow', 1), ('jax', 2), 'incremental', ('parts', 1, 8)),
                (('tensorflow', 2), ('tensorflow', 3), 'killed', ('parts', 0, 4)),
            )
        ],
    ],
)
def test_a_job_goes_on_from_the_parts_that_each_worker_has_saved(
    first, last, form, expected, tmp_path
):
    pytest.importorskip('jax')
    assert goes_on(first, last, form, tmp_path) == {expected}
    if form in ('incremental', 'killed'):
        saved = manifest.read_manifest(str(tmp_path / 'parts'))
        assert saved.deltas, 'all rows are saved once'
