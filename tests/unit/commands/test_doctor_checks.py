# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What the doctor makes of facts."""

import copy

import pytest

from keras_parallax.commands import doctor_checks, host_files
from keras_parallax.commands.doctor_checks import FAILURE, OK, WARNING

GOOD = {
    'began': 1000.0,
    'ended': 1003.0,
    'host': 'h',
    'python': '3.6.15',
    'executable': '/venv/bin/python',
    'folder': '/job',
    'files': {'train.py': 'aa'},
    'disk': {'folder': '/job', 'free': 1 << 40, 'writable': True},
    'ports': ['32768', '60999'],
    'filtered': None,
    'cards': 0,
    'code': 'cc',
    'problems': {},
    'name_address': '10.0.0.1',
    'interfaces': {'lo': ['127.0.0.1', '::1'], 'eth0': ['10.0.0.1', 'fe80::1']},
    'distributions': {'keras': '2.2.4', 'click': '8.0.4'},
    'tensorflow': '1.11.0',
    'keras': '2.2.4',
    'horovod': '0.19.5',
    'h5py': '2.10.0',
    'numpy': '1.16.6',
    'cuda': {'built': False, 'missing': []},
    'horovod_built': {'gloo': True, 'mpi': False, 'nccl': False, 'by_name': False},
    'mpirun': None,
    'closing': {'one host': None, 'several hosts': None},
}
FULL_CUDA = {'built': True, 'missing': []}


def facts(**changes):
    """Facts of a host where all is well, but for the changes."""
    found = copy.deepcopy(GOOD)
    for name, value in changes.items():
        assert name in found
        found[name] = value
    return found


def verdicts(findings):
    return [finding.verdict for finding in findings]


def test_a_good_host_is_ok_in_every_line():
    findings = doctor_checks.check_host('h', facts(), 2, 1)
    assert set(verdicts(findings)) == {OK}
    assert [finding.check for finding in findings] == [
        'versions', 'controllers', 'GPU', 'servers', 'disk',
    ]  # fmt: skip
    assert doctor_checks.exit_code(findings) == 0


@pytest.mark.parametrize(
    'changes, verdict, words',
    [
        ({'python': '3.8.1'}, FAILURE, 'Python 3.8.1'),
        ({'tensorflow': '1.15.0'}, FAILURE, 'TensorFlow 1.15.0'),
        ({'tensorflow': None, 'problems': {'tensorflow': 'No AVX'}}, FAILURE, 'No AVX'),
        ({'horovod': '0.28.1'}, FAILURE, 'Horovod 0.28.1'),
        ({'keras': '2.3.0'}, FAILURE, 'Keras 2.3.0'),
        ({'keras': None, 'problems': {'keras': 'gone'}}, WARNING, 'gone'),
        ({'h5py': '3.1.0'}, WARNING, 'h5py 3.1.0'),
        ({'h5py': None}, WARNING, 'h5py is missing'),
    ],
)
def test_a_version_that_does_not_fit_is_named_with_a_remedy(changes, verdict, words):
    (finding,) = doctor_checks.check_versions('h', facts(**changes))
    assert finding.verdict == verdict
    assert words in finding.message and finding.remedy


def test_h5py_3_is_for_the_keras_of_tensorflow_2():
    findings = doctor_checks.check_versions('h', facts(tensorflow='2.21.0', h5py='3.14.0'))
    assert not any('h5py' in finding.message for finding in findings)
    findings = doctor_checks.check_versions('h', facts(tensorflow='1.11.0', h5py='3.14.0'))
    assert [finding.remedy for finding in findings] == ["pip install 'h5py<3'"]


@pytest.mark.parametrize('package', ['tensorflow-cpu', 'tensorflow_cpu', 'tf_keras'])
def test_hosts_may_not_differ_in_a_package_of_tensorflow_2(package):
    hosts = {
        host: facts(distributions={package: version})
        for host, version in (('a', '2.21.0'), ('b', '2.20.0'))
    }
    (finding,) = doctor_checks.check_same_code(hosts)
    assert finding.verdict == FAILURE and package in finding.message


def test_every_version_that_does_not_fit_has_a_line():
    findings = doctor_checks.check_versions('h', facts(python='3.8.18', tensorflow='1.4.0'))
    assert verdicts(findings) == [FAILURE, FAILURE]


@pytest.mark.parametrize(
    'controllers, mpirun, verdict, words',
    [
        (['gloo'], 'mpirun (Open MPI) 4.1.4', OK, 'has Gloo.'),
        (['gloo', 'mpi'], 'mpirun (Open MPI) 4.1.4', OK, 'Gloo and MPI (mpirun (Open MPI) 4.1.4)'),
        (['gloo', 'mpi'], None, WARNING, 'no mpirun'),
        (['mpi'], 'mpirun (Open MPI) 4.1.4', WARNING, 'without Gloo'),
        ([], None, FAILURE, 'without Gloo'),
    ],
)
def test_a_job_needs_a_controller(controllers, mpirun, verdict, words):
    built = {name: name in controllers for name in ('gloo', 'mpi', 'nccl')}
    found = facts(horovod_built=built, mpirun=mpirun)
    (finding,) = doctor_checks.check_controllers('h', found)
    assert finding.verdict == verdict and words in finding.message


def test_a_horovod_that_does_not_load_is_a_failure_with_its_reason():
    found = facts(horovod_built=None, problems={'horovod_built': 'undefined symbol'})
    (finding,) = doctor_checks.check_controllers('h', found)
    assert finding.verdict == FAILURE and 'undefined symbol' in finding.message


@pytest.mark.parametrize(
    'changes, verdict, words',
    [
        ({'cards': 2}, WARNING, '2 graphics cards, but a TensorFlow for CPUs'),
        ({'cuda': {'built': True, 'missing': ['libcudnn.so.7']}}, FAILURE, 'libcudnn.so.7'),
        ({'cuda': FULL_CUDA}, WARNING, 'no card'),
        ({'cuda': FULL_CUDA, 'cards': 1}, WARNING, 'NCCL'),
        (
            {
                'cuda': FULL_CUDA,
                'cards': 1,
                'horovod_built': {'gloo': True, 'mpi': False, 'nccl': True},
            },
            OK,
            'NCCL',
        ),
    ],
)
def test_cards_libraries_and_packages_have_to_go_together(changes, verdict, words):
    (finding,) = doctor_checks.check_gpu('h', facts(**changes), 1)
    assert finding.verdict == verdict and words in finding.message


@pytest.mark.parametrize('slots, verdict', [(2, OK), (3, WARNING)])
def test_a_host_needs_a_card_for_each_worker_or_a_file_that_shares_them(slots, verdict):
    nccl = {'gloo': True, 'mpi': False, 'nccl': True}
    found = facts(cuda=FULL_CUDA, cards=2, horovod_built=nccl)
    (finding,) = doctor_checks.check_gpu('h', found, slots)
    assert finding.verdict == verdict
    if slots > 2:
        assert '3 workers' in finding.message and '2 graphics cards' in finding.message
        line = finding.remedy.split('the line ')[1]
        assert host_files.hosts_of(line) == [host_files.Host('h', 3, (0, 1, 0))]


@pytest.mark.parametrize('cards, verdict', [(0, OK), (2, FAILURE)])
def test_tensorflow_2_needs_the_libraries_where_there_are_cards(cards, verdict):
    cuda = {'built': True, 'missing': ['those of CUDA or cuDNN']}
    found = facts(tensorflow='2.21.0', cuda=cuda, cards=cards)
    (finding,) = doctor_checks.check_gpu('h', found, 1)
    assert finding.verdict == verdict and '9.0' not in finding.remedy


@pytest.mark.parametrize(
    'slots, hosts, filtered, verdict',
    [
        (1, 1, None, OK),
        (2, 1, None, OK),
        (2, 2, None, WARNING),
        (2, 2, False, WARNING),
        (2, 2, True, OK),
    ],
)
def test_servers_that_the_kernel_leaves_open_are_warned_of_unless_they_are_filtered(
    slots, hosts, filtered, verdict
):
    closing = {'one host': None, 'several hosts': 'CAP_NET_ADMIN is missing'}
    found = facts(filtered=filtered, closing=closing)
    (finding,) = doctor_checks.check_servers('h', found, slots, hosts)
    assert finding.verdict == verdict
    assert ('CAP_NET_ADMIN is missing' in finding.message) == (verdict == WARNING)


@pytest.mark.parametrize('address', ['8.8.8.8', '2001:4860:4860::8888'])
def test_a_public_address_of_open_servers_is_named(address):
    closing = {'one host': 'an old kernel', 'several hosts': 'an old kernel'}
    found = facts(closing=closing, interfaces={'eth0': ['10.0.0.1'], 'eth1': [address]})
    (finding,) = doctor_checks.check_servers('h', found, 2, 1)
    assert address in finding.message and '10.0.0.1' not in finding.message


@pytest.mark.parametrize(
    'disk, verdict',
    [
        ({'free': 1 << 30, 'writable': True}, OK),
        ({'free': (1 << 30) - 1, 'writable': True}, WARNING),
        ({'free': 0, 'writable': True}, FAILURE),
        ({'free': 1 << 40, 'writable': False}, FAILURE),
    ],
)
def test_checkpoints_need_room_that_can_be_written_to(disk, verdict):
    found = facts(disk=dict(disk, folder='/data'))
    (finding,) = doctor_checks.check_disk('h', found)
    assert finding.verdict == verdict and '/data' in finding.message


@pytest.mark.parametrize(
    'changes, verdict, words',
    [
        ({'python': '3.6.8'}, FAILURE, 'python 3.6.8 instead of 3.6.15'),
        ({'numpy': '1.19.5'}, FAILURE, 'numpy 1.19.5 instead of 1.16.6'),
        ({'keras': None}, FAILURE, 'keras missing instead of 2.2.4'),
        ({'distributions': {'keras': '2.2.4'}}, WARNING, 'click missing instead of 8.0.4'),
        ({'distributions': dict(GOOD['distributions'], x='1')}, WARNING, 'x 1 instead of none'),
        ({'distributions': dict(GOOD['distributions'], protobuf='3')}, FAILURE, 'protobuf 3'),
        ({'code': 'dd'}, FAILURE, 'keras_parallax is not the same code'),
        ({'folder': '/root'}, WARNING, 'no folder /job'),
        ({'files': {'train.py': None}}, FAILURE, 'train.py is missing'),
        ({'files': {'train.py': 'bb'}}, FAILURE, 'train.py is not the same'),
    ],
)
def test_a_host_that_would_run_something_else_is_named(changes, verdict, words):
    found = {'first': facts(), 'second': facts(), 'third': facts(**changes)}
    (finding,) = doctor_checks.check_same_code(found)
    assert (finding.verdict, finding.host) == (verdict, 'third')
    assert words in finding.message and finding.remedy


def test_hosts_that_run_the_same_have_one_line():
    assert verdicts(doctor_checks.check_same_code({'first': facts(), 'second': facts()})) == [OK]


@pytest.mark.parametrize(
    'offset, verdict, words',
    [
        (0, OK, ''),
        # The answer took 0.5 s more than the host says it took, all of which may be its clock's.
        (1.2, OK, ''),
        (-0.9, OK, ''),
        (1.6, WARNING, '1.1 s ahead'),
        (-1.3, WARNING, '1.1 s behind'),
        (-3600, WARNING, '3599.8 s behind'),
    ],
)
def test_a_clock_is_warned_of_only_when_the_way_to_it_cannot_explain_it(offset, verdict, words):
    found = facts(began=1000.2 + offset, ended=1003.2 + offset)
    (finding,) = doctor_checks.check_clock('h', found, sent_at=1000.0, answered=1003.7)
    assert finding.verdict == verdict and words in finding.message


@pytest.mark.parametrize(
    'second, chosen, verdict, words',
    [
        ({'eth0': ['10.0.0.2']}, None, OK, 'eth0'),
        ({'eth0': ['10.0.0.2'], 'ib0': ['10.1.0.2']}, None, OK, 'eth0'),
        ({'eth0': ['10.0.0.2'], 'docker0': ['172.17.0.1']}, None, WARNING, 'docker0, eth0'),
        ({'eth0': ['10.0.0.2'], 'docker0': ['172.17.0.1']}, 'eth0', OK, 'eth0'),
        ({'eth0': ['10.0.0.2']}, 'ib0', FAILURE, 'ib0 has no IPv4 address'),
        ({'ens3': ['10.0.0.2']}, None, FAILURE, 'second has ens3'),
        ({'eth0': ['fe80::2']}, None, FAILURE, 'No interface'),
        ({'lo': ['127.0.0.1']}, None, FAILURE, 'No interface'),
    ],
)
def test_workers_need_an_interface_of_one_name(second, chosen, verdict, words):
    first = {'lo': ['127.0.0.1'], 'eth0': ['10.0.0.1'], 'docker0': ['172.17.0.1']}
    found = {'first': facts(interfaces=first), 'second': facts(interfaces=second)}
    (finding,) = doctor_checks.check_interface(found, chosen)
    assert finding.verdict == verdict and words in finding.message


BY_NAME = dict(GOOD['horovod_built'], by_name=True)


def test_names_of_hosts_matter_where_horovod_asks_for_their_addresses():
    unknown = {'first': facts(name_address=None), 'second': facts(name_address='127.0.1.1')}
    assert doctor_checks.check_host_names(unknown) == []
    for of_host in unknown.values():
        of_host['horovod_built'] = BY_NAME
    first, second = doctor_checks.check_host_names(unknown)
    assert (first.verdict, first.host) == (second.verdict, 'first') == (FAILURE, 'first')
    assert second.host == 'second'
    assert 'has no address' in first.message and '127.0.1.1' in second.message
    good = facts(horovod_built=BY_NAME)
    assert verdicts(doctor_checks.check_host_names({'first': good, 'second': good})) == [OK]
    assert len(doctor_checks.check_host_names({'first': good, 'second': unknown['second']})) == 1
    # Where Horovod cannot be loaded, another check says so.
    assert doctor_checks.check_host_names({'first': facts(horovod_built=None)}) == []


def test_hosts_that_do_not_reach_each_other_are_named_both():
    places = {'first': '10.0.0.1:4', 'second': '10.0.0.2:5'}
    fine = {'first': {'10.0.0.2:5': None}, 'second': {'10.0.0.1:4': None}}
    assert verdicts(doctor_checks.check_reach(places, fine)) == [OK]
    (finding,) = doctor_checks.check_reach(places, dict(fine, first={'10.0.0.2:5': 'timed out'}))
    assert (finding.verdict, finding.host) == (FAILURE, 'first')
    assert 'second' in finding.message and 'timed out' in finding.message


@pytest.mark.parametrize('verdict, code', [(OK, 0), (WARNING, 0), (FAILURE, 1)])
def test_only_a_failure_fails(verdict, code):
    good = doctor_checks.Finding(OK, 'x', None, 'Fine.')
    assert doctor_checks.exit_code([good, good._replace(verdict=verdict), good]) == code


@pytest.mark.parametrize(
    'interval, count, verdict, words',
    [
        (5, 3, OK, 'after 15 s'),
        (10, 3, OK, 'after 30 s'),
        (0, 3, WARNING, 'for ever'),
        (60, 3, WARNING, 'for 180 s'),
    ],
)
def test_an_ssh_that_waits_long_for_a_host_is_warned_of(interval, count, verdict, words):
    options = 'port 22\nserveraliveinterval %d\nserveralivecountmax %d\n' % (interval, count)
    (finding,) = doctor_checks.check_cut_off('h', options)
    assert (finding.verdict, finding.host) == (verdict, 'h')
    assert words in finding.message
    assert ('ServerAliveInterval' in finding.remedy) == (verdict == WARNING)
