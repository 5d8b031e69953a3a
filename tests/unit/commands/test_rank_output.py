# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""`keras-parallax run --output`: a file for each worker, and rank 0's lines on the terminal."""

import os
import pty
import re
import subprocess

import launch
import pytest
import run_alone

from keras_parallax.commands.rank_output import Screen, rank_and_text

#: What horovodrun forwards of two workers: a bar that is drawn twice, and lines.
FORWARDED = (
    r'Tue Nov 24 16:27:17 2026[1]<stdout>:one\n'
    r'Tue Nov  3 16:27:18 2026[0]<stdout>:\rTue Nov  3 16:27:18 2026[0]<stdout>:half\r'
    r'Tue Nov  3 16:27:19 2026[1]<stdout>:two\n'
    r'Tue Nov  3 16:27:19 2026[0]<stdout>:whole\n'
    r'of the launcher\n'
    r'Tue Nov  3 16:27:19 2026[0]<stdout>:last'
)
ERRORS = (
    r'Tue Nov 24 16:27:17 2026[1]<stderr>:Using TensorFlow backend.\n'
    r'Tue Nov 24 16:27:17 2026[1]<stderr>:bad\nTue Nov 24 16:27:17 2026[0]<stderr>:worse\n'
)
PRINTS = "printf '%s'; printf '%s' >&2; exit %d"


def run(folder, code=0, options=(), stdout=subprocess.PIPE, environ=None):
    """Runs a command that prints as a launcher does."""
    return printed(folder, FORWARDED, ERRORS, code, options, stdout, environ)


def printed(folder, out, err, code=0, options=(), stdout=subprocess.PIPE, environ=None):
    """Runs a command that prints two texts, and ends with an exit code."""
    return subprocess.run(
        run_alone.COMMAND
        + ['--output', str(folder)]
        + list(options)
        + ['--', 'sh', '-c', PRINTS % (out, err, code)],
        env=dict(os.environ, **environ or {}),
        stdout=stdout,
        stderr=subprocess.PIPE,
        universal_newlines=True,
        timeout=120,
    )


def lines(folder, name):
    """The lines of a file, without the time, each of which must have one."""
    found = []
    for line in (folder / name).read_text().splitlines():
        match = re.match(r'\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} (.*)$', line)
        found.append(match.group(1))
    return found


def test_each_rank_has_a_file_with_time_and_rank_on_each_line(tmp_path):
    assert run(tmp_path / 'new' / 'folder').returncode == 0
    folder = tmp_path / 'new' / 'folder'
    assert sorted(lines(folder, 'rank-0.log')) == ['[0] last', '[0] whole', '[0] worse']
    assert sorted(lines(folder, 'rank-1.log')) == [
        '[1] Using TensorFlow backend.',
        '[1] bad',
        '[1] one',
        '[1] two',
    ]
    started, own = lines(folder, 'launcher.log')
    assert started.startswith('[launcher] started: sh -c ') and own == '[launcher] of the launcher'


def test_rank_0_is_shown_without_prefix_and_nothing_else_once_workers_run(tmp_path):
    ended = run(tmp_path)
    assert ended.stdout == 'whole\nlast\n'
    assert ended.stderr == 'worse\n'


def test_the_log_level_brings_back_the_launcher_and_the_errors_of_other_workers(tmp_path):
    ended = run(tmp_path, environ={'KERAS_PARALLAX_LOG_LEVEL': 'INFO'})
    assert ended.stdout == 'whole\nof the launcher\nlast\n'
    assert '[1] Using TensorFlow backend.\n[1] bad\n' in ended.stderr


def test_what_the_launcher_says_before_any_worker_is_shown(tmp_path):
    ended = printed(tmp_path, r'cannot log in\n[0]<stdout>:first\nall is over\n', '')
    assert ended.stdout == 'cannot log in\nfirst\n'


def test_a_bar_of_keras_2_2_4_that_is_printed_again_and_again_comes_once(tmp_path):
    bar = '[0]<stdout>: %d/40 [==>...] - %s - loss: 1\n'
    text = ''.join(bar % (done, 'ETA: 1s') for done in (10, 20)) + bar % (40, '1s')
    ended = printed(tmp_path, text.replace('\n', r'\n'), '')
    assert ended.stdout == ' 40/40 [==>...] - 1s - loss: 1\n'


def test_a_bar_that_is_erased_by_backspaces_leaves_none_of_them(tmp_path):
    text = r'[0]<stdout>:half\b\b\b\b\r[0]<stdout>:whole\n'
    assert printed(tmp_path, text, '').stdout == 'whole\n'
    assert lines(tmp_path, 'rank-0.log') == ['[0] whole']


def test_a_terminal_gets_the_bar_as_it_is_drawn(tmp_path):
    ours, theirs = pty.openpty()
    run(tmp_path, stdout=theirs)
    os.close(theirs)
    assert launch.read_terminal(ours) == b'\rhalf\rwhole\r\nlast\r\n'


def test_a_job_that_fails_says_why_last_or_that_nobody_has_said_it(tmp_path):
    ended = run(tmp_path, code=7)
    assert ended.returncode == 7
    expected = 'no worker has said why. Full log: %s/launcher.log' % tmp_path
    assert ended.stderr.splitlines()[-1] == 'keras-parallax run: ' + expected
    error = "Traceback (most recent call last):\n  File \"a.py\"\nKeyError: 1\n"
    error = ''.join('[1]<stderr>:%s' % line for line in error.splitlines(True))
    ended = printed(tmp_path, '', error.replace('\n', r'\n'), 1)
    first, *rest = ended.stderr.splitlines()
    assert first.startswith('keras-parallax run: the job failed with exit code 1 after ')
    assert rest == [
        'Traceback (most recent call last):',
        '  File "a.py"',
        'KeyError: 1',
        'keras-parallax run: Rank 1 failed: KeyError: 1. Full log: %s/rank-1.log' % tmp_path,
    ]


def test_a_job_that_is_started_anew_writes_on(tmp_path):
    run(tmp_path, 3, ['--max-restarts', '1', '--backoff', '0'])
    assert lines(tmp_path, 'rank-1.log').count('[1] one') == 2
    started = [line for line in lines(tmp_path, 'launcher.log') if 'started: ' in line]
    assert len(started) == 2


def test_a_folder_that_cannot_be_written_starts_nothing(tmp_path):
    (tmp_path / 'file').write_text('no folder')
    ended = run(tmp_path / 'file' / 'folder')
    assert ended.returncode == 2 and ended.stdout == ''
    assert 'nothing can be written to' in ended.stderr


def test_a_disk_that_is_full_stops_the_files_and_not_the_job(tmp_path):
    (tmp_path / 'rank-1.log').symlink_to('/dev/full')
    ended = run(tmp_path)
    assert ended.returncode == 0 and 'whole\n' in ended.stdout
    assert (
        'is not written any more, because of' in ended.stderr
        and '; the job goes on.' in ended.stderr
    )


@pytest.mark.parametrize(
    'piece, rank',
    [
        (b'Tue Nov 24 16:27:17 2026[12]<stdout>:text', 12),
        (b'[0]<stderr>:text', 0),
        (b'[1,3]<stdout>:text', 3),
        (b'text', None),
    ],
)
def test_prefixes_of_all_launchers_tell_the_rank(piece, rank):
    assert rank_and_text(piece) == (rank, b'text')


@pytest.mark.parametrize(
    'text', [b'[0] text', b'Tue[0]<stdout>:text', b'x [0]<stdout>:text', b'[0]<out>:text']
)
def test_what_is_no_prefix_stays(text):
    assert rank_and_text(text) == (None, text)


def test_what_is_drawn_over_goes_and_what_a_line_ends_with_stays():
    screen = Screen()
    pieces = [b'\r', b'half\r', b'whole\r', b'\n', b'\n', b'next\n', b'rest']
    assert [screen.take(piece) for piece in pieces] == [
        None,
        None,
        None,
        b'whole',
        b'',
        b'next',
        b'rest',
    ]
