# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Names of variables, by which Horovod pairs them between workers."""

import launch


def test_global_variables_are_alike_on_ranks_that_own_different_shards():
    outcome = launch.run(3, 'parallel/names_worker.py', limit=120)
    assert outcome.code == 0, outcome.output
    told = [line for line in outcome.output.splitlines() if 'SAME' in line]
    assert len(told) == 3, outcome.output
    # The dense variables' slots are among them: the workers do not agree on nothing.
    assert all('out/kernel' in line for line in told)
