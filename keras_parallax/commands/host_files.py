# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Files that name the hosts of a job, with the cards of each or with its number of workers."""

import re
from typing import Dict, List, NamedTuple, Sequence, Tuple

from keras_parallax.engine.job.devices import GPUS_VARIABLE

_OF_PARALLAX = re.compile(r'([^\s:=]+)\s*:\s*(.*)')
#: Options of `horovodrun`.
_SAYS_WHERE = re.compile('-np.*|--num-proc.*|-H.*|--hosts.*|--?hostfile.*')
_OF_HOROVOD = re.compile(r'([^\s:=]+)(?:\s+slots\s*=\s*(\S+))?')


class Host(NamedTuple):
    """A host of a job.

    Attributes:
        name: its name or address.
        workers: how many workers it has.
        cards: the number of each worker's card; empty if the file names none.
    """

    name: str
    workers: int
    cards: Tuple[int, ...]


def hosts_of(text: str) -> List[Host]:
    """The hosts that a resource file names, a list of `Host`s.

    A line is in the format of Parallax's resource files (`worker1: 0, 1`) or of Horovod's host
    files (`worker1 slots=2`). The former has the number of a card for each worker; workers with
    the same number share the card. `#` begins a comment.

    Args:
        text: what the file contains.

    Raises:
        ValueError: a line is in neither format, a host is named twice, some hosts have cards and
            others have none, or no host is named.

    Example:
        ```python
        >>> from keras_parallax.commands.host_files import hosts_of
        >>> [(host.name, host.workers, host.cards) for host in hosts_of('a: 2, 3')]
        [('a', 2, (2, 3))]
        ```
    """
    hosts: List[Host] = []
    for number, line in enumerate(text.splitlines(), 1):
        line = line.partition('#')[0].strip()
        if not line:
            continue
        host = _host(number, line)
        if host.name in [other.name for other in hosts]:
            raise ValueError('line %d names the host %s a second time' % (number, host.name))
        hosts.append(host)
    if not hosts:
        raise ValueError('it names no host')
    with_cards = [host.name for host in hosts if host.cards]
    if len(with_cards) not in (0, len(hosts)):
        without = next(host.name for host in hosts if not host.cards)
        raise ValueError('it names cards of %s, and none of %s' % (with_cards[0], without))
    return hosts


def _host(number: int, line: str) -> Host:
    match = _OF_PARALLAX.fullmatch(line)
    if match:
        name, words = match.group(1), match.group(2).replace(',', ' ').split()
        if not all(word.isdigit() for word in words):
            raise ValueError(
                'line %d, %r, must have numbers of cards after the colon' % (number, line)
            )
        return Host(name, max(1, len(words)), tuple(map(int, words)))
    match = _OF_HOROVOD.fullmatch(line)
    if not match or not re.fullmatch('[1-9][0-9]*', match.group(2) or '1'):
        raise ValueError(
            'line %d, %r, must be like `worker1: 0, 1` or like `worker1 slots=2`' % (number, line)
        )
    return Host(match.group(1), int(match.group(2) or 1), ())


def launcher(hosts: Sequence[Host], words: Sequence[str]) -> List[str]:
    """The command that starts a worker in each place of some hosts.

    Args:
        hosts: a list of `Host`s.
        words: the words of the command of one worker, which is run by Python if it is a script, or
            of a `horovodrun` that lacks `-np` and `-H`.

    Returns:
        A list of words.

    Raises:
        ValueError: the words say which hosts, too.
    """
    options = list(words[1:]) if words[0] == 'horovodrun' else []
    before = ''
    for word in options:
        if _SAYS_WHERE.fullmatch(word):
            raise ValueError(
                'the resource file says which hosts, so the command must not: %s' % word
            )
        # What comes after an option may be its value; what comes after that, or is Python, is run.
        if not word.startswith('-') and (not before.startswith('-') or 'python' in word):
            break
        before = word
    if words[0] != 'horovodrun':
        options = (['python'] if words[0].endswith('.py') else []) + list(words)
    places = ','.join('%s:%d' % (host.name, host.workers) for host in hosts)
    return ['horovodrun', '-np', str(sum(host.workers for host in hosts)), '-H', places] + options


def environ(hosts: Sequence[Host]) -> Dict[str, str]:
    """What the environment of a job must say of its hosts: a dict."""
    cards = [str(card) for host in hosts for card in host.cards]
    return {GPUS_VARIABLE: ','.join(cards)} if cards else {}
