# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Run by `horovodrun`: runs life cycles on two workers, of which rank 0 writes what they note.

Usage: life_cycle_worker.py PACKAGE FOLDER CASE...
"""

import os
import sys
import traceback

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir))
import life_cycles  # noqa: E402

from keras_parallax.engine.job import job  # noqa: E402


def main(package, folder, names):
    for name in names:
        case = life_cycles.CASES[name]
        try:
            strategy = life_cycles.STRATEGIES[case.strategy]
            notes = life_cycles.run(case, package, folder, life_cycles.RANKS, strategy)
            if job.current().rank == 0:
                np.savez(os.path.join(folder, name + '.npz'), *notes)
        except Exception:
            with open(os.path.join(folder, name + '.error'), 'a') as file:
                file.write(traceback.format_exc())
            # The other worker may wait for this one, so no case can follow.
            raise


main(sys.argv[1], sys.argv[2], sys.argv[3:])
