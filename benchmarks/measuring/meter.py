# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What a worker and its host take: bytes, processor time and memory."""

import os

import psutil


def interface():
    """The network interface that carries the job: `eth0` of an emulated host, or loopback."""
    return 'eth0' if os.path.exists('/sys/class/net/eth0/statistics') else 'lo'


def counters():
    """Bytes that this host's interface has sent and received."""
    folder = '/sys/class/net/%s/statistics/' % interface()
    found = []
    for name in ('tx_bytes', 'rx_bytes'):
        with open(folder + name) as file:
            found.append(int(file.read()))
    return found


def own_processes():
    """This process and those that it started."""
    me = psutil.Process()
    return [me] + me.children(recursive=True)


def cpu_seconds():
    """Processor time of this process and its children so far."""
    return sum(sum(process.cpu_times()[:2]) for process in own_processes())


def peak_mib():
    """The largest peak of resident memory among this process and its children."""
    peaks = []
    for process in own_processes():
        with open('/proc/%d/status' % process.pid) as file:
            line = next(line for line in file if line.startswith('VmHWM'))
        peaks.append(int(line.split()[1]) / 1024)
    return max(peaks)


def forget_peaks():
    """Lets the peaks begin anew, so that they are those of training and not of the start."""
    for process in own_processes():
        with open('/proc/%d/clear_refs' % process.pid, 'w') as file:
            file.write('5')


class Meter:
    """What the measured steps of a phase take: this host's bytes, this process's time and memory.

    Args:
        gather: function from a value to the list of all workers' values: nobody may send while
            another counts.
    """

    def __init__(self, gather):
        self._gather = gather

    def begin(self):
        """Begins to count."""
        #: The peak of resident memory until then, MiB.
        self.peak_before = peak_mib()
        forget_peaks()
        self._gather(None)
        self._bytes, self._cpu = counters(), cpu_seconds()
        self._gather(None)

    def end(self, steps):
        """What came since, a dict; bytes and processor time for each of so many steps."""
        # Everyone has ended the last step, and nobody has sent anything since.
        self._gather(None)
        after = counters()
        self._gather(None)
        return {
            'sent': (after[0] - self._bytes[0]) / steps,
            'received': (after[1] - self._bytes[1]) / steps,
            'cpu_seconds': (cpu_seconds() - self._cpu) / steps,
            'peak_mib': peak_mib(),
        }
