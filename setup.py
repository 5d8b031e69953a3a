# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Packaging of keras-parallax."""

import os
import re
import runpy
from typing import Any, Dict, List

import setuptools

# Not in pyproject.toml: setuptools reads it from 61 on, and the newest for Python 3.6 is 59.
HERE = os.path.dirname(os.path.abspath(__file__))
VERSION = runpy.run_path(os.path.join(HERE, 'keras_parallax', 'version.py'))['VERSION']

# The repository's address, such as https://example.org/owner/keras-parallax, is known to those who
# publish the package. Links of the README point into it, at the tag of the version.
REPOSITORY = os.environ.get('KERAS_PARALLAX_REPOSITORY', '').rstrip('/')

# Parts of Markdown: a block of code, a picture, a picture as HTML, and a link, whose text may hold
# a picture.
_CODE = re.compile(r'(^```.*?^```$)', re.MULTILINE | re.DOTALL)
_PICTURE = re.compile(r'!\[([^\]]*)\]\(([^)\s]+)\)')
_IMG = re.compile(r'<img [^>]*>')
_LINK = re.compile(r'(?<!!)\[((?:!\[[^\]]*\]\([^)]*\)|[^\[\]])*)\]\(([^)\s]+)\)')


def for_index(readme: str, repository: str) -> str:
    """The README as a package index shows it, far from the files that it links to.

    Args:
        readme: its Markdown.
        repository: an address. Without one, a relative link becomes its text, and a picture its
            alternative text.
    """
    parts = _CODE.split(readme)
    parts[::2] = [_absolute(part, repository) for part in parts[::2]]
    return ''.join(parts)


def _absolute(text: str, repository: str) -> str:
    def address(path: str, kind: str) -> str:
        path = 'README.md' + path if path.startswith('#') else path
        return '%s/%s/v%s/%s' % (repository, kind, VERSION, path)

    def picture(match: Any) -> str:
        alt, path = match.groups()
        if '://' in path:
            return match.group()
        return '![%s](%s)' % (alt, address(path, 'raw')) if repository else alt

    def img(match: Any) -> str:
        attributes = dict(re.findall(r'([\w-]+)="([^"]*)"', match.group()))
        path = attributes['src']
        if '://' in path:
            return match.group()
        if not repository:
            return attributes.get('alt', '')
        return match.group().replace('"%s"' % path, '"%s"' % address(path, 'raw'))

    def link(match: Any) -> str:
        words, path = match.groups()
        if '://' in path or path.startswith('mailto:'):
            return match.group()
        return '[%s](%s)' % (words, address(path, 'blob')) if repository else words

    return _LINK.sub(link, _IMG.sub(img, _PICTURE.sub(picture, text)))


with open(os.path.join(HERE, 'README.md'), encoding='utf-8') as file:
    DESCRIPTION = for_index(file.read(), REPOSITORY)

CLASSIFIERS = [
    'Development Status :: 4 - Beta',
    'Environment :: Console',
    'Intended Audience :: Developers',
    'Intended Audience :: Science/Research',
    'Operating System :: POSIX :: Linux',
    'Programming Language :: Python :: 3',
    'Programming Language :: Python :: 3 :: Only',
    *('Programming Language :: Python :: 3.%d' % minor for minor in (6, 7, 9, 10, 11, 12, 13)),
    'Topic :: Scientific/Engineering :: Artificial Intelligence',
    'Topic :: System :: Distributed Computing',
    'Typing :: Typed',
]
# From 77 on, setuptools writes a license expression and refuses a classifier beside it. Older ones
# know no expression.
if int(setuptools.__version__.split('.')[0]) >= 77:
    LICENSE = {'license_expression': 'Apache-2.0'}
else:
    LICENSE = {'license': 'Apache-2.0'}
    CLASSIFIERS.append('License :: OSI Approved :: Apache Software License')

# Only addresses that exist: without a repository there is none.
ADDRESSES: Dict[str, Any] = {}
if REPOSITORY:
    ADDRESSES = {
        'url': REPOSITORY,
        'project_urls': {
            'Source': REPOSITORY,
            'Documentation': '%s/blob/v%s/docs/index.md' % (REPOSITORY, VERSION),
            'Changelog': '%s/blob/v%s/CHANGELOG.md' % (REPOSITORY, VERSION),
        },
    }

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


def on(marker: str, requirements: List[str]) -> List[str]:
    """Requirements that hold on some Pythons only."""
    return ['%s; %s' % (requirement, marker) for requirement in requirements]


setuptools.setup(
    name='keras-parallax',
    version=VERSION,
    author='The keras-parallax authors',
    keywords=[
        'keras',
        'tensorflow',
        'horovod',
        'distributed training',
        'data parallelism',
        'embeddings',
        'parameter server',
        'recommender systems',
    ],
    description='Sparsity-aware data-parallel training for Keras: embedding tables stay sharded, '
    'the rest goes through Horovod',
    long_description=DESCRIPTION,
    long_description_content_type='text/markdown',
    # The command's entry point is outside the package, to survive a package that refuses to load.
    py_modules=['keras_parallax_command'],
    packages=setuptools.find_packages(include=['keras_parallax', 'keras_parallax.*']),
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
    classifiers=CLASSIFIERS,
    **LICENSE,
    **ADDRESSES,
)
