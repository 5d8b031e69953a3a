# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Models of Keras 3 train in a strategy as in plain Keras 3 on the joined batch."""

import importlib.util
import json

import frameworks
import hidden_packages
import launch
import pytest

keras = pytest.importorskip('keras', minversion='3', reason='models of Keras 3 need Keras 3')
if not frameworks.TF2 or frameworks.TF1_15:
    pytest.skip('models of Keras 3 need TensorFlow 2', allow_module_level=True)

from keras3_cases import CASES  # noqa: E402

#: What differs by rounding alone, of float32 and of types of 16 bits.
BOUND = 1e-5
BOUND_OF_16_BITS = 1e-2

#: Keras 3.12 has none.
HAS_MULTI = hasattr(keras.optimizers, 'MultiOptimizer')
#: It needs Python 3.11.
HAS_KERAS_RS = importlib.util.find_spec('keras_rs') is not None

#: Cases whose tables every rank holds, because the engine cannot update them by rows.
DENSE = (
    'adamw ftrl lamb adafactor muon schedule_free loss_scale clipnorm clipvalue global_clipnorm '
    'weight_decay ema accumulated tied mixed_float16 bfloat16 xla_without_tables '
    'penalized_by_hand read_by_operators taken frozen_taken'
).split() + ['multi_of_own_map'] * HAS_MULTI
#: Cases with fewer tables that have shards than two.
TABLES = dict(
    {name: 0 for name in DENSE},
    **dict.fromkeys('regularized constrained shared computed recurrent masked'.split(), 1),
    **dict.fromkeys(['masked_weights', 'activity', 'xla_masked', 'xla_activity'], 1),
    same_ids=4,
    same_ids_adam=4,
    alike_rows=3,
    eager_alike_rows=3,
    multi_in_part=1,
)
#: Optimizers that move rows.
OPTIMIZERS = 'momentum adagrad adam rmsprop nadam'.split()
#: Others, whose formulas for rows Keras 2 has, too, and cases that resemble one of `WAYS`.
MORE = (
    'sgd nesterov amsgrad rmsprop_all adadelta adamax lion same_ids_adam apart_adam xla_activity'
).split() + ['distributed_one'] * HAS_KERAS_RS
#: Loops, losses, rates and models.
WAYS = (
    'regularized constrained schedule rate_callback early_stopping eager steps_per_execution '
    'shared same_ids alike_rows eager_alike_rows apart '
    'computed own_step recurrent masked masked_weights weights two_outputs sum '
    'weighted_mean sum_of_squares nested_sum nested_values activity lazy mixed_bfloat16 xla '
    'xla_masked'
).split()
#: Cases that are refused where there are several workers.
REFUSED = ('unknown_reduction', 'added_loss')

FEW = (
    'momentum',
    'adam',
    'same_ids',
    'alike_rows',
    'apart',
    'computed',
    'masked_weights',
    'adamw',
    'tied',
    'penalized_by_hand',
    'read_by_operators',
    'taken',
    'frozen',
    'frozen_taken',
)
FEW += ('multi', 'multi_in_part') * HAS_MULTI + ('distributed',) * (HAS_MULTI and HAS_KERAS_RS)


#: Without Keras 2, as who has Keras 3 has it.
WITHOUT_KERAS_2 = {hidden_packages.VARIABLE: 'tf_keras'}


def found_by(backend, ranks, cases, folder, environ=None):
    """What `keras3_worker.py` finds, a list by rank."""
    if backend == 'jax':
        pytest.importorskip('jax')
        environ = WITHOUT_KERAS_2
    outcome = launch.run(
        ranks, 'parallel/keras3_worker.py', backend, folder, *cases, environ=environ
    )
    assert outcome.code == 0, outcome.output
    return [json.loads((folder / ('%d.json' % rank)).read_text()) for rank in range(ranks)]


def check(found, case):
    """Asserts that a case equals plain Keras, on every rank."""
    for of_rank in found:
        of_case = of_rank[case]
        assert 'refused' not in of_case, of_case
        assert len(of_case['tables']) == TABLES.get(case, 2)
        bound = BOUND_OF_16_BITS if 'float16' in case else BOUND
        assert of_case['moved'] is None or of_case['moved'] > max(4 * bound, 100 * BOUND)
        differences = [of_case['weights'], of_case['predictions'], *of_case['history'].values()]
        assert max(differences) < bound, of_case


#: How many cases a job has: all steps of a process share a graph, and each makes it larger.
PER_JOB = 14


@pytest.fixture(scope='module')
def on_tensorflow(tmp_path_factory):
    """Function from a case to what `keras3_worker.py` finds of it and of others, a list by rank."""
    cases = list(dict.fromkeys([*OPTIMIZERS, *WAYS, *FEW, *REFUSED, 'ema', 'loss_scale']))
    outcomes = {}

    def found(case):
        first = cases.index(case) // PER_JOB * PER_JOB
        if first not in outcomes:
            folder = tmp_path_factory.mktemp('tensorflow')
            outcomes[first] = found_by('tensorflow', 2, cases[first : first + PER_JOB], folder)
        return outcomes[first]

    return found


@pytest.fixture(scope='module')
def on_jax(tmp_path_factory):
    return found_by('jax', 2, [*FEW, *REFUSED], tmp_path_factory.mktemp('jax'))


@pytest.mark.parametrize('case', dict.fromkeys([*OPTIMIZERS, *WAYS, *FEW, 'ema', 'loss_scale']))
def test_two_workers_equal_plain_keras_3_with_tensorflow(on_tensorflow, case):
    check(on_tensorflow(case), case)


@pytest.mark.parametrize('case', FEW)
def test_two_workers_equal_plain_keras_3_with_jax(on_jax, case):
    check(on_jax, case)


def test_keras_2_is_not_needed(tmp_path):
    found = found_by('tensorflow', 2, ['momentum', 'same_ids_adam'], tmp_path, WITHOUT_KERAS_2)
    for case in ('momentum', 'same_ids_adam'):
        check(found, case)


@pytest.mark.parametrize('case', REFUSED)
def test_a_loss_that_may_be_a_sum_is_refused_unless_it_is_said(on_tensorflow, on_jax, case):
    for of_rank in [*on_tensorflow(case), *on_jax]:
        assert of_rank[case]['refused'] == 'PlanError'
        assert 'loss_reduction' in of_rank[case]['words']


def test_every_optimizer_of_keras_has_a_case():
    given = [type(CASES[name].optimizer()).__name__ for name in (*OPTIMIZERS, *MORE, *DENSE)]
    classes = [one for one in vars(keras.optimizers).values() if isinstance(one, type)]
    own = {one.__name__ for one in classes if issubclass(one, keras.optimizers.Optimizer)}
    assert own - set(given) == {'Optimizer'}


@pytest.mark.exhaustive
@pytest.mark.parametrize('backend', ('tensorflow', 'jax'))
@pytest.mark.parametrize('ranks', (1, 3))
def test_one_worker_and_three_equal_plain_keras_3(backend, ranks, tmp_path):
    found = found_by(backend, ranks, FEW, tmp_path)
    for case in FEW:
        check(found, case)


OTHERS = (*MORE, *DENSE)
ALL = (*OPTIMIZERS, *WAYS, *OTHERS)


@pytest.mark.exhaustive
@pytest.mark.parametrize('first', range(0, len(ALL), PER_JOB))
def test_all_cases_equal_plain_keras_3_with_jax(first, tmp_path):
    cases = ALL[first : first + PER_JOB]
    found = found_by('jax', 2, cases, tmp_path)
    for case in cases:
        check(found, case)


@pytest.mark.exhaustive
@pytest.mark.parametrize('first', range(0, len(OTHERS), PER_JOB))
def test_other_cases_equal_plain_keras_3_with_tensorflow(first, tmp_path):
    cases = OTHERS[first : first + PER_JOB]
    found = found_by('tensorflow', 2, cases, tmp_path)
    for case in cases:
        check(found, case)
