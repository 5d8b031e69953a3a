# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""`keras-parallax plan`, on models as people have them.

Everything runs in one other process, because it imports both Keras packages and enters strategies:
this file, run as a script in a directory for its files, prints what each command printed.
"""

import json
import os
import subprocess
import sys

import pytest

from keras_parallax.commands.plan import plan_for
from keras_parallax.errors import PlanError
from keras_parallax.planning.classify import WHOLE_TABLE, VariableUse

LIMIT_SECONDS = 600

#: What a user might have as `models.py`: whatever it imports is imported by the command only.
MODELS = '''
import keras_parallax as kp


def layers(keras, rows=1000):
    return [
        keras.layers.Embedding(
            rows,
            16,
            input_length=5,
            name='words',
            embeddings_regularizer=keras.regularizers.l2(1.0),
        ),
        keras.layers.Flatten(),
        keras.layers.Dense(1, name='out'),
    ]


def plain():
    from any_keras import keras
    return keras.models.Sequential(layers(keras))


def huge():
    from frameworks import keras_module
    keras = keras_module('tf.keras')
    model = keras.models.Sequential(layers(keras, rows=10**9))
    optimizer = keras.optimizers.SGD(momentum=0.9)
    model.compile(kp.ParallaxOptimizer(optimizer, sparse_update='lazy'), 'mse')
    return model


def unbuilt():
    from any_keras import keras
    return keras.models.Sequential([keras.layers.Dense(1)])


def nothing():
    return 'nothing'
'''

COMMANDS = {
    'function': ['models:plain'],
    'json': ['plain.json', '--optimizer', 'adam'],
    'json of tf.keras': ['tf.json'],
    'hdf5': ['plain.h5', '--sparse-update', 'lazy'],
    'huge': ['models:huge'],
    'page': ['plain.h5', '--html', 'page.html', '--host-memory', '1kB'],
    'no folder': ['plain.h5', '--html', 'missing/page.html'],
    'no memory': ['plain.json', '--host-memory', '64'],
    'weights': ['weights.h5'],
    'no json': ['broken.json'],
    'missing': ['missing.json'],
    'no source': ['plain'],
    'no module': ['no_such_module:build'],
    'no function': ['models:build'],
    'no model': ['models:nothing'],
    'unbuilt': ['models:unbuilt'],
    'no optimizer': ['plain.json', '--optimizer', 'best'],
    'former name': ['plain.json', '--alpha', 'words/embeddings=0.25'],
    'no density': ['plain.json', '--density', 'words/embeddings=2'],
    'no partitions': ['plain.json', '--partitions', '0'],
    'no bandwidth': ['plain.json', '--bandwidth', '10G'],
    'no servers': ['plain.json', '--servers', 'some'],
    'no variable': ['plain.json', '--override', 'dense'],
    'no such variable': ['plain.json', '--override', 'word=dense'],
}
OPTIONS = ['--hosts', '4', '--density', '50/1000', '--bandwidth', '1Gbit']


def script():
    """Makes the files, runs the commands, and prints what they print as JSON."""
    from any_keras import keras
    from click.testing import CliRunner
    from frameworks import keras_module

    from keras_parallax.commands.cli import main

    with open('models.py', 'w') as file:
        file.write(MODELS)
    sys.path.insert(0, '')
    import models

    plain = models.plain()
    with open('plain.json', 'w') as file:
        file.write(plain.to_json())
    with open('tf.json', 'w') as file:
        of_tensorflow = keras_module('tf.keras')
        file.write(of_tensorflow.models.Sequential(models.layers(of_tensorflow)).to_json())
    with open('broken.json', 'w') as file:
        file.write('{"class_name": "Sequential"')
    plain.compile(keras.optimizers.SGD(momentum=0.9), 'mse')
    plain.save('plain.h5')
    plain.save_weights('weights.h5')
    # A job does not draw.
    # Until click 8.2 it has to be told.
    apart = {'mix_stderr': False} if hasattr(CliRunner(), 'mix_stderr') else {}
    outcomes = {
        'drawing': sorted({'jinja2', 'keras_parallax.planning.plan_page'} & set(sys.modules))
    }
    for name, arguments in COMMANDS.items():
        for form in ([], ['--json']):
            words = ['plan'] + OPTIONS + arguments + form
            outcome = CliRunner(**apart).invoke(main, words)
            if outcome.exception and not isinstance(outcome.exception, SystemExit):
                raise outcome.exception
            outcomes[name + ' '.join(form)] = [outcome.exit_code, outcome.stdout, outcome.stderr]
    with open('page.html', encoding='utf-8') as file:
        outcomes['the page'] = file.read()
    with open('outcomes.json', 'w') as file:
        json.dump(outcomes, file)


@pytest.fixture(scope='module')
def outcomes(tmp_path_factory):
    """A dict from commands' names to their exit codes, outputs and errors."""
    directory = tmp_path_factory.mktemp('plan_command')
    subprocess.run(
        [sys.executable, os.path.abspath(__file__)],
        cwd=str(directory),
        check=True,
        timeout=LIMIT_SECONDS,
    )
    with open(str(directory / 'outcomes.json')) as file:
        return json.load(file)


def data_of(outcomes, name):
    code, output, _ = outcomes[name + '--json']
    assert code == 0
    return json.loads(output)


def test_the_former_name_of_density_works_and_warns(outcomes):
    tables = {table['name']: table for table in data_of(outcomes, 'former name')['variables']}
    assert tables['words/embeddings']['alpha'] == 0.25
    assert '--density' in outcomes['former name'][2]


# --- models --------------------------------------------------------------------


@pytest.mark.parametrize('name', ['function', 'json', 'json of tf.keras', 'hdf5'])
def test_a_model_is_described_alike_from_wherever_it_comes(outcomes, name):
    data = data_of(outcomes, name)
    found = {entry['name']: entry for entry in data['variables']}
    assert set(found) == {'words/embeddings', 'out/kernel', 'out/bias'}
    table = found['words/embeddings']
    # Regularized: only what the loss reads tells that it is sparse, as in training.
    assert (table['kind'], table['shape'], table['alpha']) == ('sparse', [1000, 16], 0.05)
    assert table['reason'] == 'looked up by rows in 1 place; regularized by the owner'
    assert found['out/kernel']['kind'] == 'dense'
    assert data['cluster']['hosts'] == 4 and data['cluster']['bandwidth'] == 1.25e8
    # 50 rows of 64 bytes, of which 3/4 come and go, with a byte or two of row number each way.
    sent = data['prediction']['variables']['words/embeddings']['plan']
    assert 50 * 0.75 * (128 + 1.9) <= sent <= 50 * 0.75 * (128 + 4.1)


@pytest.mark.parametrize('name', ['function', 'json', 'hdf5', 'huge'])
def test_the_text_says_what_the_data_says(outcomes, name):
    code, text, _ = outcomes[name]
    assert code == 0
    data = data_of(outcomes, name)
    assert 'A step, for each host (4 hosts x 1 worker, 1 Gbit/s):' in text
    assert data['verdict'] in text.splitlines() and ' at 1 Gbit/s' in data['verdict']
    assert data['model'] and data['verdict'].startswith(data['model'][:4])
    for entry in data['variables']:
        lines = [line for line in text.splitlines() if line.split('  ')[0] == entry['name']]
        # What it is, and what is sent for it.
        assert len(lines) == 2
        assert entry['place'] in lines[0]
        # A long reason goes on in a line that has nothing else.
        assert entry['reason'] in ' '.join(text.split())


def test_a_table_that_fits_no_memory_is_planned(outcomes):
    data = data_of(outcomes, 'huge')
    assert data['variables'][0]['bytes'] == 64 * 10**9
    assert 'lazy' in data['variables'][0]['update']['words']


def test_the_update_is_that_of_the_optimizer_given_saved_or_none(outcomes):
    def updates(name):
        return {entry['name']: entry['update'] for entry in data_of(outcomes, name)['variables']}

    assert set(updates('function').values()) == {None}
    adam = updates('json')
    assert adam['words/embeddings']['whole'] and adam['words/embeddings']['slots'] == 2
    assert adam['out/kernel']['slots'] == 2
    momentum = updates('hdf5')['words/embeddings']
    assert not momentum['whole'] and momentum['slots'] == 1
    assert 'reads and writes' in outcomes['json'][1]


def test_a_page_and_what_does_not_fit_are_asked_for_by_options(outcomes):
    code, text, _ = outcomes['page']
    assert code == 0
    assert 'It does not fit: hosts 0-3 would need' in text and 'a host has 1000 B.' in text
    assert outcomes['drawing'] == []
    page = outcomes['the page']
    assert page.startswith('<!DOCTYPE html>') and 'It does not fit: hosts 0-3' in page
    assert 'words/embeddings' in page and 'its regularizer moves every row' in page


# --- what cannot be ------------------------------------------------------------


@pytest.mark.parametrize(
    'name, code, message',
    [
        ('weights', 1, 'it has weights only; save it with model.save'),
        ('no json', 1, 'No Keras model could be built from broken.json'),
        ('missing', 1, 'There is no file missing.json.'),
        ('no source', 1, "as module:function, but 'plain' was given"),
        ('no module', 1, 'Module no_such_module could not be imported'),
        ('no function', 1, 'Module models has no function build.'),
        ('no model', 1, "models:nothing returned 'nothing', which is no Keras model."),
        ('unbuilt', 1, 'give its first layer an input_shape'),
        ('no optimizer', 1, "No Keras optimizer could be made of 'best'"),
        ('no density', 2, "'2' is no fraction from 0 to 1"),
        ('no partitions', 2, "'0' is no number from 1"),
        ('no bandwidth', 2, "such as '10Gbit' or '1.25GB', but '10G' was given"),
        ('no folder', 1, 'missing/page.html'),
        ('no memory', 2, "such as '64GiB' or '16GB', but '64' was given"),
        ('no servers', 2, "'some' is neither 'worker' nor 'host' nor a number from 1"),
        ('no variable', 2, "'dense' is not of the form VARIABLE=class"),
        ('no such variable', 1, 'overrides names word, but the trainable variables'),
    ],
)
def test_what_cannot_be_is_refused_with_a_sentence(outcomes, name, code, message):
    found, output, errors = outcomes[name]
    assert found == code
    assert message in errors
    assert output == ''


# --- options -------------------------------------------------------------------

USES = [
    VariableUse('one', (1000, 16), 'float32', lookups=1),
    VariableUse('other', (1000, 16), 'float32', lookups=1),
    VariableUse('whole', (1000, 16), 'float32', lookups=1, constraint=WHOLE_TABLE),
    VariableUse('kernel', (16, 4), 'float32', whole_reads=('MatMul',)),
]


def planned(uses=USES, **options):
    defaults = dict(
        hosts=4,
        workers_per_host=2,
        bandwidth=1.25e9,
        density=[],
        architecture='hybrid',
        partitions=[],
        override=[],
        servers='worker',
        fp16=False,
        fp16_pulls=False,
        local_aggregation=False,
    )
    return plan_for(uses, **dict(defaults, **options))


def test_a_value_for_every_table_is_for_tables_only_and_one_by_name_counts_more():
    plan = planned(density=[('one', 0.5), (None, 0.1)])
    assert [variable.density for variable in plan.variables] == [0.5, 0.1, 0.1, 1.0]
    plan = planned(density=[(None, 0.1)], override=[('other', 'dense')])
    assert plan['other'].density is None


def test_the_name_of_a_layer_is_for_its_variables():
    uses = [use._replace(name='%s/embeddings' % use.name) for use in USES]
    plan = planned(uses, density=[(None, 0.1), ('one', 0.5)], override=[('other', 'dense')])
    assert plan['one/embeddings'].density == 0.5
    assert plan['other/embeddings'].kind == 'dense'


def test_partitions_for_every_table_leave_one_in_one_piece_that_must_be():
    plan = planned(partitions=[(None, 3)])
    assert [len(variable.shards) for variable in plan.variables] == [3, 3, 1, 0]


def test_a_dtype_of_rows_is_for_all_tables_or_for_one_and_is_that_of_no_dense_variable():
    for row_dtype, kept in (([(None, 'float16')], 3), ([('one', 'float16')], 1), ([], 0)):
        found = [planned(row_dtype=row_dtype).variables[number] for number in range(4)]
        assert [one.stored_dtype for one in found] == ['float16'] * kept + ['float32'] * (4 - kept)
    with pytest.raises(PlanError, match="row_dtype of one must be 'float16'"):
        planned(row_dtype=[('one', 'bfloat16')])


@pytest.mark.parametrize('servers, number', [('worker', 8), ('host', 4), (3, 3)])
def test_servers_are_one_in_a_worker_or_on_a_host_or_machines_of_their_own(servers, number):
    plan = planned(servers=servers)
    assert plan.servers == number
    assert plan.cluster.dedicated_servers == (servers == 3)
    machines = {load.machine for load in plan.predict().server_loads}
    assert machines == ({4, 5, 6} if servers == 3 else {0, 1, 2, 3})


def test_one_worker_keeps_everything_unless_there_are_machines_for_servers():
    assert planned(hosts=1, workers_per_host=1).servers == 0
    assert planned(hosts=1, workers_per_host=1, servers=2).predict().totals['plan'].sent == 0
    plan = planned(hosts=1, workers_per_host=1, servers=2, density=[(None, 0.5)])
    assert plan.predict().totals['plan'].sent > 0


def test_what_cannot_be_planned_is_a_plan_error():
    with pytest.raises(PlanError):
        planned(partitions=[('kernel', 2)])
    with pytest.raises(PlanError):
        planned(architecture='allreduce', partitions=[(None, 2)])


if __name__ == '__main__':
    script()
