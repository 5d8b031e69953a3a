# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Facts about a host, collected by any Python, with what it lacks among them."""

import inspect
import json
import socket
import subprocess
import sys

import pytest
from frameworks import tf

from keras_parallax.commands import host_facts


def test_the_facts_of_this_host_are_plain_data(tmpdir):
    script = tmpdir.join('train.py')
    script.write('pass')
    facts = host_facts.collect(str(tmpdir), [str(script), str(tmpdir.join('none.py'))])
    assert json.loads(json.dumps(facts)) == facts
    assert facts['tensorflow'] == tf.__version__ and facts['problems'] == {}
    assert len(facts['files'][str(script)]) == 64
    assert facts['files'][str(tmpdir.join('none.py'))] is None
    assert facts['disk']['writable'] and facts['disk']['free'] > 0
    assert facts['began'] <= facts['ended']


def test_a_folder_that_is_not_there_yet_has_the_room_of_the_one_above_it(tmpdir):
    disk = host_facts.collect(str(tmpdir.join('not', 'yet')), [])['disk']
    assert disk['folder'] == str(tmpdir.join('not', 'yet')) and disk['writable']


def test_a_python_without_any_package_answers_with_what_it_lacks():
    text = inspect.getsource(host_facts)
    # Isolated, and without the folder of packages.
    answer = subprocess.check_output(
        [sys.executable, '-I', '-S', '-c', text, 'facts', '{"disk": ".", "files": []}'],
        universal_newlines=True,
    )
    facts = json.loads(answer.splitlines()[-1])
    for name in ('tensorflow', 'keras', 'horovod', 'interfaces'):
        assert facts[name] is None
        assert facts['problems'][name].startswith('ModuleNotFoundError: No module named')
    assert facts['code'] is None


def test_two_files_are_the_same_if_their_text_is(tmpdir):
    first, second, other = (tmpdir.join(name) for name in ('first', 'second', 'other'))
    first.write('same'), second.write('same'), other.write('else')
    digests = [host_facts._digest([str(path)], str(path)) for path in (first, second, other)]
    assert digests[0] == digests[1] != digests[2]


@pytest.mark.parametrize('listens', [True, False])
def test_whether_a_port_can_be_reached(listens):
    with socket.socket() as server:
        server.bind(('127.0.0.1', 0))
        if listens:
            server.listen(1)
        place = '127.0.0.1:%d' % server.getsockname()[1]
        problem = host_facts.connect([place])[place]
    assert problem is None if listens else 'refused' in problem
