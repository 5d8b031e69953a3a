# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""`keras-parallax timeline`."""

import json

import pytest
from click.testing import CliRunner

from keras_parallax.commands import cli
from keras_parallax.observing import trace as traces
from keras_parallax.observing.trace import Span, Trace


def trace(job='job', step=1):
    spans = [
        Span(0, step, 'allreduce', 'kernel', 1000.0, 9000.0),
        Span(1, step, 'allreduce', 'kernel', 8000.0, 9000.0),
    ]
    times = {(rank, step): (0.0, 9000.0) for rank in range(2)}
    return Trace(job, 2, spans, times, [0.0, 0.0])


def written(folder, name='trace-1-1.json', **of_trace):
    path = folder.join(name)
    path.write(json.dumps(traces.to_chrome(trace(**of_trace))), ensure=True)
    return str(path)


def run(*arguments):
    return CliRunner().invoke(cli.main, ['timeline', *map(str, arguments)])


def test_it_says_who_waited_for_whom_and_draws_it(tmpdir):
    pytest.importorskip('matplotlib')
    png = tmpdir.join('steps.png')
    outcome = run(written(tmpdir), '--png', png)
    assert outcome.exit_code == 0, outcome.output
    assert 'rank 0 waited 7.0 ms a step for rank 1 to come to the allreduce.' in outcome.output
    assert png.read_binary().startswith(b'\x89PNG')


def test_it_writes_a_page(tmpdir):
    page = tmpdir.join('steps.html')
    assert run(written(tmpdir), '--html', page).exit_code == 0
    assert '<svg' in page.read_text('utf-8')


def test_a_directory_stands_for_its_traces_and_a_step_is_chosen(tmpdir):
    pytest.importorskip('matplotlib')
    for step in (1, 2):
        written(tmpdir, 'trace-%d-%d.json' % (step, step), step=step)
    tmpdir.join('other.json').write('{}')
    png = tmpdir.join('steps.png')
    outcome = run(tmpdir, '--step', 2, '--png', png)
    assert outcome.exit_code == 0 and 'steps 1 to 2' in outcome.output and png.check()
    outcome = run(tmpdir, '--step', 7)
    assert outcome.exit_code == 1
    assert 'There is no step 7 in the traces, which have 1, 2.' in outcome.output


@pytest.mark.parametrize(
    'content, sentence',
    [
        (None, 'cannot be read'),
        ('nothing', 'is no JSON'),
        ('{}', 'is no trace of kp.callbacks.Profile'),
    ],
)
def test_what_is_no_trace_is_refused_in_a_sentence(tmpdir, content, sentence):
    path = tmpdir.join('trace-x.json')
    if content is not None:
        path.write(content)
    outcome = run(path)
    assert outcome.exit_code == 1
    assert str(path) in outcome.output and sentence in outcome.output


def test_traces_of_different_jobs_and_folders_without_any_are_refused(tmpdir):
    first = written(tmpdir.mkdir('a'))
    second = written(tmpdir.mkdir('b'), job='another')
    assert 'are of different jobs' in run(first, second).output
    outcome = run(tmpdir.mkdir('c'))
    assert outcome.exit_code == 1 and 'has no trace' in outcome.output


def test_what_cannot_be_written_is_said(tmpdir):
    pytest.importorskip('matplotlib')
    outcome = run(written(tmpdir), '--png', tmpdir.join('no', 'such', 'steps.png'))
    assert outcome.exit_code == 1 and 'cannot be written' in outcome.output
