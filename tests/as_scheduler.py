# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Starts workers on this host as Slurm's `srun` or an indexed Job of Kubernetes does, and waits.

Usage: as_scheduler.py slurm|kubernetes RANKS COMMAND...

Its exit code is the first that is not 0. It ends no worker because another one has failed. The
variables are those that Slurm 22.05 was seen to set.
"""

import os
import socket
import subprocess
import sys


def free_port():
    """A port that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(('', 0))
        return listener.getsockname()[1]


def variables(scheduler, rank, ranks, port):
    """What the scheduler, or the user's manifest, sets for a worker."""
    meeting = {'HOROVOD_GLOO_RENDEZVOUS_PORT': port}
    if scheduler == 'slurm':
        found = {
            'SLURM_PROCID': rank,
            'SLURM_LOCALID': rank,
            'SLURM_NODEID': 0,
            'SLURM_STEP_NUM_TASKS': ranks,
            'SLURM_STEP_TASKS_PER_NODE': ranks,
            'SLURM_STEP_NODELIST': 'localhost',
            'SLURM_JOB_ID': 7,
            'SLURM_STEP_ID': 0,
        }
    else:
        meeting['HOROVOD_GLOO_RENDEZVOUS_ADDR'] = 'localhost'
        found = {'JOB_COMPLETION_INDEX': rank, 'HOROVOD_SIZE': ranks, 'HOROVOD_GLOO_IFACE': 'lo'}
    return {name: str(value) for name, value in dict(found, **meeting).items()}


def own_address():
    """The address by which other hosts reach this one, or `None`; nothing is sent to find it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(('192.0.2.1', 9))
        except OSError:  # There is no network.
            return None
        return probe.getsockname()[0]


def in_a_pod(command):
    """A command in a pod, whose name leads to its address; as root alone.

    Horovod 0.28.1 connects workers on several hosts by their names, and that of this machine may
    lead to a loopback's address. Here the name is the address.
    """
    address = own_address()
    if os.geteuid() or address is None:
        return list(command)
    naming = 'hostname "$0" && exec "$@"'
    return ['unshare', '--uts', 'sh', '-c', naming, address] + list(command)


def main(scheduler, ranks, *command):
    port = free_port()
    command = in_a_pod(command) if scheduler == 'kubernetes' else command
    processes = [
        subprocess.Popen(
            command, env=dict(os.environ, **variables(scheduler, rank, int(ranks), port))
        )
        for rank in range(int(ranks))
    ]
    codes = [process.wait() for process in processes]
    return next(filter(None, codes), 0)


if __name__ == '__main__':
    sys.exit(main(*sys.argv[1:]))
