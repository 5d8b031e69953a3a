"""What the command of `horovodrun` tells: on which host each rank is to be.

Horovod 0.19.5 tells a rank nothing of other hosts. But the ranks on the launching host are below
`horovodrun` in the tree of processes, and `keras-parallax run` starts it.
"""

import contextlib
import os
import re
import socket

import psutil

#: Environment variable in which `keras-parallax run` hands the ranks what `hosts_of` has found.
HOSTS_VARIABLE = 'KERAS_PARALLAX_HOSTS'


PROGRAM = 'horovodrun'


def is_launcher(words):
    """Whether a command, a list of words, is `horovodrun`, as a program or a script of Python."""
    return PROGRAM in [os.path.basename(word) for word in words[:2]]


def hosts_of(words, folder, own_name):
    """The hosts that a command of `horovodrun`, a list of words, names.

    It was started in a folder on the host of `own_name`. Returns a string as `horovodrun -H` takes
    it, `'a:2,b:2'`; empty if the command names none.
    """
    text = ''
    for word, following in zip(words, words[1:] + ['']):
        option, _, value = word.partition('=')
        if option in ('-H', '--hosts'):
            text = value or following
        elif option in ('-hostfile', '--hostfile'):
            text = _read(os.path.join(folder, value or following))
        elif word.startswith('-H'):
            text = word[2:]
        if text:
            break  # Whatever follows may be an option of the user's script.
    hosts = [host.strip().rpartition(':') for host in text.split(',')]
    if not all(name and slots.isdigit() for name, _, slots in hosts):
        return ''
    return ','.join(
        '%s:%s' % (own_name if re.match(r'localhost$|127\.', name) else name, slots)
        for name, _, slots in hosts
    )


def _read(path):
    """The hosts in a file with a line such as `a slots=2` for each."""
    try:
        with open(path) as file:
            return ','.join(re.sub(r'\s+slots\s*=\s*', ':', line.strip()) for line in file)
    except OSError:
        return ''


def spread(hosts, environ):
    """The hosts' names in order of rank, as `horovodrun` gives ranks to hosts.

    Given are the hosts, as `hosts_of` returns them, and a rank's environment, as `horovodrun` sets
    it for Gloo. Returns `None` if that is not how this rank was placed.
    """
    places = []
    for number, host in enumerate(hosts.split(',') if hosts else ()):
        name, _, slots = host.rpartition(':')
        places += [(number, name)] * int(slots)
    places = places[: int(environ['HOROVOD_SIZE'])]
    numbers = [number for number, _ in places]
    own = int(environ['HOROVOD_CROSS_RANK'])
    if (
        len(places) < int(environ['HOROVOD_SIZE'])
        or numbers[int(environ['HOROVOD_RANK'])] != own
        or numbers.count(own) != int(environ['HOROVOD_LOCAL_SIZE'])
    ):
        return None
    return [name for _, name in places]


def hosts_of_ranks(environ):
    """The hosts' names in order of rank, where they can be known; otherwise `None`.

    Given is this rank's environment, as `horovodrun` sets it for Gloo.
    """
    return spread(environ.get(HOSTS_VARIABLE) or _hosts_of_ancestor(), environ)


def _hosts_of_ancestor():
    with contextlib.suppress(psutil.Error):  # One of them has ended, or is another user's.
        for process in psutil.Process().parents():
            if is_launcher(process.cmdline()):
                return hosts_of(process.cmdline(), process.cwd(), socket.gethostname())
    return ''
