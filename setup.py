# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Packaging of keras-parallax."""

import os

from setuptools import find_packages, setup

# Not in pyproject.toml: setuptools reads such from 61 on, and the newest for Python 3.6 is 59.
HERE = os.path.dirname(os.path.abspath(__file__))
with open(os.path.join(HERE, 'README.md'), encoding='utf-8') as readme:
    DESCRIPTION = readme.read()

# TensorFlow is the user's choice: the distributions `tensorflow`, `tensorflow-cpu` and
# `tensorflow-gpu` install the same files, so requiring one would overwrite another.
#
# Horovod is compiled for the TensorFlow that is there, which pip does not do: `keras-parallax
# install-horovod` does.
#
# Without dots in the names: setuptools and pip of different ages write and read those differently.
STACKS = {
    'tf1-6': ['tensorflow==1.6.0'],
    'tf1-11': ['tensorflow==1.11.0'],
    'tf1-15': ['tensorflow==1.15.5', 'protobuf<3.21', 'h5py<3'],
    'tf2-15': ['tensorflow-cpu==2.15.1'],
    'tf2-21': ['tensorflow==2.21.0', 'tf-keras==2.21.0'],
}


def on(marker, requirements):
    """Requirements that hold on some Pythons only."""
    return ['%s; %s' % (requirement, marker) for requirement in requirements]


setup(
    name='keras-parallax',
    version='0.1.0',
    description='Sparsity-aware data-parallel training for Keras: embedding tables stay sharded, '
    'the rest goes through Horovod',
    long_description=DESCRIPTION,
    long_description_content_type='text/markdown',
    license='Apache-2.0',
    # The command's entry point is outside the package, to survive a package that refuses to load.
    py_modules=['keras_parallax_command'],
    packages=find_packages(include=['keras_parallax', 'keras_parallax.*']),
    package_data={
        'keras_parallax': [
            'installing/cmake_without_waste.sh',
            'installing/cxx_without_xla.sh',
            'observing/trace_page.html',
            'planning/plan_page.html',
            'py.typed',
        ]
    },
    # The code uses f-strings.
    python_requires='>=3.6',
    entry_points={'console_scripts': ['keras-parallax = keras_parallax_command:main']},
    install_requires=[
        'click',
        'h5py',
        'jinja2',
        'numpy',
        'psutil',
        'scipy',
        'six',
        'tabulate',
        'tqdm',
        'typing_extensions>=4.1.0',
    ]
    + on(
        "python_version < '3.7'",
        [
            # TensorFlow 1.11 raises a FutureWarning for each of its dtypes under NumPy 1.17.
            'numpy<1.17',
            # Keras 2.2.4 decodes HDF5 attributes as bytes; h5py 3 hands it str.
            'h5py<3',
            'keras==2.2.4',
        ],
    )
    # Horovod's launcher uses distutils, which Python has from setuptools since then.
    + on("python_version >= '3.12'", ['setuptools']),
    extras_require=dict(
        STACKS,
        # The stack that goes with the Python.
        cpu=on("python_version < '3.7'", STACKS['tf1-11'])
        + on("python_version == '3.7'", STACKS['tf1-15'])
        + on("python_version >= '3.8' and python_version < '3.10'", ['tensorflow-cpu<2.16'])
        + on("python_version >= '3.10'", STACKS['tf2-21']),
        gpu=on("python_version < '3.7'", ['tensorflow-gpu==1.11.0'])
        + on("python_version >= '3.8' and python_version < '3.10'", ['tensorflow[and-cuda]<2.16'])
        + on("python_version >= '3.10'", ['tensorflow[and-cuda]==2.21.0', 'tf-keras==2.21.0']),
        bench=['matplotlib'],
        test=['pytest', 'pytest-xdist', 'hypothesis', 'psutil'],
    ),
    classifiers=['License :: OSI Approved :: Apache Software License']
    + ['Programming Language :: Python :: 3.%d' % minor for minor in (6, 7, 9, 10, 11, 12, 13)]
    + ['Topic :: Scientific/Engineering :: Artificial Intelligence'],
)
