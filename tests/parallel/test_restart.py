"""A job whose worker is killed goes on from its last checkpoint, as if nothing had been."""

import shutil
import sys

import launch
import numpy as np

RUN = [
    sys.executable, '-c', 'from keras_parallax.cli import main; main()',
    'run', '--max-restarts', '1', '--backoff', '0', '--',
]  # fmt: skip


def weights(folder):
    with np.load(str(folder / 'final.npz')) as file:
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
