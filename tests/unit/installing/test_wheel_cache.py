# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Where wheels are kept, and what their folder's name depends on."""

import pytest

from keras_parallax.installing import wheel_cache

REQUIREMENT = 'horovod==0.28.1'
PARTS = {
    'requirement': REQUIREMENT,
    'tensorflow': ['2.21.0', ['--std=c++17']],
    'abi': 'cpython-311-x86_64-linux-gnu',
    'compilers': [['gcc 12.2'], ['g++ 12.2', 'the text of a script']],
    'variables': {'HOROVOD_WITH_GLOO': '1'},
    'system': 'glibc 2.36',
}


@pytest.mark.parametrize(
    'part, value',
    [
        ('requirement', 'horovod==0.28.2'),
        ('tensorflow', ['2.21.1', ['--std=c++17']]),
        ('tensorflow', ['2.21.0', ['--std=c++20']]),
        ('abi', 'cpython-312-x86_64-linux-gnu'),
        ('compilers', [['gcc 13.1'], ['g++ 12.2', 'the text of a script']]),
        ('compilers', [['gcc 12.2'], ['g++ 12.2', 'another text']]),
        ('variables', {'HOROVOD_WITH_GLOO': '1', 'HOROVOD_GPU_OPERATIONS': 'NCCL'}),
        ('system', 'glibc 2.39'),
    ],
)
def test_a_wheels_folder_depends_on(part, value):
    name = wheel_cache.folder_name(**PARTS)
    readable = 'horovod-0.28.1-tensorflow-2.21.0-cpython-311-x86_64-linux-gnu-'
    assert name.startswith(readable)
    assert wheel_cache.folder_name(**dict(PARTS, **{part: value})) != name
    assert wheel_cache.folder_name(**PARTS) == name


def test_the_cache_is_where_the_user_has_caches():
    kept = wheel_cache.cache_folder
    assert kept({'HOME': '/home/me'}) == '/home/me/.cache/keras-parallax/wheels'
    assert kept({'HOME': '/h', 'XDG_CACHE_HOME': '/c'}) == '/c/keras-parallax/wheels'
    assert kept({}) is None
