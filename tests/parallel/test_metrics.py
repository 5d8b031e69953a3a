# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Metrics of `kp.metrics` are of all samples of a job of two, whose ranks have unequal shares."""

import json
import os

import launch
import numpy as np
import pytest
import selected
import true_metrics
from frameworks import KERAS_PACKAGES, TF2

from keras_parallax.metrics.group_samples import GroupSamples, of_level

RANKS = 2
#: What each metric is of labels and predictions, exactly, and how far it may be from that.
METRICS = {
    'auc': (true_metrics.auc, lambda *of: 1e-6 + true_metrics.auc_bound(*of, 10000)),
    'log_loss': (true_metrics.log_loss, lambda *of: 1e-5),
    'normalized_entropy': (true_metrics.normalized_entropy, lambda *of: 1e-5),
    'calibration': (true_metrics.calibration, lambda *of: 1e-5),
}
#: Those that are means over samples.
MEANS = {'log_loss'}
every_metric = pytest.mark.parametrize('metric', METRICS)


@pytest.fixture(scope='module')
def job(request, tmpdir_factory):
    """What each worker has seen, a list."""
    folder = str(tmpdir_factory.mktemp('metrics'))
    packages = selected.cases_of(request, KERAS_PACKAGES) or KERAS_PACKAGES[-1:]
    outcome = launch.run(RANKS, 'parallel/metrics_worker.py', folder, *packages)
    assert outcome.code == 0, outcome.output[-5000:]
    paths = [os.path.join(folder, '%d.json' % rank) for rank in range(RANKS)]
    return [json.load(open(path)) for path in paths]


@pytest.fixture(params=KERAS_PACKAGES)
def seen(job, request):
    """What each worker has seen with a Keras package, a list."""
    return [of_rank[request.param] for of_rank in job]


def of_samples(seen, metric, name):
    """A metric of the samples of each worker alone, and of all together with how exact it is."""
    compute, tolerance = METRICS[metric]
    shares = [[np.array(part) for part in of_rank[name]] for of_rank in seen]
    joined = [np.concatenate(parts) for parts in zip(*shares)]
    return [compute(*share) for share in shares], compute(*joined), tolerance(*joined)


@every_metric
def test_metrics_are_of_all_samples_on_every_rank(seen, metric):
    _, trained, trained_within = of_samples(seen, metric, 'trained')
    _, validated, within = of_samples(seen, metric, 'validated')
    for of_rank in seen:
        logs = of_rank['first'][0]
        assert logs[metric] == pytest.approx(trained, abs=trained_within)
        assert logs['val_' + metric] == pytest.approx(validated, abs=within)
        for name in ('evaluated', 'generated'):
            value = dict(zip(of_rank['names'], of_rank[name]))[metric]
            assert value == pytest.approx(validated, abs=within)
        assert of_rank['fit_generator']['val_' + metric] == pytest.approx(validated, abs=within)


@every_metric
def test_the_average_of_the_ranks_averages_is_another_number(seen, metric):
    for name in ('trained', 'validated'):
        of_ranks, joined, within = of_samples(seen, metric, name)
        counts = [len(of_rank[name][0]) for of_rank in seen]
        assert abs(np.mean(of_ranks) - joined) > 10 * within
        by_share = abs(np.average(of_ranks, weights=counts) - joined)
        assert by_share <= within if metric in MEANS else by_share > 10 * within


@every_metric
def test_it_is_one_number_on_all_ranks_and_at_every_place(seen, metric):
    for name in (metric, 'val_' + metric):
        first, other = [[of_rank['first'][0][name]] + of_rank['history'][name] for of_rank in seen]
        assert first == other and first[0] == first[1]
        # What TensorFlow 2 predicts differs in its last bit from one time to the next.
        assert first == pytest.approx([first[0]] * len(first), abs=1e-6 if TF2 else 0)


def test_callbacks_decide_alike_by_it(seen):
    # No epoch is better than the first.
    assert [len(of_rank['history']['val_auc']) for of_rank in seen] == [2, 2]


def test_at_the_end_of_a_batch_it_is_of_this_ranks_samples_so_far(seen):
    compute, tolerance = METRICS['auc']
    for of_rank in seen:
        own = [np.array(part) for part in of_rank['trained']]
        assert of_rank['batches'][2] == pytest.approx(compute(*own), abs=tolerance(*own))


def test_ranks_with_different_metrics_are_told_which(job):
    for of_rank in job:
        assert 'rank 0 has auc (200 sums), rank 1 has auc (400 sums)' in of_rank['different']


@pytest.mark.parametrize('metric', ['precision_at_k', 'recall_at_k'])
def test_metrics_of_several_items_a_sample_are_of_all_samples_too(seen, metric):
    found = [of_rank['ranked'] for of_rank in seen]
    shares = [[np.array(part) for part in of_rank['shares']] for of_rank in found]
    compute = getattr(true_metrics, metric)
    joined = compute(*[np.concatenate(parts) for parts in zip(*shares)])
    for of_rank in found:
        assert of_rank['values'][metric] == pytest.approx(joined, abs=1e-6)
        assert of_rank['logs']['val_' + metric] == pytest.approx([joined], abs=1e-6)
    assert abs(np.mean([compute(*share) for share in shares]) - joined) > 1e-2


@pytest.fixture
def grouped(seen):
    """What each worker has seen of the area within groups, and its labels, scores and groups."""
    found = [of_rank['grouped'] for of_rank in seen]
    return found, [[np.array(part) for part in of_rank['shares']] for of_rank in found]


def test_the_area_within_groups_is_of_samples_of_all_ranks(grouped):
    found, shares = grouped
    joined = true_metrics.group_auc(*map(np.concatenate, zip(*shares)))
    trained = [np.concatenate([part[:40] for part in parts]) for parts in zip(*shares)]
    of_rank_0 = true_metrics.group_auc(*shares[0])
    for of_rank in found:
        assert of_rank['values']['group_auc'] == pytest.approx(joined, abs=1e-12)
        logs = of_rank['logs']
        assert logs['group_auc'] == pytest.approx([true_metrics.group_auc(*trained)], abs=1e-12)
        assert logs['val_group_auc'] == pytest.approx([joined], abs=1e-12)
        assert of_rank['alone']['val_group_auc'] == pytest.approx([of_rank_0], abs=1e-12)
    # Neither each worker's groups nor all samples as one group have that value.
    of_ranks = [true_metrics.group_auc(*share) for share in shares]
    counts = [len(share[0]) for share in shares]
    others = [np.mean(of_ranks), np.average(of_ranks, weights=counts)]
    others.append(true_metrics.auc(*list(map(np.concatenate, zip(*shares)))[:2]))
    assert np.abs(np.array(others) - joined).min() > 1e-2


def test_ranks_keep_the_same_groups_if_one_has_too_many_samples(grouped):
    found, shares = grouped
    levels = []
    for labels, scores, groups in shares:
        few = GroupSamples(60)
        few.add(groups, scores, np.ones(len(labels)), labels)
        levels.append(few.level)
    assert levels[0] == 0 < levels[1]
    whole = GroupSamples(1000)
    for labels, scores, groups in shares:
        whole.add(groups, scores, np.ones(len(labels)), labels)
    kept = of_level(whole.samples(), levels[1])
    truth = true_metrics.group_auc(kept['label'], kept['prediction'], kept['group'])
    for of_rank in found:
        assert of_rank['values']['of_some'] == pytest.approx(truth, abs=1e-12)
        assert of_rank['logs']['val_of_some'] == pytest.approx([truth], abs=1e-12)
