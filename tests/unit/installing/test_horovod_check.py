# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Whether the Horovod that is installed is the wanted one."""

import os

import horovod

from keras_parallax.installing import horovod_check

INSTALLED = 'horovod==' + horovod.__version__
ENVIRON = {name: value for name, value in os.environ.items() if not name.startswith('HOROVOD_')}


def test_the_installed_horovod_can_be_loaded():
    assert horovod_check.load_problem(INSTALLED, ENVIRON) is None


def test_another_version_and_a_horovod_without_a_part_are_told_with_what_is_wrong():
    assert 'is of version' in horovod_check.load_problem('horovod==0.1.0', ENVIRON)
    asked = dict(ENVIRON, HOROVOD_GPU_OPERATIONS='NCCL')
    assert 'built without nccl' in horovod_check.load_problem(INSTALLED, asked)


def test_a_horovod_without_tensorflow_is_told_with_its_reason(tmp_path):
    version = '__version__ = %r\n' % horovod.__version__
    for name, text in [('', version), ('tensorflow', 'raise ImportError("no TF")\n')]:
        folder = tmp_path / 'horovod' / name
        folder.mkdir()
        (folder / '__init__.py').write_text(text)
    problem = horovod_check.load_problem(INSTALLED, dict(ENVIRON, PYTHONPATH=str(tmp_path)))
    assert 'no TF' in problem


def test_two_ranks_add_numbers():
    assert horovod_check.two_ranks_problem(ENVIRON) is None
