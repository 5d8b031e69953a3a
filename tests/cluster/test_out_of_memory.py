"""A worker that the kernel really kills for want of memory; needs root, to make a control group."""

import os
import re
import uuid

import launch
import pytest

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
