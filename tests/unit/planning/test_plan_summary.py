# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The plan as text."""

import pytest

from keras_parallax.planning.classify import WHOLE_TABLE, VariableUse
from keras_parallax.planning.costs import Cluster
from keras_parallax.planning.plan import Update, make_plan
from keras_parallax.planning.plan_summary import format_summary
from keras_parallax.planning.units import shortened

USES = [
    VariableUse('table/embeddings', (793471, 512), 'float32', lookups=1),
    VariableUse('out/kernel', (512, 3), 'float32', whole_reads=('MatMul',)),
    VariableUse('out/bias', (3,), 'float32', whole_reads=('BiasAdd',)),
    VariableUse('scale', (), 'float32', whole_reads=('Mul',)),
]


def line_of(text, name):
    """The only line that starts with a variable's name and its shape."""
    return lines_of(text, name)[0]


def exchanges_of(text, name):
    """The cells of the only line that tells a variable's density and what is sent for it."""
    _, line = lines_of(text, name)
    return cells(line)[1:]


def lines_of(text, name):
    return [line for line in text.splitlines() if line.split('  ')[0] == name]


def test_every_variable_has_a_line_with_its_class_place_and_reason():
    plan = make_plan(USES, servers=4)
    text = format_summary(plan)
    for variable in plan.variables:
        line = line_of(text, variable.name)
        for said in (variable.kind, variable.place, variable.reason):
            assert said in line


@pytest.mark.parametrize(
    'name, shape, size',
    [
        ('table/embeddings', '793471 x 512', '1.5 GiB'),
        ('out/kernel', '512 x 3', '6.0 KiB'),
        ('out/bias', '3', '12 B'),
        ('scale', 'scalar', '4 B'),
    ],
)
def test_a_line_tells_shape_and_size(name, shape, size):
    fields = [field.strip() for field in line_of(format_summary(make_plan(USES)), name).split('  ')]
    assert [field for field in fields if field][1:3] == [shape, size]


@pytest.mark.parametrize(
    'entries, size',
    [
        (0, '0 B'),
        (255, '1020 B'),
        (256, '1.0 KiB'),
        (384, '1.5 KiB'),
        (256 * 1024, '1.0 MiB'),
        (256 * 1024**2, '1.0 GiB'),
        (256 * 1024**3, '1.0 TiB'),
    ],
)
def test_sizes_are_in_units_of_1024(entries, size):
    use = VariableUse('v', (entries,), 'float32', whole_reads=('Mul',))
    assert f'Dense: 1 variable, {size}' in format_summary(make_plan([use])).splitlines()


def test_a_size_just_below_a_unit_is_not_1024_of_the_smaller():
    # 1 MiB less 4 bytes, which rounds to 1024.0 KiB.
    use = VariableUse('v', (256 * 1024 - 1,), 'float32', whole_reads=('Mul',))
    assert '1024.0 KiB' not in format_summary(make_plan([use]))


def test_totals_count_each_class():
    lines = format_summary(make_plan(USES, servers=2)).splitlines()
    assert 'Architecture: hybrid' == lines[0]
    assert 'Dense: 3 variables, 6.0 KiB' in lines
    assert 'Sparse: 1 variable, 1.5 GiB' in lines


def test_a_class_without_variables_is_counted_too():
    lines = format_summary(make_plan(USES[:1], servers=2)).splitlines()
    assert 'Dense: 0 variables, 0 B' in lines


def test_the_way_of_each_table_is_told_last_and_once_for_all_that_share_it():
    uses = [USES[0]._replace(name=name) for name in ('words', 'items', 'more')]
    ways = {
        'words': Update('touched rows'),
        'items': Update('every row'),
        'more': Update('touched rows'),
    }
    lines = format_summary(make_plan(uses, 2).with_updates(ways)).splitlines()
    assert set(lines[-2:]) == {
        'Update of items: every row',
        'Update of words, more: touched rows',
    }


@pytest.mark.parametrize('servers', [0, 1, 4])
@pytest.mark.parametrize('uses', [USES, USES[:1], []], ids=['all', 'one', 'none'])
def test_lines_end_without_blanks_and_the_text_without_a_newline(uses, servers):
    text = format_summary(make_plan(uses, servers))
    assert text == text.rstrip()
    assert all(line and line == line.rstrip() for line in text.splitlines())


def test_columns_begin_at_one_place():
    text = format_summary(make_plan(USES, servers=2))
    header = [line for line in text.splitlines() if line.startswith('variable')][0]
    for name, word in (('table/embeddings', 'sparse'), ('out/bias', 'dense'), ('scale', 'dense')):
        assert line_of(text, name).index(' ' + word) + 1 == header.index('class')


# --- what a step costs -------------------------------------------------------


def cells(line):
    """The cells of a table's line, which two blanks at least keep apart."""
    return [cell.strip() for cell in line.split('  ') if cell.strip()]


def line_that_starts(text, words):
    (line,) = [line for line in text.splitlines() if line.startswith(words)]
    return line


def planned(hosts=8, workers=1, density=None, uses=USES, **options):
    density = {'table/embeddings': 0.003} if density is None else density
    cluster = Cluster(hosts, workers)
    return make_plan(uses, cluster.workers, density=density, cluster=cluster, **options)


def test_a_line_tells_the_density_and_the_bytes_of_each_exchange():
    text = format_summary(planned())
    assert cells(line_of(text, 'table/embeddings'))[3:5] == ['sparse', '8 shards on servers 0-7']
    # 2380 rows of 2 KiB: 7/8 come and go; 7 other workers' rows; the whole of 1.5 GiB twice.
    assert exchanges_of(text, 'table/embeddings') == ['0.003', '8.2 MiB', '32.6 MiB', '2.6 GiB']


def test_totals_tell_each_exchange_and_the_floor():
    text = format_summary(planned())
    assert '(8 hosts x 1 worker, 10 Gbit/s)' in text
    assert cells(line_that_starts(text, 'this plan'))[1:] == ['8.2 MiB'] * 3 + ['6.85 ms']
    assert cells(line_that_starts(text, 'tables by dense'))[-1] == '2.28 s'
    assert cells(line_that_starts(text, 'floor'))[1] == '8.1 MiB'


def test_the_time_is_told_for_the_bandwidth_asked_for():
    text = format_summary(planned(), bandwidth=1.25e8)
    assert '1 Gbit/s' in text
    assert cells(line_that_starts(text, 'this plan'))[-1] == '68.5 ms'


def test_workers_of_one_host_are_said_to_be_counted_as_hosts():
    text = format_summary(planned(hosts=1, workers=8))
    assert '1 host x 8 workers, counted as if each were a host' in text
    assert cells(line_that_starts(text, 'this plan'))[1] == '8.2 MiB'


def test_a_table_of_unknown_density_is_named_and_its_bytes_are_not_made_up():
    text = format_summary(planned(density={}))
    assert exchanges_of(text, 'table/embeddings') == ['?', '?', '?', '2.6 GiB']
    for words in ('this plan', 'tables by allgather', 'floor'):
        assert all(cell.startswith('>= ') for cell in cells(line_that_starts(text, words))[1:])
    assert cells(line_that_starts(text, 'tables by dense'))[1] == '2.6 GiB'
    assert 'density is not known: table/embeddings.' in text
    assert "density={'table/embeddings': ...}" in text


def test_the_bytes_saved_are_told_if_there_are_any():
    text = format_summary(planned())
    expected = 'Saved: 24.5 MiB against tables by allgather (75%), 2.6 GiB against tables by dense '
    assert expected + 'allreduce (100%)' in text.splitlines()
    gathered = format_summary(planned(architecture='allreduce'))
    assert 'Saved: nothing against tables by allgather (0%), 2.6 GiB against' in gathered
    assert 'Saved' not in format_summary(planned(density={}))


def test_a_plan_fits_120_columns_whatever_its_names():
    name = 'model/' + 'a_very_long_scope/' * 8 + 'embeddings'
    uses = [VariableUse(name, (793471, 512), 'float32', lookups=1), *USES]
    plan = planned(uses=uses, density={}, architecture='auto')
    for one in (plan, plan._replace(model='a_module.with_a_long_name:' + 'function' * 20)):
        text = format_summary(one, host_memory=1e6)
        assert max(map(len, text.splitlines())) <= 120, text
    assert shortened(name, 40) + '  ' in text


@pytest.mark.parametrize('power', range(7))
def test_a_long_reason_breaks_in_its_column_and_not_the_table(power):
    use = VariableUse('softmax/embeddings', (10**power, 64), 'float32', lookups=1)
    plan = planned(uses=[use], density={})
    (variable,) = plan.variables
    plan = plan._replace(variables=[variable._replace(reason='a layer computes its ids ' * 6)])
    lines = format_summary(plan).splitlines()
    (rule,) = [line for line in lines if line.startswith('---')][:1]
    assert len(rule.split()) == 6 and len(rule) <= 120


def test_the_verdict_comes_second():
    lines = format_summary(planned()._replace(model='lm')).splitlines()
    assert lines[1] == planned()._replace(model='lm').verdict() and lines[1].startswith('lm: ')


def test_the_time_of_messages_is_told_beside_that_of_bytes():
    text = format_summary(planned(40))
    assert 'Messages to 28 shards: about 5.6 ms besides (a rough estimate)' in text.splitlines()
    assert 'Messages' not in format_summary(planned(8, uses=USES[1:], density={}))


def test_a_density_that_was_measured_is_told_as_such():
    plan = planned(density={})
    shards = {variable.name: variable.shards for variable in plan.variables}
    text = format_summary(plan.as_followed(shards, {'table/embeddings': 0.003}))
    assert exchanges_of(text, 'table/embeddings')[0] == '0.003 measured'
    assert 'is not known' not in text and '>=' not in text
    assert exchanges_of(format_summary(planned()), 'table/embeddings')[0] == '0.003'


def test_rows_of_16_bits_are_told_and_those_that_every_rank_holds_have_the_dtype_of_the_model():
    use = VariableUse('words', (1000, 16), 'float32', lookups=1)
    text = format_summary(make_plan([use], 2, row_dtype='float16'))
    assert '2 shards on servers 0, 1, rows of 16 bits' in text and '31.2 KiB' in text
    assert 'row_dtype' not in text
    (line,) = [
        line
        for line in format_summary(make_plan([use], 0, row_dtype='float16')).splitlines()
        if 'row_dtype' in line
    ]
    assert (
        line == "row_dtype='float16' is for rows on servers: every worker holds words, as float32"
    )


def test_each_server_is_told_with_its_share_of_bytes_and_of_traffic():
    uses = [
        VariableUse(name, (1000, 16), 'float32', lookups=1, regularizer=WHOLE_TABLE)
        for name in ('hot', 'cold')
    ]
    text = format_summary(planned(2, density={'hot': 0.3, 'cold': 0.1}, uses=uses))
    assert cells(line_that_starts(text, 'server 0'))[1:] == ['62.5 KiB', '50 %', '75 %']
    assert cells(line_that_starts(text, 'server 1'))[1:] == ['62.5 KiB', '50 %', '25 %']


def test_of_many_servers_the_extremes_are_told():
    text = format_summary(planned(20, density={}))
    line = line_that_starts(text, '20 servers')
    assert '77.5 MiB to 77.5 MiB each' in line and '? of the row traffic' in line


def test_one_worker_has_no_costs():
    text = format_summary(make_plan(USES))
    assert 'A step' not in text and 'class    density' not in text


@pytest.mark.parametrize(
    'architecture, first_line',
    [
        ('hybrid', 'Architecture: hybrid'),
        ('allreduce', 'Architecture: allreduce'),
        ('auto', "Architecture: hybrid (chosen by cost; 'auto' was asked for)"),
    ],
)
def test_the_first_line_tells_the_architecture(architecture, first_line):
    text = format_summary(planned(architecture=architecture))
    assert text.splitlines()[0] == first_line


def test_a_model_without_tables_says_why_it_is_not_hybrid():
    text = format_summary(planned(uses=USES[1:], density={}))
    assert text.splitlines()[0] == (
        "Architecture: allreduce (no variable is sparse; 'hybrid' was asked for)"
    )


def test_an_exact_update_tells_what_it_costs_and_what_touched_rows_would():
    updates = {'table/embeddings': Update('every row', whole=True, slots=2)}
    lines = format_summary(planned().with_updates(updates)).splitlines()
    # The table and two slots, read and written; of the rows, 1 - 0.997 ** 8 are touched.
    assert lines[-2:] == [
        'Update of table/embeddings: every row',
        '  which reads and writes 9.1 GiB of memory a step, all servers together; for touched rows '
        'only it would be 220.8 MiB',
    ]
    unknown = format_summary(planned(density={}).with_updates(updates))
    assert unknown.endswith('9.1 GiB of memory a step, all servers together')
    touched = {'table/embeddings': Update('touched rows', whole=False, slots=2)}
    assert format_summary(planned().with_updates(touched)).endswith(
        'Update of table/embeddings: touched rows'
    )
