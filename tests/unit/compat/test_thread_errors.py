# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The exceptions that end threads are noted, and shown as ever."""

import sys
import threading

import pytest

from keras_parallax.compat import thread_errors

HOOK = 'excepthook' if hasattr(threading, 'excepthook') else '_format_exc'


def fail():
    raise KeyError('no such word')


@pytest.fixture
def shown(monkeypatch):
    """What Python was asked to show, and no hook is left behind."""
    found = []
    monkeypatch.setattr(threading, HOOK, lambda *arguments: found.append(arguments) or '')
    return found


@pytest.mark.parametrize('act, expected', [(fail, [KeyError]), (sys.exit, [])])
def test_an_exception_that_ends_a_thread_is_noted_and_the_end_of_one_is_not(shown, act, expected):
    noted = []
    thread_errors.install(noted.append)
    thread = threading.Thread(target=act)
    thread.start()
    thread.join()
    assert [type(error) for error in noted] == expected
    assert len(shown) >= len(expected)
