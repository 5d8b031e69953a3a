"""Sees to it that the user is told once why a job ends: its watchdogs agree on which rank does it.

The watchdog of the lowest rank that can be reached decides: the first that asks it tells, and it
says to all others that the user has been told. Who can reach no lower one decides itself, for
better twice than not at all. A watchdog has nothing but the standard library, so this module needs
no more.
"""

import contextlib
import json
import select
import socket
import sys
import uuid

#: How long to wait for another watchdog, which does nothing that lasts.
_ANSWER_SECONDS = 4


#: The same, where there is nothing to be answered.
_SPREAD_SECONDS = 1


_LONGEST_MESSAGE = 4096


def encoded(message):
    """A message, anything that `json.dumps` takes, as a line of bytes."""
    return json.dumps(message).encode() + b'\n'


def _say(text):
    """Tells the user; whether that went well: the launcher may have gone, and the terminal."""
    try:
        sys.stderr.write(text + '\n')
        sys.stderr.flush()
        return True
    except OSError:
        return False


class ReporterElection:
    """The side of one watchdog.

    Args:
        rank: its rank.
        address: where the others are to reach it; empty if they are not to.
        store: the `RendezvousStore`, which serves before `meet` has been called.

    Attributes:
        place: its address and port, and a word that only the watchdogs of this job know; or `None`.
    """

    def __init__(self, rank, address, store):
        self._rank, self._store = rank, store
        self._has_met, self._places, self._is_told = False, {}, False
        # Addresses of hosts that cannot be reached.
        self._cut_off = set()
        # Connections of others, and what has come on them.
        self._questions = {}
        self.place, self._listener = None, socket.socket()
        with contextlib.suppress(OSError):  # A job goes on without.
            if address:
                self._listener.bind((address, 0))
                self._listener.listen(128)
                self._listener.setblocking(False)
                self.place = [address, self._listener.getsockname()[1], uuid.uuid4().hex]

    def sources(self):
        """The sockets on which something may come, a list."""
        return [self._listener] * bool(self.place) + list(self._questions)

    def meet(self, places):
        """Takes note of where the watchdogs are, a dict from ranks to their `place`."""
        self._has_met, self._places = True, places

    def tell(self, text=''):
        """Whether the user has been told, or is by another; if not, who asks is to do it.

        Args:
            text: what there is to tell. It is told if nothing has been, where it can be heard.
        """
        if not (self._has_met or self._is_told):
            self._is_told, self._places = self._store.is_told(), self._store.places()
        for rank in range(self._rank) if self._places and not self._is_told else ():
            answer = self._send(rank, 'tell', text)
            if answer is not None:
                self._is_told = answer
                break
        else:
            self._catch_up()
        is_told = self._is_told or text != '' and _say(text)
        self._note(is_told or text == '')
        return is_told

    def receive(self, source):
        """Takes what has come on one of `sources`."""
        if source is self._listener:
            with contextlib.suppress(OSError):  # It may have come before, or be gone.
                connection = source.accept()[0]
                connection.settimeout(_ANSWER_SECONDS)
                self._questions[connection] = b''
        elif source in self._questions:
            self._read(source)

    def _read(self, source):
        received = b''
        with contextlib.suppress(OSError):
            received = source.recv(_LONGEST_MESSAGE)
        question = self._questions[source] = self._questions[source] + received
        if received and not question.endswith(b'\n') and len(question) < _LONGEST_MESSAGE:
            return
        del self._questions[source]
        # A stranger does not know the key, or says what is no message.
        with source, contextlib.suppress(OSError, ValueError, TypeError):
            key, word, text = json.loads(question.decode())
            if key == self.place[2] and word == 'told':
                self._is_told = True
            elif key == self.place[2]:
                is_told = self._is_told or text != '' and _say(text)
                source.sendall(encoded(is_told))
                self._note(is_told or text == '')

    def _note(self, is_told):
        """Takes note that the user has been told, and says so to the others."""
        if is_told and not self._is_told:
            self._is_told = True
            # This watchdog may end before they ask.
            for rank in self._places:
                self._send(rank, 'told')
            if not self._has_met:
                self._store.note_told()

    def _catch_up(self):
        """Takes what has come already, for one that has ended may have said something."""
        ready = self._rank and self._places
        while ready and not self._is_told:
            ready = select.select(self.sources(), [], [], _SPREAD_SECONDS)[0]
            for source in ready:
                self.receive(source)

    def _send(self, rank, word, text=''):
        """The answer of another watchdog; `None` if there is none, or none is to be waited for."""
        address, port, key = self._places.get(rank) or (None, 0, '')
        if rank == self._rank or address is None or address in self._cut_off:
            return None
        is_answered = word != 'told'
        try:
            seconds = _ANSWER_SECONDS if is_answered else _SPREAD_SECONDS
            connection = socket.create_connection((address, port), seconds)
        except ConnectionRefusedError:
            return None  # It has ended.
        except OSError:
            self._cut_off.add(address)
            return None
        with connection, contextlib.suppress(OSError, ValueError):
            connection.sendall(encoded([key, word, text]))
            if is_answered:
                return json.loads(connection.makefile().readline())
        return None
