# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Network namespaces by the name of their owner, and the removal of those whose owner is gone.

An owner's name is locked for as long as its process lives, whatever ends it. So whoever gets the
lock of a name may remove all that is there under it.
"""

import contextlib
import errno
import fcntl
import os
import shutil
import signal
import subprocess
import threading
import time

from cluster import cpu_shares
from cluster.errors import ClusterError

#: What the names of all owners begin with, and no other namespace's on this machine.
PREFIX = 'parallax-cluster-'
#: A folder for each owner, and its lock. On a file system that a reboot empties.
FOLDER = '/run/parallax-clusters'
#: Processes that were killed are gone well before that.
_SETTLE_SECONDS = 20
_HELD_BACK = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
#: `ip`, `tc` and `sshd` are not on every user's PATH.
_PATH = os.environ.get('PATH', '') + ':/usr/sbin:/sbin'


def remove_leftovers():
    """Removes all that owners have left behind whose process is gone."""
    os.makedirs(FOLDER, mode=0o755, exist_ok=True)
    # The namespaces of owner x are x-h0, x-h1 and x-switch.
    owners = {_owner(namespace) for namespace in names() if namespace.startswith(PREFIX)}
    owners |= {file for file in os.listdir(FOLDER) if not file.endswith('.lock')}
    for owner in owners:
        held = lock(owner)
        if held is not None:
            remove(owner)
            os.close(held)


def _owner(namespace):
    return namespace.rpartition('-')[0]


def find(program):
    """The path of a program, a string."""
    path = shutil.which(program, path=_PATH)
    if path is None:
        raise ClusterError(
            'An emulated cluster needs %s; on Debian: scripts/make_env.sh --cluster' % program
        )
    return path


def call(*words, check=True):
    """Runs a program and returns what it prints."""
    result = subprocess.run(
        [find(words[0])] + list(words[1:]),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        universal_newlines=True,
    )
    if check and result.returncode:
        raise ClusterError('%s: %s' % (' '.join(words), result.stderr.strip()))
    return result.stdout


def inside(namespace, *words, check=True):
    """Runs a program in a namespace and returns what it prints."""
    return call('ip', 'netns', 'exec', namespace, *words, check=check)


def silence_ipv6(namespace):
    """Keeps IPv6 and its chatter, which the counters would count, out of a new namespace."""
    inside(
        namespace, 'sh', '-c',
        'for file in /proc/sys/net/ipv6/conf/*/disable_ipv6; do '
        '[ ! -e "$file" ] || echo 1 >"$file"; done',
    )  # fmt: skip


def names():
    """The names of all namespaces of this machine."""
    return [line.split()[0] for line in call('ip', 'netns', 'list').splitlines()]


def lock(owner):
    """An open file that holds an owner's lock until it is closed, or `None` if it is held."""
    file = os.open(folder(owner) + '.lock', os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return file
    except OSError as error:
        os.close(file)
        if error.errno not in (errno.EAGAIN, errno.EACCES):
            raise
        return None


def folder(owner):
    """The path of an owner's folder."""
    return os.path.join(FOLDER, owner)


def pids_in(namespace):
    """The numbers of the processes in a namespace, a set."""
    if namespace not in names():
        return set()
    return set(map(int, call('ip', 'netns', 'pids', namespace).split()))


def kill(pids):
    """Kills the processes that `pids()` lists until it lists none."""
    deadline = time.monotonic() + _SETTLE_SECONDS
    while True:
        found = pids()
        if not found:
            return
        if time.monotonic() > deadline:
            raise ClusterError('Processes %s cannot be ended.' % sorted(found))
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)


def remove(owner):
    """Removes an owner's namespaces, all that is in them, and folder, whatever there is."""
    for namespace in names():
        if _owner(namespace) == owner:
            kill(lambda name=namespace: pids_in(name) | cpu_shares.pids(name))
            cpu_shares.remove(namespace)
            call('ip', 'netns', 'delete', namespace)
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(folder(owner))


@contextlib.contextmanager
def signals_unwind():
    """Has SIGTERM and SIGHUP unwind `with` blocks as Ctrl-C does, and then act as themselves."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came = []

    def unwind(number, frame):
        del frame
        came.append(number)
        raise KeyboardInterrupt

    # Whoever has a handler already, or ignores them, has a reason; so does an outer cluster.
    numbers = [n for n in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(n) == signal.SIG_DFL]
    for number in numbers:
        signal.signal(number, unwind)
    try:
        yield
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)
        if came:
            os.kill(os.getpid(), came[0])


@contextlib.contextmanager
def signals_held_back():
    """Keeps an impatient second Ctrl-C from breaking off the cleaning."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _HELD_BACK)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
