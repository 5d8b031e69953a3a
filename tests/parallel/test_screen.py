# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What a user sees of a job: few lines besides training, and as the last one why it failed."""

import os
import re
import subprocess
import sys

import launch
import pytest
from frameworks import tensorflow

WORKER = os.path.join(launch.HERE, 'parallel', 'screen_worker.py')
KERAS_PARALLAX = [sys.executable, '-m', 'keras_parallax_command', 'run']
HOROVODRUN = [os.path.join(os.path.dirname(sys.executable), 'horovodrun')]
#: The lines that `fit` and the worker itself print.
TRAINING = re.compile(r'$|Train on |Epoch \d/2|.*\d+/\d+.*\d[um]?s/(step|sample)|TRAINED \d$')
MOST_LINES = 10
CAUSES = {
    'import': r"Rank {0} failed: (ModuleNotFound|Import)Error: No module named 'no_such_module'",
    'killed_at_the_start': r'Rank {0} was killed by SIGKILL',
    'exit_at_the_start': r'Rank {0} ended with exit code 1; the last line of its standard error '
    r'is: no data here',
    'exception': r"Rank {0} (on host \S+ )?failed: KeyError: 'my mistake'",
    'killed': r'Rank {0} on host \S+ was killed by SIGKILL',
    'exit': r"Rank {0} ended after 64 training batches .* Rank {0} ended by raise "
    r"SystemExit\('no data here'\)",
    'error_of_ours': r'Rank {0} failed: IdOutOfRangeError: Rank {0}: layer .* looked up id 50',
}
#: The ways and ranks that `make test` tries; the others are read from lines of the same forms.
FIRST_TO_TRY = [('import', 1), ('exit', 1), ('killed', 1), ('exception', 0)]
#: TensorFlow 2.21 writes these as it is imported, before it looks at its own variable.
UNAVOIDABLE = re.compile(r'WARNING: All log messages before absl|I0000 .* (port|cudart_stub)\.cc:')
#: A thread of Horovod's own writes it when it likes.
OF_HOROVOD = re.compile(r'\[\d{4}-\d\d-\d\d .*operations\.cc:\d+\]')
#: What rank 0 prints last under `horovodrun`, of ways for rank 1 to fail.
LAST_WORDS = {
    'exception': r"(\S*WorkerFailedError: |Rank 0 ends: )Rank 1 on host \S+ failed: KeyError",
    'killed': r'Rank 1 on host \S+ was killed from outside or crashed',
}


def run(folder, launcher, way, rank=1, **environ):
    """The exit code and the lines of a job of two workers that is started in a folder."""
    full = dict(os.environ, **environ)
    full.pop('TF_CPP_MIN_LOG_LEVEL', None)
    path = os.path.dirname(sys.executable) + os.pathsep + os.environ['PATH']
    full['PATH'] = path if launcher == HOROVODRUN else os.environ['PATH']
    full['PYTHONPATH'] = os.pathsep.join(filter(None, [launch.HERE, os.environ.get('PYTHONPATH')]))
    python = [sys.executable] * (launcher == HOROVODRUN)
    ended = subprocess.run(
        [*launcher, '-np', '2', *python, WORKER, way, str(rank)],
        cwd=str(folder),
        env=full,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=launch.LIMIT_SECONDS,
    )
    return ended.returncode, ended.stdout.decode('utf-8', 'replace').splitlines()


def logs(folder):
    """The texts of the files of the only job in a folder, by name."""
    (job,) = (folder / 'keras-parallax-logs').iterdir()
    return {file.name: file.read_text(errors='replace') for file in job.iterdir()}


def ways_to_train():
    yield pytest.param('trains', {}, id='keras_2')
    if tensorflow.__version__.startswith('2.2'):
        for backend in ('tensorflow', 'jax'):
            yield pytest.param('trains_of_keras_3', {'KERAS_BACKEND': backend}, id=backend)


@pytest.mark.parametrize('way, environ', ways_to_train())
def test_there_are_few_lines_besides_training_and_a_file_of_each_rank_has_all(
    tmp_path, way, environ
):
    code, lines = run(tmp_path, KERAS_PARALLAX, way, **environ)
    assert code == 0, lines
    others = [line for line in lines if not TRAINING.match(line)]
    assert len(others) <= MOST_LINES, others
    assert not [line for line in lines if '<std' in line or line.startswith('[1]')]
    assert lines.count('TRAINED 0') == 1 and 'TRAINED 1' not in lines
    # One bar for each epoch, in its last state.
    assert (
        len([line for line in lines if re.match(r'.*(?<!\d)(32|256)/(32|256)(?!\d)', line)]) == 2
    ), lines
    files = logs(tmp_path)
    assert sorted(files) == ['launcher.log', 'rank-0.log', 'rank-1.log']
    for rank in (0, 1):
        assert ' [%d] TRAINED %d\n' % (rank, rank) in files['rank-%d.log' % rank]
        assert 'Started server with target' in files['rank-%d.log' % rank] or 'jax' in str(environ)


def test_notes_come_back_with_the_log_level(tmp_path):
    code, lines = run(tmp_path, KERAS_PARALLAX, 'trains', KERAS_PARALLAX_LOG_LEVEL='INFO')
    assert code == 0 and any('Started server with target' in line for line in lines), lines


def ways_to_fail():
    for way, rank in [(way, 1) for way in sorted(CAUSES)] + [('exception', 0), ('killed', 0)]:
        marks = [] if (way, rank) in FIRST_TO_TRY else [pytest.mark.exhaustive]
        yield pytest.param(way, rank, marks=marks)


@pytest.mark.parametrize('way, rank', ways_to_fail())
def test_the_last_line_is_the_cause_of_a_failure(tmp_path, way, rank):
    code, lines = run(tmp_path, KERAS_PARALLAX, way, rank)
    assert code not in (0, None)
    match = re.match(
        r'keras-parallax run: %s.*\. Full log: (\S+)$' % CAUSES[way].format(rank), lines[-1]
    )
    assert match, lines
    assert match.groups()[-1].endswith('/rank-%d.log' % rank)
    assert (tmp_path / match.groups()[-1]).exists()
    # Its traceback is on the screen, whichever rank it is.
    if way in ('import', 'exception'):
        assert any('screen_worker.py' in line for line in lines), lines


def test_a_launcher_that_starts_nothing_is_told_last(tmp_path):
    code, lines = run(tmp_path, [*KERAS_PARALLAX, '-H', 'no-such-host.invalid:2'], 'trains')
    assert code != 0
    assert re.match(r'keras-parallax run: .* Full log: \S+/launcher.log$', lines[-1]), lines
    assert any('no-such-host.invalid' in line for line in lines), lines


def of_workers(lines):
    """What a worker has printed, without the prefix, of the lines that have one."""
    found = [re.match(r'[^\[]*\[(\d)\]<std(?:out|err)>:(.*)', line) for line in lines]
    return [(int(match.group(1)), match.group(2)) for match in found if match]


def test_horovodrun_shows_few_lines_of_workers_besides_training(tmp_path):
    code, lines = run(tmp_path, HOROVODRUN, 'trains')
    assert code == 0, lines
    others = [
        (rank, line)
        for rank, line in of_workers(lines)
        if not (TRAINING.match(line) or ' - ETA: ' in line or UNAVOIDABLE.match(line))
    ]
    assert len(others) <= MOST_LINES, others


@pytest.mark.parametrize('way', sorted(LAST_WORDS))
def test_horovodrun_shows_a_sentence_of_ours_last_of_what_workers_say(tmp_path, way):
    code, lines = run(tmp_path, HOROVODRUN, way)
    assert code != 0
    said = [
        line
        for rank, line in of_workers(lines)
        if rank == 0 and not (TRAINING.match(line) or OF_HOROVOD.match(line))
    ]
    assert re.match(LAST_WORDS[way], said[-1]), lines
