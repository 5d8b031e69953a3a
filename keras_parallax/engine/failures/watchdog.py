# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""A small process beside each worker: says why its worker is lost, and hears why the job ends.

A process that gets SIGKILL, for instance from the kernel when memory runs out, cannot say anything,
and one that is stopped cannot even end. The watchdog is started by path, as a script with nothing
but the standard library, so that it costs a few megabytes and no import of TensorFlow.

Each watchdog has a connection to that of rank 0, the hub, on which nothing is sent while all is
well. The first reason that comes to the hub is why the job ends: the hub tells the user, unless the
rank does from which it comes, and passes it on to all. A connection that breaks is a reason, too,
and that to a host which is cut off is broken by the kernel.
"""

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from typing import IO, Any, Callable, List, Optional, cast

#: A worker says so often that it lives, all workers at the same time: each takes a third of a
#: millisecond, and a step is as long as that of the worker that was held up longest.
_BEAT_SECONDS = 4

#: After this long without a beat the watchdog looks at its rank, and then as often again.
_TICK_SECONDS = 5

#: After this long the kernel breaks the connection to a host that does not answer. It is less than
#: Gloo's timeout, so that a job ends within 30 seconds, and more than a network's hiccup.
_CUT_OFF_SECONDS = 14

#: How long a watchdog tries to reach the hub, and a worker waits for what it says.
_PATIENCE_SECONDS = 10

#: What is said of a worker, by how its watchdog or the hub finds it.
_SENTENCES = {
    'stopped': 'has been stopped for %d s (SIGSTOP or a debugger) and is killed.',
    'silent': 'has hung for %d s and is killed.',
    'ending': 'is told to end by SIGTERM, as by the launcher after Ctrl-C.',
    'out of memory': 'was killed, most likely by the kernel, which ran out of memory on that host '
    'and has killed a process; use smaller batches or tables, or fewer workers on the host.',
    'ended': 'was killed from outside or crashed; the exit status that the launcher shows, or its '
    'log has, tells how: 137 is SIGKILL, 143 SIGTERM, as after Ctrl-C or when the launcher has '
    'seen another worker fail, 139 a segmentation fault, 134 an abort.',
    'gone': 'has ended without a word (killed, out of memory, or crashed).',
    'cut off': 'does not answer (its host is down, or the network to it).',
}


class Watchdog:
    """The watchdog of this process. It ends with the process, or when it is dismissed.

    Args:
        rank: the worker that it speaks of.
        host: the name of this host.
        silence_seconds: how long the worker may be without `beat`; 0 for any time.
        stopped_seconds: how long it may be stopped (SIGSTOP, a debugger); 0 for any time.
        address: where the others are to reach it, if it is the hub.
        hub: the `place` of the hub, if it is not.

    Attributes:
        place: where the others find it, if it is the hub.
        listener: the socket at which it listens for them, if it is the hub. The watchdog has it,
            too, so that closing this one does not close it.
    """

    listener: Optional[socket.socket]
    _reason: Any

    def __init__(
        self,
        rank: int,
        host: str,
        silence_seconds: float = 0,
        stopped_seconds: float = 0,
        address: str = '',
        hub: Any = None,
    ) -> None:
        self._rank, self._name = rank, 'Rank %d on host %s' % (rank, host)
        self.listener = None
        with contextlib.suppress(OSError):  # A job goes on without.
            self.listener = _listen(address) if address and not hub else None
        shared = [self.listener.fileno()] if self.listener else []
        words = [self._name, shared, hub], [os.getpid(), silence_seconds, stopped_seconds]
        self._process = subprocess.Popen(
            [sys.executable, '-I', os.path.abspath(__file__), *map(json.dumps, words)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            pass_fds=shared,
        )
        # Both are pipes.
        self._input = cast(IO[bytes], self._process.stdin)
        self._output = cast(IO[bytes], self._process.stdout)
        self._reason, self._is_dismissed = None, False
        self._writing, self._settled = threading.Lock(), threading.Event()
        self.place = json.loads((self._output.readline() or b'null').decode())

    def attend(self, on_lost: Callable[[str, bool], None], look: Callable[[], None]) -> None:
        """Says in a thread that the worker lives, and hears there why the job ends.

        Args:
            on_lost: function that is called with a sentence about a worker that is lost, and
                whether the user has been told.
            look: function that is called before each `beat`.
        """
        threading.Thread(target=self._attend, args=[on_lost, look], daemon=True).start()

    def _attend(self, on_lost: Callable[[str, bool], None], look: Callable[[], None]) -> None:
        line = b'first'
        while line:
            seconds = _BEAT_SECONDS - time.time() % _BEAT_SECONDS
            if not select.select([self._output], [], [], seconds)[0]:
                look()
                self.beat()
                continue
            line = self._output.readline()
            self._reason = json.loads(line.decode()) if line else self._reason
            self._settled.set()
            if line and self._reason[0] is None:
                on_lost(self._reason[1], True)
        if not self._is_dismissed:
            on_lost(self._name + ' has lost its watchdog, which was killed.', False)

    def beat(self) -> None:
        """Says that the worker lives. To be called several times in `silence_seconds`."""
        self._send('beat')

    def dismiss(self) -> None:
        """Says that the worker is about to end, and has said why if there is something to say."""
        self._is_dismissed = True
        if self.listener is not None:
            self.listener.close()
        self._send('bye')

    def report(self, predicate: str) -> None:
        """Has the job end, and the user told why: what there is to say of this worker."""
        self._send([None, '%s %s' % (self._name, predicate)])

    def claim(self, text: str) -> Any:
        """Asks whether this worker is to tell the user why the job ends. To be called in `attend`.

        Args:
            text: what it is about to tell.

        Returns:
            What the user is told, as a list: the worker that tells, `None` for the hub, and its
            text.
        """
        self._send([self._rank, text])
        self._settled.wait(_PATIENCE_SECONDS)
        return self._reason or [self._rank, text]

    def _send(self, message: Any) -> None:
        with contextlib.suppress(BrokenPipeError), self._writing:  # It may have been killed.
            _write(self._input.fileno(), message)


def _listen(address: str) -> socket.socket:
    listener = socket.socket()
    try:
        listener.bind((address, 0))
        listener.listen(128)
    except OSError:
        listener.close()
        raise
    return listener


def _write(descriptor: int, message: Any) -> None:
    os.write(descriptor, json.dumps(message).encode() + b'\n')


class _Process:
    """What the watchdog of a worker with a name does; the hub has a listener, the others its place.

    It hears of its rank, by descriptor 0, and of the hub or, if it is that, of all others. Each
    says in lines of JSON that it lives, or ends well, or why the job is to end: the worker that
    tells the user, or `None`, and what that is told.
    """

    _reason: Any
    _hub: Optional[int]
    _listener: Optional[socket.socket]
    place: Any

    def __init__(self, name: str, listeners: List[int], hub: Any) -> None:
        # Those of whom it is to hear, by descriptor, and what has come of a line.
        self._names = {0: name}
        self._received = {0: b''}
        self._reason = self._hub = self._listener = self.place = None
        self._kills = _out_of_memory_kills()
        with contextlib.suppress(OSError):  # A job goes on without.
            if hub:
                connection = socket.create_connection(hub[:2], _PATIENCE_SECONDS)
                connection.settimeout(None)
                self._hub = self._connected(connection)
                self._names[self._hub] = hub[3]
                _write(self._hub, [hub[2], name])
        for descriptor in listeners:
            self._listener = socket.socket(fileno=descriptor)
            self.place = [*self._listener.getsockname(), uuid.uuid4().hex, name]

    def _connected(self, connection: socket.socket) -> int:
        for level, option, value in (
            (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
            (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _CUT_OFF_SECONDS // 2),
            (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 2),
            (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _CUT_OFF_SECONDS * 1000),
        ):
            connection.setsockopt(level, option, value)
        descriptor = connection.detach()
        self._received[descriptor] = b''
        return descriptor

    def run(self, process: int, silence_seconds: float, stopped_seconds: float) -> None:
        """Watches its parent process until that has ended and nobody needs this hub."""
        # Ctrl-C in a terminal is for the job, which the watchdog outlives by a moment. But
        # horovodrun may end it first: where the shell has become the worker, it takes it for that.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, lambda *arguments: self._lose(0, 'ending'))
        _write(1, self.place)
        tick = min(limit for limit in (_TICK_SECONDS, silence_seconds, stopped_seconds) if limit)
        # Ticks are counted, not seconds: a host that was suspended, or a group of processes that
        # was stopped together with its watchdog, must not find itself overdue.
        silent, stopped = 0.0, -tick
        while self._is_needed():
            sources: List[Any] = [*self._received] + [self._listener] * bool(self._listener)
            ready = select.select(sources, [], [], tick if 0 in self._names else None)[0]
            for source in ready:
                self._receive(source)
            if ready:
                # Who speaks is neither.
                silent, stopped = (0, -tick) if 0 in ready else (silent, stopped)
                continue
            silent, stopped = silent + tick, stopped + tick if _is_stopped(process) else -tick
            if os.getppid() != process:
                self._close(0)  # A fork of it that reads data, say, keeps the descriptor open.
                continue
            for state, seconds, limit in (
                ('stopped', stopped, stopped_seconds),
                ('silent', silent, silence_seconds),
            ):
                if 0 < limit <= seconds:
                    self._lose(0, state, seconds)
                    os.kill(process, signal.SIGKILL)
                    break

    def _is_needed(self) -> bool:
        if 0 in self._names or self._names and not (self._hub and self._reason):
            return True
        # Whoever has come meanwhile, on a busy host, is heard before the hub ends.
        sources: List[Any] = [*self._received, self._listener]
        return self._listener is not None and bool(select.select(sources, [], [], 0)[0])

    def _receive(self, source: Any) -> None:
        """Takes what has come on a descriptor, or a new connection."""
        if self._listener is not None and source is self._listener:
            with contextlib.suppress(OSError):  # It may be gone.
                self._connected(source.accept()[0])
        if source not in self._received:
            return
        received, state = b'', 'gone'
        try:
            received = os.read(source, 65536)
        except OSError as error:
            state = 'gone' if isinstance(error, ConnectionResetError) else 'cut off'
        *lines, self._received[source] = (self._received[source] + received).split(b'\n')
        try:
            for line in lines:
                self._hear(source, json.loads(line.decode()))
        except (ValueError, TypeError):
            received = b''  # A stranger says what is no message, or does not know the key.
        if not received or not (lines or source in self._names):
            self._close(source, state)

    def _hear(self, source: int, message: Any) -> None:
        if source not in self._names:
            key, name = message
            if key != self.place[2]:
                raise ValueError(key)
            self._names[source] = name
            if self._reason:
                _write(source, self._reason)
        elif message == 'bye':
            del self._names[source]
            if self._hub:
                self._give('bye')
                del self._names[self._hub]
        elif source == self._hub:
            self._settle(*message)
        elif message == 'beat':
            # Whom the kernel kills while the worker lives is another, perhaps of another job.
            self._kills = _out_of_memory_kills()
        else:
            self._give(message)

    def _close(self, source: int, state: str = 'gone') -> None:
        """Takes note that nothing more will come on a descriptor."""
        del self._received[source]
        os.close(source)
        if source == self._hub:
            self._hub = None
        if source == 0:
            state = 'out of memory' if _out_of_memory_kills() > self._kills else 'ended'
        if source in self._names:
            self._lose(source, state)
            del self._names[source]

    def _lose(self, source: int, state: str, *seconds: float) -> None:
        if source in self._names:
            self._give([None, '%s %s' % (self._names[source], _SENTENCES[state] % seconds)])

    def _give(self, message: Any) -> None:
        if self._hub:
            with contextlib.suppress(OSError):  # That the hub is gone will be heard.
                _write(self._hub, message)
        else:
            self._settle(*message)

    def _settle(self, teller: Optional[int], text: str) -> None:
        if self._reason is not None:
            return
        self._reason = [teller, text]
        with contextlib.suppress(OSError):  # The launcher may have gone, and the terminal.
            if teller is None and not self._hub:
                print(text, file=sys.stderr, flush=True)
        for source in set(self._names) - {self._hub}:
            with contextlib.suppress(OSError):  # It may have ended.
                _write(source or 1, self._reason)


def _out_of_memory_kills() -> int:
    """How many processes the kernel has killed for want of memory since the host started."""
    with open('/proc/vmstat') as file:
        return int(dict(line.split() for line in file).get('oom_kill', 0))


def _is_stopped(process: int) -> bool:
    with contextlib.suppress(FileNotFoundError), open('/proc/%d/stat' % process) as file:
        return file.read().rpartition(')')[2].split()[0] in 'Tt'
    return False  # The process has ended.


if __name__ == '__main__':
    _Process(*json.loads(sys.argv[1])).run(*json.loads(sys.argv[2]))
