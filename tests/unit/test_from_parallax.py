# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Each line that docs/from-parallax.md gives for a name of Parallax works."""

import logging
import os
import re
import subprocess
import sys

import pytest
from click.testing import CliRunner
from frameworks import KERAS_PACKAGES, keras_module, tf

import keras_parallax as kp
from keras_parallax.commands import cli

PAGE = os.path.join(os.path.dirname(__file__), '..', '..', 'docs', 'from-parallax.md')
#: Public names of Parallax, and the options of its configurations.
NAMES = """
parallel_run resource_info sync num_workers worker_id num_replicas_per_worker
Config run_option average_sparse sess_config redirect_path search_partitions get_partitioner
PSConfig protocol replicate_variables local_aggregation boundary_among_servers
boundary_between_workers_and_servers MPIConfig use_allgatherv mpirun_options CommunicationConfig
CheckPointConfig ckpt_dir save_ckpt_steps save_ckpt_secs ProfileConfig export_graph_path
shard.shard shard.create_num_shards_and_shard_id log
""".split()


def rows(heading):
    """The rows of the table under a heading of the page: lists of three texts."""
    with open(PAGE, encoding='utf-8') as file:
        _, _, section = file.read().partition('\n## %s\n' % heading)
    section = section.partition('\n## ')[0]
    lines = [line.strip('|') for line in section.splitlines() if line.startswith('| ')]
    return [[cell.strip() for cell in line.split(' |')] for line in lines[1:]]


NAME_ROWS = rows('Each name')
LINES = [row[1].strip('`') for row in NAME_ROWS if row[1].startswith('`')]
COMMANDS = [line for line in LINES if re.match('keras-parallax|horovodrun', line)]


def test_each_example_has_a_script_and_a_target_of_make():
    root, examples = os.path.join(os.path.dirname(PAGE), os.pardir), rows('Its examples')
    with open(os.path.join(root, 'Makefile'), encoding='utf-8') as file:
        makefile = file.read()
    for _, script, target in examples:
        assert os.path.exists(os.path.join(root, script.strip('`')))
        target = re.search('`make ([a-z0-9-]+)`', target).group(1)
        assert '\n%s: install' % target in makefile and script.strip('`') in makefile
    assert len(examples) == 5


def test_every_name_of_parallax_has_a_row():
    words = re.findall(r'[\w.]+', ' '.join(row[0] for row in NAME_ROWS))
    assert not set(NAMES) - set(words)


def test_a_row_gives_a_line_or_says_why_there_is_none():
    for parallax, line, why in NAME_ROWS:
        assert (line.startswith('`') and line.endswith('`')) or (line == '—' and why), parallax


@pytest.mark.parametrize('line', [line for line in LINES if line not in COMMANDS])
def test_a_line_of_python_works(line, tmp_path):
    keras = keras_module(KERAS_PACKAGES[-1])
    keras.backend.clear_session()
    names = {'logging': logging, 'kp': kp, 'tf': tf, 'keras': keras, 'folder': str(tmp_path)}
    with kp.ParallaxStrategy() as names['strategy']:
        model = keras.models.Sequential([keras.layers.Embedding(9, 2, input_length=1)])
        model.compile('sgd', 'mse')
    names['dataset'] = tf.data.Dataset.range(4)
    eval(line, names)
    keras.backend.clear_session()


@pytest.mark.parametrize('line', COMMANDS)
def test_a_command_has_the_option(line):
    program, *words = line.split()
    options = [word for word in words if word.startswith('--')]
    if program == 'keras-parallax':
        shown = CliRunner().invoke(cli.main, [words[0], '--help']).output
    else:
        command = os.path.join(os.path.dirname(sys.executable), program)
        shown = subprocess.check_output([command, '--help'], universal_newlines=True)
    assert options and all(option in shown for option in options)
