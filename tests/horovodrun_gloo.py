# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""`horovodrun`, but that Horovod has Gloo is not looked up, for which it loads TensorFlow.

That takes 0.7 s of processor with Horovod 0.19.5 and more with newer ones, at each start. What the
examples and hosts are started with is `horovodrun` itself (`parallel/test_example.py`, `cluster/`).
"""

import importlib
import sys


def _runner():
    try:
        return importlib.import_module('horovod.runner.launch')
    except ImportError:  # Horovod 0.19.5.
        return importlib.import_module('horovod.run.runner')


# Each process that the launcher spawns imports this file anew, under another name.
if __name__ == '__main__':
    runner = _runner()
    runner.gloo_built = lambda verbose=False: True
    sys.exit(runner.run_commandline())
