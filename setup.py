# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Packaging of keras-parallax."""

from setuptools import find_packages, setup

setup(
    name='keras-parallax',
    version='0.1.0',
    description='Sparsity-aware data-parallel training for Keras: embedding tables stay sharded, '
    'the rest goes through Horovod',
    license='Apache-2.0',
    # The command's entry point is outside the package, to survive a package that refuses to load.
    py_modules=['keras_parallax_command'],
    packages=find_packages(include=['keras_parallax', 'keras_parallax.*']),
    # TensorFlow 1.11 has no wheel for a newer Python, and the code uses f-strings.
    python_requires='>=3.6,<3.7',
    entry_points={'console_scripts': ['keras-parallax = keras_parallax_command:main']},
    install_requires=[
        'click',
        # TensorFlow 1.11 raises a FutureWarning for each of its dtypes under NumPy 1.17.
        'numpy<1.17',
        # Keras 2.2.4 decodes HDF5 attributes as bytes; h5py 3 hands it str.
        'h5py<3',
        'keras==2.2.4',
        # The last release that still accepts TensorFlow older than 1.15.
        'horovod==0.19.5',
        'psutil',
        'scipy',
        'six',
        'tabulate',
        'tqdm',
    ],
    # TensorFlow is the user's choice: the two distributions install the same files,
    # so requiring one would overwrite the other.
    extras_require={
        'cpu': ['tensorflow==1.11.0'],
        'gpu': ['tensorflow-gpu==1.11.0'],
        'bench': ['matplotlib'],
        'test': ['pytest', 'pytest-xdist', 'hypothesis', 'psutil'],
    },
    classifiers=[
        'License :: OSI Approved :: Apache Software License',
        'Programming Language :: Python :: 3.6',
        'Topic :: Scientific/Engineering :: Artificial Intelligence',
    ],
)
