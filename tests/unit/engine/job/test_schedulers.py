# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What workers know of each other by the variables of a scheduler."""

import pytest

from keras_parallax.engine.job import schedulers
from keras_parallax.errors import StackError

SLURM = {
    'SLURM_PROCID': '3',
    'SLURM_LOCALID': '1',
    'SLURM_NODEID': '2',
    'SLURM_STEP_NUM_TASKS': '5',
    'SLURM_STEP_TASKS_PER_NODE': '1,2(x2)',
    'SLURM_STEP_NODELIST': 'gpu[3-5]',
    'SLURM_JOB_ID': '41',
    'SLURM_STEP_ID': '2',
}
KUBERNETES = {
    'JOB_COMPLETION_INDEX': '2',
    'HOROVOD_SIZE': '4',
    'HOROVOD_GLOO_RENDEZVOUS_ADDR': 'train-0.train',
    'HOROVOD_GLOO_RENDEZVOUS_PORT': '29400',
}


def found(environ):
    return {
        name[len('HOROVOD_') :].lower(): value
        for name, value in schedulers.variables(environ).items()
    }


def test_srun_says_the_place_of_a_task_among_all_on_its_node_and_across_nodes():
    of_task = found(SLURM)
    numbers = [of_task[name] for name in ('rank', 'size', 'local_rank', 'local_size')]
    assert numbers == ['3', '5', '1', '2']
    # Only the second and the third node have a second task.
    assert (of_task['cross_rank'], of_task['cross_size']) == ('1', '2')
    assert of_task['gloo_rendezvous_addr'] == 'gpu3'
    assert of_task['controller'] == of_task['cpu_operations'] == 'gloo'


def test_steps_of_jobs_meet_at_ports_of_their_own():
    ports = {
        found(dict(SLURM, SLURM_JOB_ID=str(job), SLURM_STEP_ID=str(step)))['gloo_rendezvous_port']
        for job in range(100)
        for step in range(10)
    }
    assert len(ports) == 1000
    assert all(15000 <= int(port) < 30000 for port in ports)


def test_the_place_where_ranks_meet_may_be_given():
    given = dict(
        SLURM, HOROVOD_GLOO_RENDEZVOUS_ADDR='10.0.0.3', HOROVOD_GLOO_RENDEZVOUS_PORT='29400'
    )
    of_task = found(given)
    assert of_task['gloo_rendezvous_addr'] == '10.0.0.3'
    assert of_task['gloo_rendezvous_port'] == '29400'


def test_an_indexed_job_is_one_rank_a_pod():
    of_pod = found(KUBERNETES)
    names = ('rank', 'size', 'local_rank', 'local_size', 'cross_rank', 'cross_size')
    assert [of_pod[name] for name in names] == ['2', '4', '0', '1', '2', '4']
    assert of_pod['gloo_rendezvous_addr'] == 'train-0.train'


@pytest.mark.parametrize(
    'environ',
    [
        {},
        # A batch script itself, as of `sbatch`, is no step.
        {'SLURM_PROCID': '0', 'SLURM_NTASKS': '4', 'SLURM_JOB_ID': '1'},
        dict(SLURM, SLURM_STEP_NUM_TASKS='1'),
        dict(SLURM, HOROVOD_RANK='0'),
        dict(SLURM, OMPI_COMM_WORLD_RANK='0'),
        dict(SLURM, PMIX_RANK='0'),
        # An indexed Job of something else.
        {'JOB_COMPLETION_INDEX': '2'},
    ],
)
def test_nothing_is_said_of_one_process_or_of_ranks_of_a_launcher(environ):
    assert schedulers.variables(environ) == {}


@pytest.mark.parametrize(
    'wrong',
    [
        {'SLURM_STEP_TASKS_PER_NODE': 'two'},
        {'SLURM_NODEID': '7'},
        {'SLURM_LOCALID': ''},
        {'SLURM_STEP_NODELIST': ''},
    ],
)
def test_variables_of_another_form_are_refused_with_a_sentence(wrong):
    with pytest.raises(StackError, match='start the job with horovodrun or mpirun'):
        schedulers.variables(dict(SLURM, **wrong))
