# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The logger of the package, and TensorFlow's notes."""

import logging
import os
import subprocess
import sys

import pytest

from keras_parallax.logs import LEVEL_VARIABLE, level_of, quiet

SAYS = """
import keras_parallax
from keras_parallax.logs import logger
logger.debug('a detail')
logger.info('what happens')
"""


def said(script, **environ):
    """What a script prints, on both of its streams."""
    return subprocess.check_output(
        [sys.executable, '-W', 'ignore', '-c', script],
        env=dict(os.environ, TF_CPP_MIN_LOG_LEVEL='2', **environ),
        stderr=subprocess.STDOUT,
        universal_newlines=True,
    )


@pytest.mark.parametrize(
    'environ, level',
    [
        ({}, logging.INFO),
        ({LEVEL_VARIABLE: 'debug'}, logging.DEBUG),
        ({LEVEL_VARIABLE: ' ERROR'}, 40),
    ],
)
def test_the_environment_says_the_level(environ, level):
    assert level_of(environ) == level


def test_a_level_that_there_is_not_is_taken_for_info_with_a_warning():
    with pytest.warns(
        UserWarning, match="KERAS_PARALLAX_LOG_LEVEL is 'loud': expected DEBUG, INFO"
    ):
        assert level_of({LEVEL_VARIABLE: 'loud'}) == logging.INFO


@pytest.mark.parametrize(
    'environ, level',
    [
        ({}, None),
        ({'HOROVOD_RANK': '0'}, '2'),
        ({'HOROVOD_RANK': '1'}, '2'),
        ({'OMPI_COMM_WORLD_RANK': '2'}, '2'),
        ({'SLURM_PROCID': '3'}, '2'),
        ({'JOB_COMPLETION_INDEX': '1'}, '2'),
        ({'HOROVOD_RANK': '1', 'TF_CPP_MIN_LOG_LEVEL': '0'}, '0'),
        ({'HOROVOD_RANK': '0', LEVEL_VARIABLE: 'WARNING'}, '2'),
        ({'HOROVOD_RANK': '0', LEVEL_VARIABLE: 'info'}, None),
        ({'HOROVOD_RANK': '1', LEVEL_VARIABLE: 'info'}, '2'),
        # A worker of `horovodrun` in a batch script of Slurm's.
        ({'HOROVOD_RANK': '1', 'SLURM_PROCID': '0', LEVEL_VARIABLE: 'DEBUG'}, '2'),
    ],
)
def test_tensorflow_prints_no_notes_in_a_job_unless_they_are_asked_for(environ, level):
    quiet(environ)
    assert environ.get('TF_CPP_MIN_LOG_LEVEL') == level


DEPRECATED = """
import logging
import keras_parallax
logging.getLogger('tensorflow').warning('From %s: %s is deprecated', 'x.py:1', 'f')
logging.getLogger('tensorflow').warning('From here on all is well')
"""


def test_a_job_shows_no_deprecations_of_tensorflow_unless_they_are_asked_for():
    environ = dict(os.environ, HOROVOD_RANK='0', HOROVOD_SIZE='1')
    environ.pop('TF_CPP_MIN_LOG_LEVEL', None)
    for level, count in ((None, 0), ('INFO', 1)):
        full = dict(environ, **{LEVEL_VARIABLE: level} if level else {})
        shown = subprocess.run(
            [sys.executable, '-c', DEPRECATED],
            env=full,
            stderr=subprocess.PIPE,
            universal_newlines=True,
        ).stderr
        assert shown.count('From x.py:1: f is deprecated') == count
        assert shown.count('From here on all is well') == 1


def test_the_logger_prints_at_its_level():
    assert 'keras-parallax: what happens' in said(SAYS)
    assert 'a detail' not in said(SAYS)
    assert 'keras-parallax: a detail' in said(SAYS, **{LEVEL_VARIABLE: 'DEBUG'})
    assert 'what happens' not in said(SAYS, **{LEVEL_VARIABLE: 'WARNING'})


def test_a_script_with_handlers_of_its_own_prints_by_them_and_once():
    own = "import logging; logging.basicConfig(format='OWN %(message)s')" + SAYS
    assert said(own).count('what happens') == 1
    assert 'OWN what happens' in said(own)
