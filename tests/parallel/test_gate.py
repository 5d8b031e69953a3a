"""No dense variable is written before the whole backward pass has read it."""

import re

import launch
from frameworks import KERAS_PACKAGES, TF2


def test_a_step_writes_dense_variables_after_all_its_reads_of_them():
    outcome = launch.run(2, 'parallel/gate_worker.py', limit=120)
    assert outcome.code == 0, outcome.output
    counts = re.findall(r'WRITES (\d+) READS (\d+)', outcome.output)
    # Two layers with a kernel and a bias: each is written once, and read by the forward pass, by
    # its update (that of Keras 2.15 is one operation) and, the kernels, by the backward pass.
    assert len(counts) == len(KERAS_PACKAGES), outcome.output
    assert all(int(writes) == 4 and int(reads) >= (6 if TF2 else 10) for writes, reads in counts), (
        counts
    )
