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


def run(folder, code=0, options=(), stdout=subprocess.PIPE):
    """Runs a command that prints as a launcher does."""
    return subprocess.run(
        run_alone.COMMAND
        + ['--max-restarts', '0', '--output', str(folder)]
        + list(options)
        + ['--', 'sh', '-c', PRINTS % (FORWARDED, ERRORS, code)],
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
    assert sorted(lines(folder, 'rank-1.log')) == ['[1] bad', '[1] one', '[1] two']
    started, own = lines(folder, 'launcher.log')
    assert started.startswith('[launcher] started: sh -c ') and own == '[launcher] of the launcher'


def test_rank_0_is_shown_without_prefix_and_of_others_the_errors(tmp_path):
    ended = run(tmp_path)
    assert ended.stdout == 'whole\nof the launcher\nlast\n'
    assert ended.stderr == '[1] bad\nworse\n'


def test_a_terminal_gets_the_bar_as_it_is_drawn(tmp_path):
    ours, theirs = pty.openpty()
    run(tmp_path, stdout=theirs)
    os.close(theirs)
    assert launch.read_terminal(ours) == b'\rhalf\rwhole\r\nof the launcher\r\nlast'


def test_a_job_that_fails_says_where_the_rest_is(tmp_path):
    ended = run(tmp_path, code=7)
    assert ended.returncode == 7
    assert 'what each worker has printed is in %s.' % tmp_path in ended.stderr


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
