# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Why a process ends, for the other workers."""

import os
import subprocess
import sys
import threading

import pytest
from frameworks import tf

from keras_parallax.engine.failures import rendezvous
from keras_parallax.engine.job import last_words

RANK = {'HOROVOD_RANK': '1', 'HOROVOD_SIZE': '2'}


@pytest.fixture
def noted(monkeypatch):
    """What is noted, and nothing of this process is changed for good."""
    kept = last_words._Noted()
    monkeypatch.setattr(last_words, 'noted', kept)
    monkeypatch.setattr(sys, 'exit', sys.exit)
    monkeypatch.setattr(last_words.exit_texts, 'install', lambda note: None)
    monkeypatch.setattr(last_words.atexit, 'register', lambda *arguments: None)
    # Before Python 3.8 there is no hook.
    hook = 'excepthook' if hasattr(threading, 'excepthook') else '_format_exc'
    monkeypatch.setattr(threading, hook, lambda *arguments: '')
    return kept


@pytest.fixture
def left(monkeypatch):
    """What is left for the other workers."""
    entries = {}
    monkeypatch.setattr(
        rendezvous, 'leave', lambda environ, rank, entry: entries.update({rank: entry})
    )
    return entries


def fail():
    raise KeyError('no such word')


def test_what_ends_a_process_is_noted(noted):
    last_words.install(dict(RANK))
    assert last_words.report() == {}
    for status, words in ((0, None), ('no data', "sys.exit('no data')"), (3, 'sys.exit(3)')):
        with pytest.raises(SystemExit) as raised:
            sys.exit(status)
        assert raised.value.code == status and noted.exit == words
    with pytest.raises(SystemExit):
        sys.exit()
    for act in (sys.exit, fail):
        thread = threading.Thread(target=act)
        thread.start()
        thread.join()
    assert last_words.report()['in_thread'] == "KeyError: 'no such word'"


def test_the_text_of_an_exit_is_noted():
    script = 'import atexit\nfrom keras_parallax.engine.job import last_words\n'
    script += 'atexit.register(lambda: print(last_words.noted.exit))\n'
    script += "last_words.install(%r)\nraise SystemExit('no data')" % RANK
    process = subprocess.run(
        [sys.executable, '-c', script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        universal_newlines=True,
    )
    assert process.stdout.splitlines()[-1] == "raise SystemExit('no data')", process.stderr


@pytest.mark.parametrize('environ', [{}, {'HOROVOD_RANK': '0', 'HOROVOD_SIZE': '1'}])
def test_a_process_without_other_ranks_is_left_as_it_is(noted, environ):
    before = sys.exit
    last_words.install(environ)
    assert sys.exit is before


def test_what_a_rank_starts_is_no_rank(noted, left):
    environ = dict(RANK)
    last_words.install(environ)
    before = sys.exit
    last_words.install(environ)  # As a process that has inherited the environment.
    assert sys.exit is before
    last_words._tell_early_end(dict(environ, **{last_words._PROCESS: str(os.getppid())}))
    assert not left


def test_a_rank_that_ends_before_its_job_has_begun_leaves_the_reason(noted, left, monkeypatch):
    environ = dict(RANK)
    last_words.install(environ)
    monkeypatch.delattr(sys, 'last_value', raising=False)
    last_words._tell_early_end(environ)
    assert left.pop(1)['why'] is None
    with pytest.raises(SystemExit):
        sys.exit('no data')
    last_words._tell_early_end(environ)
    assert left.pop(1)['why'] == "sys.exit('no data')"
    monkeypatch.setattr(sys, 'last_value', KeyError('no such word'), raising=False)
    last_words._tell_early_end(environ)
    assert left.pop(1)['why'] == "KeyError: 'no such word'"
    noted.has_begun = True
    last_words._tell_early_end(environ)
    assert not left


def test_an_error_of_somebody_who_types_ends_nothing(monkeypatch):
    monkeypatch.setattr(sys, 'last_value', KeyError('no such word'), raising=False)
    assert last_words.error() is sys.last_value
    monkeypatch.setattr(sys, 'ps1', '>>> ', raising=False)
    assert last_words.error() is None


@pytest.mark.parametrize(
    'error, words',
    [
        (KeyError('no such word'), "KeyError: 'no such word'"),
        (MemoryError(), 'MemoryError'),
        (ValueError('first\nsecond'), 'ValueError: first'),
        (tf.errors.NotFoundError(None, None, 'gone\n\t [[a]]'), 'NotFoundError: gone'),
        (
            tf.errors.NotFoundError(
                None, None, "Graph execution error:\n\nDetected at:\n  File\nNode: 'a'\ngone\n[[a]]"
            ),
            'NotFoundError: gone',
        ),
    ],
)
def test_an_exception_is_told_in_a_line(error, words):
    assert last_words.in_words(error) == words


def test_a_long_message_is_cut():
    assert len(last_words.in_words(ValueError('x' * 1000))) == last_words.LONGEST_ERROR
