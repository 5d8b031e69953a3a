# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""ssh between the hosts of an emulated cluster, with keys of its own, apart from the user's."""

import os
import pwd
import shutil
import time

from cluster import namespaces
from cluster.errors import ClusterError

_LIMIT_SECONDS = 20


def command_folder(folder):
    """The folder with the `ssh` that finds the hosts: to be put in front of `PATH`."""
    return os.path.join(folder, 'bin')


def prepare(folder, addresses):
    """Makes the keys and configurations of a cluster.

    Args:
        folder: an empty or missing folder for them.
        addresses: addresses of the hosts.
    """
    os.makedirs(command_folder(folder), mode=0o700)
    for name in ('host_key', 'client_key'):
        path = os.path.join(folder, name)
        namespaces.call('ssh-keygen', '-q', '-t', 'ed25519', '-N', '', '-f', path)
    shutil.copy(os.path.join(folder, 'client_key.pub'), os.path.join(folder, 'authorized_keys'))
    key = ' '.join(read(os.path.join(folder, 'host_key.pub')).split()[:2])
    _write(folder, 'known_hosts', *('%s %s' % (address, key) for address in addresses))
    _write(
        folder,
        'ssh_config',
        'IdentityFile %s/client_key' % folder,
        'IdentitiesOnly yes',
        'UserKnownHostsFile %s/known_hosts' % folder,
        'GlobalKnownHostsFile /dev/null',
        'BatchMode yes',
        'ConnectTimeout 10',
        # Without it, ssh and so horovodrun wait for ever for a host that is cut off.
        'ServerAliveInterval 5',
        'ServerAliveCountMax 3',
        'LogLevel ERROR',
    )
    # horovodrun takes the first `ssh` on PATH and cannot be told of a configuration.
    ssh = namespaces.find('ssh')
    _write(folder, 'bin/ssh', '#!/bin/sh', 'exec %s -F %s/ssh_config "$@"' % (ssh, folder))
    os.chmod(os.path.join(folder, 'bin', 'ssh'), 0o755)
    # sshd gives up without its folder, which Debian's service makes when it starts.
    os.makedirs('/run/sshd', mode=0o755, exist_ok=True)


def write_names(folder, addresses):
    """Writes the hosts' `/etc/hosts`, this machine's with their names; returns its path."""
    names = ['%s h%d' % (address, host) for host, address in enumerate(addresses)]
    _write(folder, 'hosts', *(names + [read('/etc/hosts')]))
    return os.path.join(folder, 'hosts')


def sshd(folder, address):
    """The command that serves one host's address, a list of words; it stays in the foreground."""
    name = 'sshd-' + address
    locked = _is_locked(pwd.getpwuid(os.geteuid()).pw_name)
    _write(
        folder,
        name,
        'ListenAddress ' + address,
        'HostKey %s/host_key' % folder,
        'AuthorizedKeysFile %s/authorized_keys' % folder,
        'AuthenticationMethods publickey',
        'PermitRootLogin prohibit-password',
        # By itself, sshd turns away whoever's password is locked, also with the right key.
        'UsePAM ' + ('yes' if locked else 'no'),
        'PidFile none',
        # bash reads ~/.bashrc at a login over ssh, unless it takes itself for a shell in a shell.
        # What users have there takes time, and leaves locks behind when it is killed.
        'SetEnv SHLVL=1',
        'MaxStartups 1000',
    )
    return [namespaces.find('sshd'), '-D', '-e', '-f', os.path.join(folder, name)]


def wait_until_listening(process, log):
    """Waits until an sshd serves.

    Args:
        process: its `subprocess.Popen`.
        log: path of the file that it writes to.

    Raises:
        ClusterError: it has ended, or does not come so far.
    """
    deadline = time.monotonic() + _LIMIT_SECONDS
    while 'Server listening' not in read(log):
        if process.poll() is not None or time.monotonic() > deadline:
            raise ClusterError('sshd did not start: %s' % read(log))
        time.sleep(0.02)


def _is_locked(user):
    """Whether a user's password is locked. Python 3.13 has no module for that any more."""
    passwords = dict(line.split(':')[:2] for line in read('/etc/shadow').splitlines())
    return passwords.get(user, '').startswith('!')


def read(path):
    """What is in a text file."""
    with open(path, errors='replace') as file:
        return file.read()


def _write(folder, name, *lines):
    with open(os.path.join(folder, name), 'w') as file:
        file.write('\n'.join(lines) + '\n')
