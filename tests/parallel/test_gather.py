# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What workers tell each other arrives whole, however long it is."""

import launch


def test_values_of_any_length_arrive_whole_and_in_order_of_rank():
    outcome = launch.run(3, 'parallel/gather_worker.py')
    assert outcome.code == 0, outcome.output[-5000:]
    for rank in range(3):
        assert 'RANK %d OF 3 GATHERED' % rank in outcome.output
