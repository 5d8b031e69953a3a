# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The doctor on this machine; tests/cluster has it look at several."""

import json
import os
import re
import subprocess
import sys

import pytest
from frameworks import tf

from keras_parallax.commands import doctor, doctor_checks
from keras_parallax.commands.doctor import HostSpec

COMMAND = [sys.executable, '-m', 'keras_parallax_command']


def run(*words, **environ):
    """Runs the command; gives its exit code and what it prints."""
    process = subprocess.run(
        COMMAND + list(words),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        universal_newlines=True,
        env=dict(os.environ, **environ),
    )
    return process.returncode, process.stdout, process.stderr


def resolve(name):
    """The address of a host in a network where there are a few."""
    try:
        return {'here': '10.0.0.1', 'there': '10.0.0.2'}[name]
    except KeyError:
        raise OSError('Name or service not known') from None


def test_hosts_are_read_as_horovodrun_reads_them():
    assert doctor.parse_hosts('here:1, there:4,nowhere:2', {'10.0.0.1'}, resolve) == [
        HostSpec('here', 1, True),
        HostSpec('there', 4, False),
        HostSpec('nowhere', 2, False),
    ]


@pytest.mark.parametrize('text', ['', 'here', 'here:', ':2', 'here:0', 'here:x', 'here:1,,there:1'])
def test_hosts_that_cannot_be_read_are_shown_with_an_example(text):
    with pytest.raises(ValueError, match='first:2,second:2'):
        doctor.parse_hosts(text, set(), resolve)


def test_a_host_that_is_named_twice_is_refused():
    with pytest.raises(ValueError, match='twice'):
        doctor.parse_hosts('here:1,here:2', set(), resolve)


def test_a_remote_command_runs_the_same_python_in_the_same_folder():
    environ = {'PATH': '/a b:/c', 'PYTHONPATH': '/d', 'SECRET': 'x'}
    *ssh, line = doctor.command_on(HostSpec('there', 1, False), ['facts', '{}'], 2222, environ)
    assert ssh[0] == 'ssh' and ssh[-3:] == ['-p', '2222', 'there']
    assert 'BatchMode=yes' in ssh
    assert "cd %s " % os.getcwd() in line and sys.executable in line
    assert "'PATH=/a b:/c' PYTHONPATH=/d" in line and 'SECRET' not in line


@pytest.mark.parametrize(
    'code, is_here, check, words',
    [
        (255, False, 'ssh', 'ssh-copy-id there'),
        (127, False, 'same code', 'same place'),
        (132, False, 'versions', 'code 132'),
        (-4, True, 'versions', 'code -4'),
    ],
)
def test_a_host_without_an_answer_is_a_failure_that_says_where_to_look(code, is_here, check, words):
    finding = doctor.unanswered(HostSpec('there', 1, is_here), code, 'Some reason.')
    assert (finding.verdict, finding.check) == (doctor_checks.FAILURE, check)
    assert 'Some reason.' in finding.message
    assert words in finding.message + finding.remedy


@pytest.mark.parametrize(
    'said, words',
    [
        ('ssh: Could not resolve hostname there: Name or service not known', 'by the name there'),
        ('ssh: connect to host there port 22: Connection refused', 'sshd'),
        ('ssh: connect to host there port 22: Connection timed out', 'there is up'),
        ('ssh: connect to host there port 22: No route to host', 'there is up'),
        ('Host key verification failed.', 'known_hosts'),
    ],
)
def test_ssh_that_fails_before_it_logs_in_is_not_told_to_copy_keys(said, words):
    finding = doctor.unanswered(HostSpec('there', 1, False), 255, said)
    assert said in finding.message and words in finding.remedy
    assert 'ssh-copy-id' not in finding.remedy


def test_this_machine_is_examined_and_the_report_reads_the_same_in_both_forms(tmp_path):
    code, out, _ = run('doctor', '--json', '--checkpoint-dir', str(tmp_path / 'later'))
    report = json.loads(out)
    assert (code, report['ok']) == (0, True)
    by_check = {finding['check']: finding for finding in report['findings']}
    assert 'TensorFlow %s,' % tf.__version__ in by_check['versions']['message']
    assert 'Gloo' in by_check['controllers']['message']
    assert str(tmp_path) in by_check['disk']['message']
    findings = [doctor_checks.Finding(**finding) for finding in report['findings']]
    for finding in findings:
        assert finding.message in doctor.as_text(findings)


def test_a_broken_stack_is_reported_in_full_although_the_package_cannot_be_imported(tmp_path):
    (tmp_path / 'tensorflow.py').write_text('__version__ = "9.9.9"')
    path = os.pathsep.join([str(tmp_path), os.environ.get('PYTHONPATH', '')])
    code, out, err = run('doctor', '--json', PYTHONPATH=path)
    assert code == 1 and 'Traceback' not in err
    failures = {f['check'] for f in json.loads(out)['findings'] if f['verdict'] == 'failure'}
    assert failures == {'versions', 'controllers'}
    assert 'TensorFlow 9.9.9 is not supported' in out

    code, _, err = run('plan', 'model.json', PYTHONPATH=path)
    assert code == 1 and 'Traceback' not in err
    assert re.search(r'TensorFlow (1\.11\.x or 1\.6|2)\.x, but 9\.9\.9 was found', err)


def test_hosts_that_cannot_be_read_end_the_command_with_a_sentence():
    code, _, err = run('doctor', '--hosts', 'first,second')
    assert code == 2
    assert "'first' is not NAME:WORKERS" in err
