# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The kernel's account of a process's memory."""


def size(name):
    """A size of this process in bytes: `'VmRSS'` of now, `'VmHWM'` at its peak."""
    with open('/proc/self/status') as file:
        (line,) = [line for line in file if line.startswith(name + ':')]
    return int(line.split()[1]) * 1024


def reset_peak():
    """Has the peak start from what is now."""
    with open('/proc/self/clear_refs', 'w') as file:
        file.write('5')
