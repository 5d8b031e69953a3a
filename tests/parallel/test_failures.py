# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Every job ends: with the right exit code, a sentence that names the cause, and nothing left."""

import re
import signal

import launch
import pytest
from frameworks import RATE, TF2

#: For machines with fewer cores than workers; no verdict depends on how long a job takes.
LIMIT_SECONDS = 240
#: A worker says why it ends by an exception, or, where it cannot be interrupted, without one.
ENDS = '(WorkerFailedError|Rank 0 ends): '
#: Way to fail to the sentences that must come, each of them from one worker and no other.
WAYS = {
    'bad_id': [
        r'IdOutOfRangeError: Rank 1: layer words looked up id 57, but its table words/embeddings '
        r'has 50 rows',
    ],
    # An error of ours is told by one worker of a job, as with `bad_id`.
    'empty_batch': [r'DataError: Rank 1: the batch has no samples'],
    'exception': [
        r"KeyError: 'the user made a mistake'",
        r'WorkerFailedError: Rank 1 on host \S+ failed: KeyError',
    ],
    'exception_without_tables': [
        r"KeyError: 'the user made a mistake'",
        r'WorkerFailedError: Rank 1 on host \S+ failed: KeyError',
    ],
    'exception_before_training': [r'WorkerFailedError: Rank 1 on host \S+ failed: KeyError'],
    'exception_while_others_compute': [r'Rank 0 ends: Rank 1 on host \S+ failed: KeyError'],
    'exception_with_a_hook': [r'WorkerFailedError: Rank 1 on host \S+ failed: KeyError'],
    'exception_at_the_start': [
        r'Rank 1 on host \S+ failed: ValueError: no such card',
        r'ValueError: no such card',
    ],
    'exception_before_the_job': [
        r"KeyError: 'the user made a mistake'",
        r'Rank 0 ends: Rank 1 on host \S+ ended before it had made a ParallaxStrategy: KeyError',
    ],
    'exit_with_a_message': [
        r'UnequalBatchesError: Rank 1 ended after 3 training batches while rank 0 began batch 4'
        r".*Rank 1 ended by sys.exit\('no data'\)",
    ],
    'exit_by_an_exception': [
        r'UnequalBatchesError: Rank 1 ended after 3 training batches while rank 0 began batch 4'
        r".*Rank 1 ended by raise SystemExit\('no data'\)",
    ],
    'exit_code': [
        r'UnequalBatchesError: Rank 1 ended after 3 training batches while rank 0 began batch 4'
    ],
    'early_success': [
        r'UnequalBatchesError: Rank 1 ended after 3 training batches while rank 0 began batch 4'
    ],
    'unequal_fit': [
        r'UnequalBatchesError: The workers have unequal numbers of batches in an epoch: rank 0 has '
        r'8, rank 1 has 6'
    ],
    'other_width': [
        r'ModelMismatchError: The workers built different models: rank 1 has words/embeddings: '
        r'\[50, 5\] float32, sparse where rank 0 has words/embeddings: \[50, 4\] float32'
    ],
    'other_name': [r'ModelMismatchError: .*rank 1 has items/embeddings'],
    'other_rate': [r"ModelMismatchError: .*rank 1 has optimizer config: .*'%s': 0.2" % RATE],
    'compile_outside': [r'ScopeError: model.compile\(\) ran outside the scope'],
    'killed': [r'Rank 1 on host \S+ was killed from outside or crashed'],
    'killed_together': [r'Rank [0-2] on host \S+ was killed from outside or crashed'],
    'killed_alone': [r'Rank 0 on host \S+ was killed from outside or crashed'],
    'killed_with_its_watchdog': [r'Rank 1 on host \S+ has ended without a word'],
    'killed_before_it_meets': [r'Rank 1 on host \S+ was killed from outside or crashed'],
    'killed_before_it_serves': [r'Rank 1 on host \S+ was killed from outside or crashed'],
    'killed_before_the_job': [
        r'Rank 0 ends: Rank 0 on host \S+ has waited in vain for rank 1 to start'
    ],
    'stopped': [r'Rank 1 on host \S+ has been stopped for \d+ s .* and is killed'],
    'hung': [
        ENDS + r'Rank 0 has waited \d\d s in training batch 4 for rank 1 on host \S+, which did '
        r'not begin it',
    ],
    # NumPy 2 has a class of its own for it.
    'out_of_memory': [
        r'\S*MemoryError',
        r'WorkerFailedError: Rank 1 on host \S+ failed: \S*MemoryError',
    ],
    'ends_before_training': [
        r'UnequalCallsError: Rank 0 waits in the first training call of a model for rank 1, which '
        r'has ended'
    ],
    'ends_before_resume': [
        r'UnequalCallsError: Rank 0 waits in strategy.resume for rank 1, which has ended'
    ],
    'saves_alone': [
        r'UnequalCallsError: Rank 0 waits in ModelCheckpoint\(sharded=True\) after epoch 1 for '
        r'rank 1, which has ended'
    ],
    'resumes_alone': [
        r'UnequalCallsError: Rank 0 is in strategy.resume, but rank 1 in the first training call '
        r'of a model'
    ],
    'reduces_alone': [
        r"UnequalCallsError: Rank 1 waits in Horovod's operation HorovodAllreduce\S* for rank 0, "
        r'which has ended'
    ],
    'saves_while_others_train': [
        r'UnequalBatchesError: Rank 0 waits for the other workers after 3 training batches, in '
        r'ModelCheckpoint\(sharded=True\) after epoch 1, while rank 1 began batch 4'
    ],
    'caught': [
        r'WorkerFailedError: Rank 1 on host \S+ failed in training batch 4: IdOutOfRangeError: '
        r'Rank 1: layer words looked up id 57'
    ],
    'caught_in_session_run': [
        r'WorkerFailedError: Rank 1 on host \S+ failed in training batch 4: IdOutOfRangeError: '
        r'Rank 1: layer words looked up id 57'
    ],
    'caught_in_fit': [
        r'WorkerFailedError: Rank 1 on host \S+ failed in training batch 4: KeyError'
    ],
    'caught_after_fit': [
        r'WorkerFailedError: Rank 1 on host \S+ failed in training batch 2: KeyError'
    ],
    'caught_without_tables': [
        r'WorkerFailedError: Rank 1 on host \S+ failed in training batch 4: UnknownError: KeyError'
    ],
    'optimizer_outside': [r'ScopeError: ParallaxOptimizer was made outside the scope'],
}
#: What Horovod 0.28.1's launcher says, which ends a worker that has not heard yet why it is to end.
LAUNCHER_SAYS = 'Terminating remaining workers after failure of Process 1.'
if TF2:
    WAYS['exception_while_others_compute'] = [r"KeyError: 'the user made a mistake'"]
    WAYS['killed_before_the_job'] = []
#: Number of workers, if not 2.
RANKS = {'exception': 3, 'killed': 3, 'killed_together': 3, 'killed_alone': 1, 'other_width': 3}

#: How many workers say which process they are and which port they have, if not all.
RANKS_THAT_START = {
    'exception_at_the_start': 0,
    'exception_before_the_job': 0,
    'killed_before_it_meets': 0,
    'killed_before_it_serves': 0,
    'killed_before_the_job': 0,
}


def says(output, sentence):
    """The lines of workers that begin with a sentence, a regular expression; a list."""
    line = r'\[\d+\]<stderr>:(?:keras_parallax\.errors\.)?(?:%s).*' % sentence
    return re.findall(line, output)


def sentences(output):
    """The lines that name a worker and its host, from whomever; a list."""
    return re.findall(r'<stderr>:.*\b[Rr]ank \d+ on host .*', output)


@pytest.mark.parametrize('way', sorted(WAYS))
def test_a_failed_job_ends_and_says_why(way, tmp_path):
    ranks = RANKS.get(way, 2)
    outcome = launch.run(ranks, 'parallel/failure_worker.py', way, tmp_path, limit=LIMIT_SECONDS)
    assert outcome.code not in (0, None), outcome.output
    for expected in WAYS[way]:
        assert len(says(outcome.output, expected)) == 1, outcome.output
    if TF2 and way in ('exception_while_others_compute', 'killed_before_the_job'):
        assert LAUNCHER_SAYS in outcome.output, outcome.output
    assert len(sentences(outcome.output)) <= 1, outcome.output
    for noise in ('Exception in thread', 'Segmentation fault', 'Fatal Python', 'terminate called'):
        assert noise not in outcome.output, outcome.output
    assert len(re.findall('PROCESS', outcome.output)) == RANKS_THAT_START.get(way, ranks)
    assert not launch.left_over(outcome.output)
    # Where the reason is known, nobody waits to hear of one.
    assert 'AWAITED' not in outcome.output
    if way.startswith('caught'):
        assert outcome.output.count('CAUGHT') == 1, outcome.output


@pytest.mark.parametrize('way', ['ends_well', 'nan_loss', 'caught_by_all'])
def test_a_job_ends_well(way):
    outcome = launch.run(3, 'parallel/failure_worker.py', way, limit=LIMIT_SECONDS)
    assert outcome.code == 0, outcome.output
    assert len(re.findall('PROCESS', outcome.output)) == 3
    assert not launch.left_over(outcome.output)


@pytest.mark.parametrize('way, ready', [('never_ends', 'TRAINS'), ('never_meets', 'WAITS')])
@pytest.mark.parametrize('number', [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_job_ends_with_its_launcher(number, way, ready, tmp_path):
    path = tmp_path / 'output'
    with path.open('wb') as file:
        launcher = launch.start(2, 'parallel/failure_worker.py', way, output=file)
        try:
            launch.wait_until(lambda: path.read_text().count(ready) == 2, path.read_text)
            launcher.send_signal(number)
            # Its code is Horovod's own affair: two of its threads wait for each worker, and the one
            # that comes second takes the code for 0 (0.19.5, its `safe_shell_exec`).
            launcher.wait(LIMIT_SECONDS)
            launch.wait_until(
                lambda: not launch.left_over(path.read_text()),
                lambda: launch.left_over(path.read_text()),
            )
        finally:
            launcher.kill()
    # Who has lost its launcher has nowhere to say so.
    expected = 0 if number == signal.SIGKILL else 1
    assert len(sentences(path.read_text())) == expected, path.read_text()
