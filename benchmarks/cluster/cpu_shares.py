# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""How much processor each emulated host has: a control group of the kernel for every host.

A group has the name of its host's network namespace and exists only while that does, so that
whoever removes the namespace removes the group. Both versions of control groups will do.
"""

import contextlib
import math
import os
from typing import NamedTuple

from cluster.errors import ClusterError

#: Short, so that a host that has used up its share does not wait long for the next.
PERIOD_MICROSECONDS = 10000
#: The kernel takes no quota below this; a smaller share has a longer period instead.
_SMALLEST_QUOTA_MICROSECONDS = 1000
#: With its share of the kernel's own default period, a tenth of a second.
SMALLEST_SHARE = 0.01


class Mount(NamedTuple):
    """Where groups are made: the folder, and the version of control groups, 1 or 2."""

    folder: str
    version: int


def mount_in(table):
    """Finds where groups for processors are made.

    Args:
        table: what is in `/proc/mounts`.

    Returns:
        A `Mount`, or `None`. Version 1 counts where it has the processors; it has them alone then.
    """
    second = None
    for line in table.splitlines():
        _, folder, kind, options = line.split()[:4]
        if kind == 'cgroup' and 'cpu' in options.split(','):
            return Mount(folder, 1)
        if kind == 'cgroup2':
            second = second or Mount(folder, 2)
    return second


def period_of(cores):
    """In how many microseconds a group gets its share of `cores` once; `None` is no limit."""
    if cores is None:
        return PERIOD_MICROSECONDS
    return max(PERIOD_MICROSECONDS, math.ceil(_SMALLEST_QUOTA_MICROSECONDS / cores))


def settings(version, cores):
    """What to write into a group's files, a dict, for a share of `cores` or `None` for no limit."""
    period = period_of(cores)
    if version == 2:
        quota = 'max' if cores is None else '%d' % round(cores * period)
        return {'cpu.max': '%s %d' % (quota, period)}
    quota = -1 if cores is None else round(cores * period)
    return {'cpu.cfs_period_us': '%d' % period, 'cpu.cfs_quota_us': '%d' % quota}


def make(name):
    """Makes a group, without a limit as yet.

    Raises:
        ClusterError: the machine has no control groups for processors, or lets nobody make one.
    """
    mount = _mount()
    if mount is None:
        raise ClusterError(
            'cores_per_host needs control groups for processors, but neither a cgroup mount with '
            '"cpu" nor cgroup2 is in /proc/mounts. Mount one, or leave cores_per_host at None.'
        )
    try:
        if mount.version == 2:
            _write(os.path.join(mount.folder, 'cgroup.subtree_control'), '+cpu')
        os.mkdir(os.path.join(mount.folder, name))
    except OSError as error:
        raise ClusterError(
            'cores_per_host needs a control group below %s, which cannot be made here: %s. '
            'Run it where root may make control groups, or leave cores_per_host at None.'
            % (mount.folder, error)
        ) from error
    limit(name, None)


def limit(name, cores):
    """Sets how many cores the processes of a group have together; `None` sets no limit.

    Raises:
        ClusterError: `cores` is no share.
    """
    if cores is not None and not cores >= SMALLEST_SHARE:
        raise ClusterError(
            'cores_per_host is %g or more, or None, not %r.' % (SMALLEST_SHARE, cores)
        )
    mount = _mount()
    for file, text in settings(mount.version, cores).items():
        _write(os.path.join(mount.folder, name, file), text)


def joining(name):
    """What is put in front of a command's words to have it, and all it starts, in a group."""
    return ['sh', '-c', 'echo $$ >"$0" && exec "$@"', _processes_file(name)]


def pids(name):
    """The numbers of the processes in a group, a set; an empty one if there is no group."""
    if _mount() is None:
        return set()
    with contextlib.suppress(FileNotFoundError), open(_processes_file(name)) as file:
        return set(map(int, file.read().split()))
    return set()


def remove(name):
    """Removes a group without processes, if there is one."""
    if _mount() is not None:
        with contextlib.suppress(FileNotFoundError):
            os.rmdir(os.path.dirname(_processes_file(name)))


def periods(name):
    """How many periods a group has run in so far, and in how many it used up its share: a pair."""
    with open(os.path.join(os.path.dirname(_processes_file(name)), 'cpu.stat')) as file:
        found = dict(line.split() for line in file)
    return int(found['nr_periods']), int(found['nr_throttled'])


def _processes_file(name):
    return os.path.join(_mount().folder, name, 'cgroup.procs')


def _mount():
    with open('/proc/mounts') as file:
        return mount_in(file.read())


def _write(path, text):
    with open(path, 'w') as file:
        file.write(text)
