# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What the workers of a job print, told apart by the prefixes of the launcher: files and a screen.

`horovodrun --output-filename DIR` writes files for each worker, too, but into two files each, with
a prefix that has no time from 0.28 on, and a job that is started anew writes over them. So it is
not used: the launcher puts the rank before each line it forwards, and that is read here.
"""

import datetime
import os
import re
import subprocess
import sys
import threading
import time
from typing import Any, BinaryIO, Callable, Dict, List, Optional, Sequence, Tuple

from keras_parallax.commands.failure_cause import Cause, FailureCause
from keras_parallax.commands.start_up_notes import StartUpNotes

#: What stands before a line: of Horovod 0.19.5; of 0.28.1, which leaves the time out; of Open MPI
#: with `--tag-output`, which has the number of the job too.
_PREFIX = re.compile(rb'(?:\w{3} \w{3} [ \d]\d [\d:]{8} \d{4})?\[(?:\d+,)?(\d+)\]<std(?:out|err)>:')

#: Keras 2.2.4 prints a line each time that it would draw its bar, where there is no terminal.
_BAR = re.compile(rb' *\d+/(?:\d+|Unknown) \[.*\] - ETA: ')

#: With a terminal Keras erases a bar by as many of these as it has characters.
_BACKSPACE = b'\x08'

#: How long a process that the launcher has left behind may keep the output open.
_END_SECONDS = 5


def rank_and_text(piece: bytes) -> Tuple[Optional[int], bytes]:
    """The rank that has printed a line, `None` if it is the launcher, and the line without prefix.

    Example:
        ```python
        >>> rank_and_text(b'Tue Nov 24 16:27:17 2026[1]<stdout>:a line')
        (1, b'a line')
        ```
    """
    match = _PREFIX.match(piece)
    return (int(match.group(1)), piece[match.end() :]) if match else (None, piece)


class Screen:
    """Makes the lines that stay on a screen of pieces that may be drawn over each other."""

    def __init__(self) -> None:
        self._drawn = b''

    def take(self, text: bytes) -> Optional[bytes]:
        r"""A line that stays, without its end, or `None`.

        Args:
            text: what ends with `\n` or, if the next is drawn over it, with `\r`.

        Example:
            ```python
            >>> screen = Screen()
            >>> [screen.take(text) for text in (b'half\r', b'whole\r', b'\n', b'next\n')]
            [None, None, b'whole', b'next']
            ```
        """
        if text.endswith(b'\r'):
            self._drawn = text[:-1].rstrip(_BACKSPACE) or self._drawn
            return None
        line, self._drawn = text.rstrip(b'\n') or self._drawn, b''
        return line.replace(_BACKSPACE, b'')


class RankOutput:
    """Writes a file for each worker, and shows what rank 0 prints.

    What other workers and, once a worker has printed something, the launcher print is in the files
    only, and so are the notes that `StartUpNotes` recognizes.

    Args:
        folder: where the files are, `rank-0.log` and so on, and `launcher.log`. It is made. Files
            that are there are written on.
        say: function that takes a sentence for the user.
        shows_all: whether the screen shows notes, too, and what other workers write to the standard
            error stream, after their number.

    Raises:
        OSError: the folder cannot be made, or nothing can be written there.
    """

    def __init__(self, folder: str, say: Callable[[str], None], shows_all: bool = False) -> None:
        self._folder, self._say, self._shows_all = folder, say, shows_all
        self._files: Optional[Dict[Optional[int], BinaryIO]] = {}
        self._lock = threading.Lock()
        self._threads: List[threading.Thread] = []
        self._gone: List[Any] = []
        self._cause, self._has_begun, self._is_drawing = FailureCause(), False, False
        os.makedirs(folder, exist_ok=True)
        self._file(self._files, None)

    def read(self, process: 'subprocess.Popen[bytes]', words: Sequence[str]) -> None:
        """Begins to read what a process prints, given the words of its command."""
        self._write(None, b'started: ' + ' '.join(words).encode('utf-8', 'replace'))
        self._cause, self._has_begun = FailureCause(), False
        self._threads = [
            threading.Thread(target=self._read, args=(source, shown), daemon=True)
            for source, shown in ((process.stdout, sys.stdout), (process.stderr, sys.stderr))
        ]
        for thread in self._threads:
            thread.start()

    def finish(self) -> None:
        """Waits until all is read of a process that has ended."""
        for thread in self._threads:
            thread.join(_END_SECONDS)
        if self._is_drawing and sys.stdout.isatty():
            # What comes next must not be written over a bar that is half drawn.
            self._show(sys.stdout, b'\n')

    def cause(self) -> Optional[Cause]:
        """Why the process that was read last has failed, or `None` if no line tells it."""
        with self._lock:
            return self._cause.found()

    def file_of(self, rank: Optional[int]) -> str:
        """The path of a worker's file, with `None` that of the launcher's."""
        name = 'launcher.log' if rank is None else 'rank-%d.log' % rank
        return os.path.join(self._folder, name)

    def _read(self, source: Any, shown: Any) -> None:
        streams: Dict[Optional[int], _Stream] = {}
        rest = b''
        for chunk in iter(lambda: source.read1(65536), b''):
            pieces = (rest + chunk).splitlines(True)
            rest = b'' if pieces[-1].endswith((b'\n', b'\r')) else pieces.pop()
            for piece in pieces:
                self._take(piece, streams, shown)
        if rest:
            self._take(rest, streams, shown)

    def _take(self, piece: bytes, streams: Dict[Optional[int], '_Stream'], shown: Any) -> None:
        rank, text = rank_and_text(piece)
        stream = streams.setdefault(rank, _Stream())
        on_terminal = shown.isatty()
        if _BAR.match(text):
            text = text.rstrip(b'\r\n') + b'\r'
        line = stream.screen.take(text)
        is_note = line is not None and stream.notes.take(line)
        with self._lock:
            self._has_begun = self._has_begun or rank is not None
            if line is not None:
                self._write(rank, line)
                if not is_note:
                    words = line.decode('utf-8', 'replace')
                    self._cause.take(rank, words, time.monotonic(), shown is sys.stderr)
            if not self._is_shown(rank, is_note, shown):
                return
            if rank not in (None, 0):
                self._show(shown, b'[%d] %s\n' % (rank, line) if line is not None else b'')
            elif on_terminal:
                self._show(shown, text)
            elif line is not None:
                self._show(shown, line + b'\n')

    def _is_shown(self, rank: Optional[int], is_note: bool, shown: Any) -> bool:
        if self._shows_all:
            return rank in (None, 0) or shown is sys.stderr
        return not is_note and (rank == 0 or rank is None and not self._has_begun)

    def _show(self, shown: Any, text: bytes) -> None:
        if shown in self._gone or not text:
            return
        on_terminal = shown.isatty()
        if on_terminal and self._is_drawing and shown is sys.stderr:
            text = b'\n' + text
        if on_terminal:
            self._is_drawing = not text.endswith(b'\n')
        try:
            shown.buffer.write(text)
            shown.flush()
        except BrokenPipeError:
            # As of `| head`: the files go on.
            self._gone.append(shown)

    def _write(self, rank: Optional[int], line: bytes) -> None:
        """Writes a line to the file of a worker, after the time and the rank."""
        if self._files is None:
            return
        now = datetime.datetime.now().isoformat(' ', 'milliseconds')
        name = 'launcher' if rank is None else str(rank)
        try:
            file = self._file(self._files, rank)
            file.write(('%s [%s] ' % (now, name)).encode('ascii') + line + b'\n')
            file.flush()
        except OSError as error:
            self._files = None
            self._say(
                'the output of the workers is not written any more, because of %s; the job goes on.'
                % error
            )

    def _file(self, files: Dict[Optional[int], BinaryIO], rank: Optional[int]) -> BinaryIO:
        if rank not in files:
            files[rank] = open(self.file_of(rank), 'ab')
        return files[rank]


class _Stream:
    """What is known of the lines that one process has written to one of its streams."""

    def __init__(self) -> None:
        self.screen, self.notes = Screen(), StartUpNotes()
