"""Sees to it that the user is told once why a job ends: the guards of the job agree on who does it.

The guard of rank 0 listens, and the others are connected to it. The first that has something to
tell is the one; all others learn that it has been told. Who cannot reach the guard of rank 0 tells
the user itself, better twice than not at all, unless it only offers to. Before the ranks have met,
the place where they meet stands in for it, see `rendezvous.claim`. A guard has nothing but the
standard library, so this module needs no more.
"""

import contextlib
import os
import select
import socket
import sys
import time

#: What a rank says to its guard, and a guard to that of rank 0. A sentence may follow `TELL`, and
#: `OFFER`, by which a rank asks that would leave it to others if there is nobody to ask.
BEAT, DISMISS, MEET, OFFER, TELL, TOLD = 'beat', 'dismiss', 'meet', 'offer', 'tell', 'told'


#: Answers to `TELL`. The guard of rank 0 says the second to all others as soon as it is true.
YOU, DONE = 'you', 'done'


LONGEST_LINE = 4096


#: How long to wait for the guard of rank 0, which does nothing that lasts.
_ANSWER_SECONDS = 5


_TICK_SECONDS = 0.5


class Lines:
    """What comes from a file descriptor, cut into lines."""

    def __init__(self, number):
        self._number, self._rest = number, b''

    def read(self):
        """The lines that have come, a list; `None` at the end, or if a line has none."""
        try:
            received = os.read(self._number, 65536)
        except OSError:
            received = b''
        *lines, self._rest = (self._rest + received).split(b'\n')
        if not received or len(self._rest) > LONGEST_LINE:
            return None
        return [line.decode('utf-8', 'replace') for line in lines]


def _send(where, line):
    """Sends a line to a socket; whether that went well."""
    try:
        where.sendall((line + '\n').encode())
        return True
    except OSError:
        return False


def _say(text):
    """Tells the user; whether that went well: the launcher may have gone, and the terminal."""
    try:
        sys.stderr.write(text + '\n')
        sys.stderr.flush()
        return True
    except OSError:
        return False


class ReporterElection:
    """Sees to it that the user is told once: the side of guard 0, and that of the other guards.

    Args:
        rank: the rank of this guard.
        listener: the socket at which the other guards arrive; `None` if this is not guard 0.
        claim: function that asks at the place where the ranks meet, as `rendezvous.claim`.
    """

    def __init__(self, rank, listener, claim):
        self._rank, self._listener, self._claim = rank, listener, claim
        self._key, self._told = None, False
        # From sockets to what comes on them. Who has not said the key is a stranger.
        self._strangers, self._others, self._first = {}, {}, {}

    def sockets(self):
        """The sockets on which something may come, a list."""
        listener = [self._listener] if self._listener else []
        return listener + list(self._strangers) + list(self._others) + list(self._first)

    def meet(self, address, port, key):
        """Takes note of where guard 0 is, as `Watchdog.meet` takes it."""
        self._key = key
        if self._listener is None:
            with contextlib.suppress(OSError):
                first = socket.create_connection((address, int(port)), _ANSWER_SECONDS)
                first.sendall((key + '\n').encode())
                self._first[first] = Lines(first.fileno())

    def receive(self, ready):
        """Takes what has come on a socket."""
        if ready in self._first:
            self._hear()
        elif ready in self._strangers:
            self._admit(ready)
        elif ready in self._others:
            self._answer(ready)
        elif ready is self._listener:
            connection = ready.accept()[0]
            connection.settimeout(_ANSWER_SECONDS)
            self._strangers[connection] = Lines(connection.fileno())

    def tell(self, text='', alone=True):
        """Whether the user has been told, or is by another; if not, who asks is to do it.

        Args:
            text: a sentence, which is told if none has been.
            alone: whether who asks is to do it if nobody else can be asked.
        """
        answer = DONE if self._told else self._ask(text)
        if answer == DONE or answer is None and not alone:
            return True
        if text and not _say(text):
            return False
        self._mark()
        return bool(text)

    def _mark(self, asker=None):
        """Takes note that the user has been told, or is by who asked, and says so to the others."""
        self._told = True
        for other in self._others:
            if other is not asker:
                _send(other, DONE)
        for first in self._first:
            _send(first, TOLD)

    def _ask(self, text):
        """What the other guards answer, `YOU` or `DONE`; `None` if none does."""
        for first in list(self._first):
            _send(first, ('%s %s' % (TELL, text)).strip())
            deadline = time.monotonic() + _ANSWER_SECONDS
            while not self._told and first in self._first and time.monotonic() < deadline:
                if select.select([first], [], [], _TICK_SECONDS)[0] and YOU in self._hear():
                    return YOU
            return DONE if self._told else None
        if self._others:
            return YOU
        try:
            self._told = not self._claim(self._rank)
        except OSError:
            return None
        return DONE if self._told else YOU

    def _hear(self):
        """What guard 0 has sent, a list of lines."""
        for first, lines in list(self._first.items()):
            said = lines.read()
            if said is None:
                del self._first[first]
                first.close()
                return []
            self._told = self._told or DONE in said
            return said

    def _admit(self, stranger):
        lines = self._strangers.pop(stranger)
        said = lines.read()
        if said == []:
            self._strangers[stranger] = lines
        elif said and said[0] == self._key:
            self._others[stranger] = lines
            if self._told:
                _send(stranger, DONE)
            self._obey(stranger, said[1:])
        else:
            stranger.close()

    def _answer(self, other):
        said = self._others[other].read()
        if said is None:
            del self._others[other]
            other.close()
        else:
            self._obey(other, said)

    def _obey(self, other, said):
        for line in said:
            word, _, text = line.partition(' ')
            if word == TOLD:
                self._mark(other)
            elif word == TELL and (self._told or text and _say(text)):
                self._mark()
            elif word == TELL:
                # Who has a sentence for which nothing could be heard here says whether it was.
                _send(other, YOU)
                if not text:
                    self._mark(other)
