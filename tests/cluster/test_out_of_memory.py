# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""A worker that the kernel really kills for want of memory; needs root, to make a control group."""

import os
import re
import subprocess
import sys
import uuid

import launch
import pytest

from keras_parallax.engine.failures.watchdog import __file__ as WATCHDOG

LIMIT_BYTES = 2**27
LIMIT_SECONDS = 240


@pytest.fixture
def memory_group():
    """The file to which a process writes its number to get little memory."""
    # Version 1 has a tree for memory; version 2 has one tree, which may be able to limit it.
    for tree, limit in (
        ('/sys/fs/cgroup/memory', 'memory.limit_in_bytes'),
        ('/sys/fs/cgroup', 'memory.max'),
    ):
        folder = os.path.join(tree, 'parallax-test-%s' % uuid.uuid4().hex[:8])
        try:
            os.mkdir(folder)
        except OSError:
            continue
        try:
            if os.path.exists(os.path.join(folder, limit)):
                with open(os.path.join(folder, limit), 'w') as file:
                    file.write(str(LIMIT_BYTES))
                yield os.path.join(folder, 'cgroup.procs')
                return
        finally:
            os.rmdir(folder)
    pytest.skip('No control group that limits memory can be made on this machine.')


def test_a_worker_that_the_kernel_kills_for_memory_is_named_with_its_host(memory_group):
    outcome = launch.run(
        2,
        'parallel/failure_worker.py',
        'killed_for_memory',
        environ={'MEMORY_GROUP': memory_group},
        limit=LIMIT_SECONDS,
    )
    assert outcome.code not in (0, None), outcome.output
    said = r'<stderr>:Rank 1 on host \S+ was killed, most likely by the kernel, which ran out'
    assert len(re.findall(said, outcome.output)) == 1, outcome.output
    assert 'Process 1 exit with status code 137' in outcome.output
    assert len(re.findall(r'<stderr>:.*[Rr]ank \d+ on host', outcome.output)) == 1, outcome.output


#: A watched process beside another, which the kernel kills for want of memory; then it is killed.
RANK = """
import os, subprocess, sys, threading
sys.path.append(os.path.dirname(sys.argv[1]))
from watchdog import Watchdog

watchdog = Watchdog(3, 'gpu-7', 60)
other = subprocess.run([sys.executable, '-c', sys.argv[2], sys.argv[3]])
assert other.returncode == -9, other
if sys.argv[4] == 'lives':
    beats = threading.Semaphore(0)
    watchdog.attend(None, beats.release)
    # The second comes after the first has been said.
    assert beats.acquire(timeout=60) and beats.acquire(timeout=60)
os.kill(os.getpid(), 9)
"""
OTHER = """
import os, sys
with open(sys.argv[1], 'w') as file:
    file.write(str(os.getpid()))
held = []
while True:
    held.append(bytearray(b'1' * 2**20))
"""


@pytest.mark.parametrize(
    'then, said',
    [
        ('ends', 'was killed, most likely by the kernel, which ran out of memory'),
        ('lives', 'was killed from outside or crashed'),
    ],
)
def test_a_rank_that_lived_on_after_the_kernel_had_killed_is_not_said_to_be_that_one(
    memory_group, then, said
):
    ended = subprocess.run(
        [sys.executable, '-c', RANK, WATCHDOG, OTHER, memory_group, then],
        stderr=subprocess.PIPE,
        universal_newlines=True,
        timeout=LIMIT_SECONDS,
    )
    assert ended.returncode == -9, ended.stderr
    assert ended.stderr.startswith('Rank 3 on host gpu-7 ' + said), ended.stderr
