# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The command that installs Horovod."""

from click.testing import CliRunner

from keras_parallax.commands import install_horovod
from keras_parallax.errors import StackError
from keras_parallax.installing import horovod_build


def test_where_horovod_works_there_is_nothing_to_do(monkeypatch):
    monkeypatch.delenv('HOROVOD_WITH_MPI', raising=False)
    outcome = CliRunner().invoke(install_horovod.command, [])
    assert outcome.exit_code == 0
    assert 'works with the TensorFlow that is here' in outcome.output


def test_a_problem_is_a_sentence_and_not_a_traceback(monkeypatch):
    def fail(say, rebuild):
        say('It is tried.')
        raise StackError('cmake is missing.')

    monkeypatch.setattr(horovod_build, 'install_horovod', fail)
    outcome = CliRunner().invoke(install_horovod.command, ['--rebuild'])
    assert outcome.exit_code == 1
    assert outcome.output == 'install-horovod: It is tried.\ncmake is missing.\n'
