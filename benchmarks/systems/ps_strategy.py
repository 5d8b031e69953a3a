# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""TensorFlow 2's `ParameterServerStrategy`, in the form that its tutorial shows.

A worker and a parameter server on every host, each a process with a `tf.distribute.Server`, and a
coordinator on the first (`coordinator.py`). Tables are in parts by `MinSizePartitioner`.

How it differs: it is asynchronous. A worker's gradients change the variables when they come, by the
whole rate, with no mean over workers; so what it learns is not compared. A step is as many of the
workers' steps as there are workers, whoever does them. Workers read their batches from a file.
"""

import atexit
import os
import shutil
import subprocess
import tempfile

import numpy as np
from works import stack

from systems import processes

#: Batches of each worker, which come again and again: some for warm-up, and a phase's.
BATCHES = 48


def write_batches(path, batches):
    """Writes batches, pairs of inputs and a target, one after another."""
    with open(path, 'wb') as file:
        for inputs, target in batches:
            for array in inputs + [target]:
                file.write(np.ascontiguousarray(array).tobytes())


def path_of(folder, worker):
    """The path of a worker's batches."""
    return os.path.join(folder, 'batches.%s' % worker)


def build(work, place, threads):
    """The step function; see `catalog`. Starts this host's processes too.

    The step of rank 0 returns the mean of the workers' losses. Other workers have nothing to do.
    """
    folders = place.gather(tempfile.mkdtemp() if place.rank == 0 else None)
    os.makedirs(folders[0], exist_ok=True)
    write_batches(path_of(folders[0], place.rank), work.batches(place.rank, BATCHES))
    found = place.gather(processes.free_addresses(3))
    cluster = {'chief': [found[0][2]]}
    for number, job in enumerate(('ps', 'worker')):
        cluster[job] = [addresses[number] for addresses in found]
    eager = {stack.EAGER: '1'}
    for job in ('ps', 'worker'):
        arguments = repr(cluster), job, str(place.rank), str(threads)
        processes.start('parameter_server.py', *arguments, environ=eager)
    place.gather(None)
    if place.rank:
        return lambda inputs, target: None
    atexit.register(shutil.rmtree, folders[0], ignore_errors=True)
    coordinator = processes.start(
        'coordinator.py', repr(cluster), work.name, repr(work.options), folders[0], str(threads),
        environ=eager, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip

    def step(inputs, target):
        coordinator.stdin.write(b'step\n')
        coordinator.stdin.flush()
        answer = coordinator.stdout.readline()
        if not answer:
            raise SystemExit('The coordinator has ended: exit code %r.' % coordinator.wait())
        return float(answer)

    return step
