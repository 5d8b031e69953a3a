# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""A job whose worker is killed goes on from its last checkpoint, as if nothing had been."""

import re
import shutil
import sys

import launch
import numpy as np

RUN = [
    sys.executable, '-c', 'from keras_parallax.commands.cli import main; main()',
    'run', '--max-restarts', '1', '--backoff', '0', '--',
]  # fmt: skip
RUN_4 = ['4' if word == '1' else word for word in RUN]


def weights(folder, name='final.npz'):
    with np.load(str(folder / name)) as file:
        return [file[name] for name in file.files]


def test_a_job_that_is_restarted_ends_with_the_weights_of_one_without_a_failure(tmp_path):
    broken, whole = tmp_path / 'broken', tmp_path / 'whole'
    broken.mkdir()
    arguments = [2, 'parallel/restart_worker.py']
    outcome = launch.run(*arguments, broken, 2, prefix=RUN)
    assert outcome.code == 0, outcome.output
    assert outcome.output.count('FROM 0;') == 2 and outcome.output.count('FROM 2;') == 2
    assert 'Rank 1 on host' in outcome.output and 'was killed from outside' in outcome.output
    assert 'keras-parallax run: the job failed with exit code' in outcome.output
    assert 'restart 1 of 1' in outcome.output and 'ended well after restart 1' in outcome.output

    # The same start: the state after the first epoch of the job that was killed later.
    whole.mkdir()
    shutil.copy(str(broken / 'model-01.h5'), str(whole))
    outcome = launch.run(*arguments, whole, 99, prefix=RUN)
    assert outcome.code == 0, outcome.output
    assert outcome.output.count('FROM 1;') == 2
    for found, expected in zip(weights(broken), weights(whole)):
        np.testing.assert_array_equal(found, expected)


def test_a_job_killed_within_an_epoch_ends_with_the_weights_of_one_without_a_failure(tmp_path):
    outcome = launch.run(2, 'parallel/restart_worker.py', tmp_path, 'all', prefix=RUN)
    assert outcome.code == 0, outcome.output
    assert 'was killed from outside' in outcome.output and 'restart 1 of 1' in outcome.output
    # Four batches are an epoch; the sixth was the last that was saved.
    assert outcome.output.count('FROM 1 model-2-2;') == 2
    found, expected = (weights(tmp_path, run + '.npz') for run in ('resumed', 'unbroken'))
    assert len(found) == len(expected) > 10
    for one, other in zip(found, expected):
        np.testing.assert_array_equal(one, other)


def test_a_worker_killed_while_it_saves_leaves_the_checkpoint_of_before_whole(tmp_path):
    outcome = launch.run(2, 'parallel/save_kill_worker.py', tmp_path, prefix=RUN_4)
    assert outcome.code == 0, outcome.output[-5000:]
    killed = re.findall(r'(Rank \d) on host \S+ was killed from outside', outcome.output)
    assert killed == ['Rank 0', 'Rank 1', 'Rank 0', 'Rank 1']
    # Each attempt goes on, on both workers, from the first epoch, the last that was saved
    # completely.
    resumed = re.findall('FROM (.*);', outcome.output)
    assert resumed == ['single 1 SAME True'] * 4 + ['parts 1 SAME True'] * 4
    for form in ('single', 'parts'):
        names = sorted(path.name for path in (tmp_path / form).iterdir())
        assert names == ['model-01', 'model-02', 'model-03']
