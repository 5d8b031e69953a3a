# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Which architecture is fastest from how many hosts on, in a sentence."""

import pytest

from keras_parallax.planning import scaling
from keras_parallax.planning.classify import VariableUse
from keras_parallax.planning.costs import Cluster
from keras_parallax.planning.plan import make_plan
from keras_parallax.planning.verdict import COLUMNS, fastest, verdict

TABLE = VariableUse('table', (20000, 64), 'float32', lookups=1)
KERNEL = VariableUse('kernel', (512, 300), 'float32', whole_reads=('MatMul',))


def planned(hosts=8, density=0.02, uses=(TABLE, KERNEL), **options):
    densities = {} if density is None else {'table': density}
    plan = make_plan(uses, hosts, density=densities, cluster=Cluster(hosts), **options)
    return plan._replace(model='words')


def test_the_sentence_names_the_model_the_architectures_and_where_they_change():
    ranges = fastest(planned())
    assert [architecture for _, architecture in ranges] == ['allreduce', 'hybrid']
    hosts = ranges[1][0]
    assert 2 < hosts < 64
    assert verdict(planned()) == (
        'words: allreduce is fastest below %d hosts at 10 Gbit/s, hybrid from %d on (predicted to '
        '64).' % (hosts, hosts)
    )


def test_the_change_is_at_the_host_at_which_the_predicted_step_changes():
    hosts = fastest(planned())[1][0]

    def steps(count):
        return {name: point.step for name, point in scaling.points_on(planned(), count).items()}

    before, after = steps(hosts - 1), steps(hosts)
    assert before['allreduce'] * 1.05 < before['hybrid']
    assert after['hybrid'] <= after['allreduce'] * 1.05


def test_every_plan_of_one_model_comes_to_the_same_verdict():
    plans = [planned(hosts, architecture=way) for hosts in (2, 16) for way in ('hybrid', 'auto')]
    assert len({verdict(plan) for plan in plans}) == 1


def test_a_slower_network_changes_the_verdict():
    fast, slow = fastest(planned(), 1.25e10), fastest(planned(), 1.25e7)
    assert fast != slow and slow[-1][1] == 'hybrid'
    assert ' 100 Mbit/s' in verdict(planned(), 1.25e7)


def test_one_architecture_that_is_always_fastest():
    expected = 'words: allreduce is fastest on 2 to 64 hosts at 10 Gbit/s, as predicted.'
    assert verdict(planned(density=0.0001)) == expected


def test_a_model_without_tables():
    plan = planned(uses=[KERNEL], density=None)
    expected = 'allreduce is fastest on any number of hosts, because no variable is sparse.'
    assert verdict(plan) == 'words: ' + expected


def test_what_is_not_known_is_not_made_up():
    assert 'depends on the density of table, not yet known' in verdict(planned(density=None))


def test_one_worker_has_no_verdict():
    assert verdict(make_plan([TABLE])) is None


@pytest.mark.parametrize('density', [None, 0.0001, 0.02, 0.5])
def test_the_sentence_fits_however_long_the_names_are(density):
    uses = [TABLE._replace(name='table'), KERNEL]
    plan = planned(density=density, uses=uses)._replace(model='a_module:' + 'function' * 20)
    assert len(verdict(plan)) <= COLUMNS
    assert verdict(plan._replace(model=None)).startswith('This model: ')
