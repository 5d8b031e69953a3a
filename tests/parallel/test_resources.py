# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Jobs whose hosts a file names."""

import os
import re
import subprocess
import sys

import launch

COMMAND = os.path.join(os.path.dirname(sys.executable), 'keras-parallax')
WORKER = os.path.join(launch.HERE, 'parallel', 'resources_worker.py')


def run(tmp_path, text):
    """The exit code and the output of a job whose resource file has this text.

    What each worker prints is written to the folder `printed`.
    """
    file = tmp_path / 'resources'
    file.write_text(text)
    path = os.path.dirname(sys.executable) + os.pathsep + os.environ['PATH']
    ended = subprocess.run(
        [
            COMMAND,
            'run',
            '--max-restarts',
            '0',
            '--resources',
            str(file),
            '--output',
            str(tmp_path / 'printed'),
            WORKER,
            '--word',
        ],
        env=dict(os.environ, PATH=path, TF_CPP_MIN_LOG_LEVEL='2'),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        universal_newlines=True,
        timeout=launch.LIMIT_SECONDS,
    )
    return ended.returncode, ended.stdout


def test_a_file_of_parallax_starts_a_worker_for_each_card_that_it_names(tmp_path):
    code, output = run(tmp_path, 'localhost: 3, 1\n')
    assert code == 0, output[-5000:]
    for rank, card in enumerate((3, 1)):
        sentence = 'rank %d of 2 has card %d, --word' % (rank, card)
        printed = (tmp_path / 'printed' / ('rank-%d.log' % rank)).read_text()
        stamp = r'\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} \[%d\] ' % rank
        assert re.search('^' + stamp + sentence, printed, re.MULTILINE), printed
        # That of rank 0 is shown as well, as it is.
        shown = [line for line in output.splitlines() if line.startswith(sentence)]
        assert len(shown) == (rank == 0)


def test_a_file_that_cannot_be_followed_starts_nothing(tmp_path):
    code, output = run(tmp_path, 'localhost 2\n')
    assert code == 2
    assert "line 1, 'localhost 2', must be like `worker1: 0, 1` or like" in output
    assert 'has card' not in output
