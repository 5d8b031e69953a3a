#!/usr/bin/env python3
# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Does what a page tells its reader to do, and writes what the commands print into the page.

`make docs-outputs` runs it, once on each stack. `tests/cluster/test_guide.py` does the same and
writes nothing. The fenced blocks of a page are read like this:

- a block with a title, as in ```` ```python title="train.py" ````, is a file; a `diff` with a title
  changes that file. Blocks of code without a title are only looked at;
- `bash` is run, line by line;
- `text` is a part of what the last command printed, one line below the other;
- `**Keras 3**` or `**Keras 2**` on a line of its own says for which Keras the next block is;
- `<!-- fails -->` says that the next command fails, `<!-- kill rank 1 at: TEXT -->` that a worker
  is killed when that text is printed.

Numbers with a decimal point, and those of time, may differ from one run to the next. All else has
to be printed as the page has it.
"""

import argparse
import contextlib
import datetime
import os
import re
import subprocess
import sys
import tempfile
from typing import Dict, Iterable, Iterator, List, NamedTuple, Optional, Tuple

import psutil

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, 'benchmarks'))  # For `cluster`.

#: The Keras of this Python's stack: Keras 3 needs Python 3.10.
KERAS = 3 if sys.version_info >= (3, 10) else 2

#: The addresses that pages give to two hosts.
HOSTS = ('10.77.0.1', '10.77.0.2')

_FENCE = re.compile(r'```(\w+)(?: title="([^"]+)")?$')
_LABEL = re.compile(r'\*\*Keras ([23])\*\*$')
_REMARK = re.compile(r'<!-- (fails|kill rank 1 at: (.+)) -->$')
_COLOR = re.compile(r'\x1b\[[0-9;]*m')
#: What differs from one run to the next: the folder of a job, and numbers as above.
_VARYING = re.compile(
    r'\d{4}-\d\d-\d\d-\d{6}|\d[\d,]*\.\d+(?:e[+-]?\d+)?|\d[\d,]*(?= ?[mun]?s\b)|\b[mun]?s(?=/)|'
    r'(?<=[\d.]) ?[mun]?s\b|(?<=on host )\S+|\d[\d,]*(?= \w+/s\b)'
)
_MACHINE = re.compile(r'(on )\d+ cores(,? on )\d+\s\w+ \d{4}')


class Page(NamedTuple):
    """A page.

    Attributes:
        path: its path from the project's folder.
        keras: for which Keras blocks without a label are; `None` for both.
        is_course: whether each block builds on those before; otherwise only commands are run whose
            output is shown, each by itself.
    """

    path: str
    keras: Optional[int]
    is_course: bool


PAGES = [Page('docs/guide.md', None, True), Page('examples/README.md', 2, False)]


class Block(NamedTuple):
    """A fenced block of a page.

    Attributes:
        step: the heading above it.
        keras: for which Keras it is; `None` for both.
        language, title: what stands behind its fence.
        remark: the comment before it, or ''.
        start: the number of its first line in the page, from 0.
        lines: its lines.
    """

    step: str
    keras: Optional[int]
    language: str
    title: Optional[str]
    remark: str
    start: int
    lines: List[str]


class PageError(Exception):
    """A page and what happens are not the same."""


def read(page: Page) -> List[str]:
    """The lines of a page."""
    with open(os.path.join(ROOT, page.path), encoding='utf-8') as file:
        return file.read().splitlines()


def blocks(lines: List[str], keras: Optional[int] = None) -> List[Block]:
    """The blocks of a page.

    Args:
        lines: the page.
        keras: for which Keras blocks without a label are.
    """
    found, step, label, remark, number = [], '', None, '', 0
    while number < len(lines):
        line = lines[number]
        fence = _FENCE.match(line)
        if line.startswith('## '):
            step = line[3:]
        elif _LABEL.match(line):
            label = int(_LABEL.match(line).group(1))  # type: ignore[union-attr]
        elif _REMARK.match(line):
            remark = _REMARK.match(line).group(1)  # type: ignore[union-attr]
        elif fence:
            end = lines.index('```', number)
            inside = lines[number + 1 : end]
            of_keras = label or (3 if 'keras3/' in ''.join(inside) else keras)
            if fence.group(1) == 'text' and not label and found:
                of_keras = found[-1].keras
            found.append(
                Block(step, of_keras, fence.group(1), fence.group(2), remark, number + 1, inside)
            )
            label, remark, number = None, '', end
        number += 1
    return found


def patched(source: str, diff: List[str]) -> str:
    """A file after the changes of a diff, whose parts are separated by empty lines."""
    file = source.splitlines()
    for part in '\n'.join(diff).split('\n\n'):
        lines = part.splitlines()
        old = [line[1:] for line in lines if line[0] in ' -']
        new = [line[1:] for line in lines if line[0] in ' +']
        places = [place for place in range(len(file)) if file[place : place + len(old)] == old]
        if len(places) != 1:
            raise PageError('These lines are %d times in the file: %s' % (len(places), old))
        file[places[0] : places[0] + len(old)] = new
    return '\n'.join(file) + '\n'


def _form(line: str) -> str:
    """What of a line is the same in each run."""
    return re.sub(r'-+', '-', re.sub(r' +', ' ', _VARYING.sub('#', line))).strip()


def refreshed(shown: List[str], output: str) -> List[str]:
    """The lines of a command's output that a page shows, as they are now.

    Args:
        shown: as the page has them.
        output: what the command has printed.

    Raises:
        PageError: a line was not printed after the one before.
    """
    printed = [_COLOR.sub('', line).rstrip() for line in re.split(r'[\r\n]+', output)]
    now, place = [], 0
    for line in shown:
        forms = [_form(candidate) for candidate in printed[place:]]
        if _form(line) not in forms:
            raise PageError('Not printed, or not in this order: %r. Printed:\n%s' % (line, output))
        place += forms.index(_form(line)) + 1
        now.append(printed[place - 1])
    return now


class Reader:
    """Somebody who does what a page says, in a folder.

    Args:
        folder: the folder.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._closing = contextlib.ExitStack()
        self._cluster = None

    def __enter__(self) -> 'Reader':
        return self

    def __exit__(self, *error: object) -> None:
        self._closing.close()

    def write(self, block: Block) -> None:
        """Makes or changes a file."""
        path = os.path.join(self._folder, block.title or '')
        text = '\n'.join(block.lines) + '\n'
        if block.language == 'diff':
            with open(path, encoding='utf-8') as file:
                text = patched(file.read(), block.lines)
        for given, address in self._addresses().items() if HOSTS[0] in text else ():
            text = text.replace(given, address)
        with open(path, 'w', encoding='utf-8') as file:
            file.write(text)

    def run(self, lines: List[str], remark: str = '') -> str:
        """Runs commands; returns what they print.

        Args:
            lines: the commands.
            remark: as a `Block` has it.

        Raises:
            PageError: a command fails, or one that is to fail does not.
        """
        output = ''
        for line in lines:
            on_hosts = HOSTS[0] in line
            code, printed = self._run(line, remark, on_hosts)
            if (code != 0) != (remark == 'fails'):
                raise PageError('%s ended with exit code %d:\n%s' % (line, code, printed))
            output += printed
        return output

    def _addresses(self) -> Dict[str, str]:
        """The hosts' addresses, by those that the page gives them."""
        if self._cluster is None:
            from cluster.emulated_cluster import EmulatedCluster  # Needs root.

            self._cluster = self._closing.enter_context(EmulatedCluster(len(HOSTS)))
        return {given: self._cluster.address(host) for host, given in enumerate(HOSTS)}

    def _run(self, line: str, remark: str, on_hosts: bool) -> Tuple[int, str]:
        addresses = self._addresses() if on_hosts else {}
        for given, address in addresses.items():
            line = line.replace(given, address)
        # As it is where the environment is activated.
        path = os.pathsep.join([os.path.dirname(sys.executable), os.environ['PATH']])
        environ = dict(os.environ, PATH=path, TF_CPP_MIN_LOG_LEVEL='2', PYTHONUNBUFFERED='1')
        command = ['bash', '-c', 'cd "$0" && ' + line, self._folder]
        if self._cluster is not None and on_hosts:
            command, environ = self._cluster.command(0, command), self._cluster.environ(environ)
        process = subprocess.Popen(
            command,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        trigger, output = remark.partition('kill rank 1 at: ')[2], ''
        for encoded in process.stdout or ():
            part = encoded.decode('utf-8', 'replace')
            output += part
            if trigger and trigger in part:
                _worker(process.pid, '1').kill()
                trigger = ''
        code = process.wait()
        for given, address in addresses.items():
            output = output.replace(address, given)
        return code, output


def _worker(launcher: int, rank: str) -> psutil.Process:
    """The process of a worker that a launcher has started."""
    for process in psutil.Process(launcher).children(recursive=True):
        with contextlib.suppress(psutil.Error):
            is_script = process.cmdline()[1:] == ['train.py']
            if is_script and process.environ().get('HOROVOD_RANK') == rank:
                return process
    raise PageError('No worker of rank %s runs train.py.' % rank)


def follow(
    reader: Reader, course: Iterable[Block], put_off: Iterable[str] = ()
) -> Iterator[Tuple[Block, List[str]]]:
    """Does what the blocks of a course say.

    Args:
        reader: who does it.
        course: the blocks, of one Keras.
        put_off: beginnings of steps whose jobs are not run before a later step starts the same
            command, which then counts for both.

    Yields:
        Each block of output, and its lines as they are now.

    Raises:
        PageError: the page is wrong.
    """
    waiting: List[Block] = []
    output: Optional[str] = ''
    for block in course:
        if block.title:
            reader.write(block)
        elif block.language == 'bash' and _is_job(block) and block.step.startswith(tuple(put_off)):
            output = None
            waiting.append(block)
        elif block.language == 'bash':
            same = [one for one in waiting if one.lines[:1] == block.lines[:1]]
            also = [line for one in same for line in one.lines[1:]] if same else []
            output = reader.run(block.lines[:1] + also + block.lines[1:], block.remark)
            if same:
                yield from ((one, refreshed(one.lines, output)) for one in waiting if _is_text(one))
                waiting = []
        elif _is_text(block) and output is None:
            waiting.append(block)
        elif _is_text(block):
            yield block, refreshed(block.lines, output or '')
    if waiting:
        raise PageError('Put off, and not run: %s' % waiting[0].lines)


def _is_job(block: Block) -> bool:
    return block.lines[0].startswith('keras-parallax run -np 2 train.py')


def _is_text(block: Block) -> bool:
    return block.language == 'text'


def course_of(page: Page, lines: List[str], keras: int) -> List[Block]:
    """The blocks of a page that somebody with a Keras follows."""
    return [block for block in blocks(lines, page.keras) if block.keras in (None, keras)]


def _shown(course: List[Block]) -> Iterator[Block]:
    """The commands whose output is shown, and what is shown."""
    for block, following in zip(course, course[1:]):
        if (block.language, following.language) == ('bash', 'text'):
            yield block
            yield following


def rewrite(page: Page, only: Optional[str]) -> None:
    """Writes what the commands of a page print now into the page."""
    lines = read(page)
    course = course_of(page, lines, KERAS)
    if not page.is_course:
        course = [block for block in _shown(course) if only is None or only in block.step]
    with tempfile.TemporaryDirectory() as folder:
        os.symlink(os.path.join(ROOT, 'examples'), os.path.join(folder, 'examples'))
        with Reader(folder) as reader:
            new = list(follow(reader, course))
    # From the end, so that no number of a line that comes later changes.
    for block, now in reversed(new):
        lines[block.start : block.start + len(block.lines)] = now
    today = datetime.date.today()
    told = r'\g<1>%d cores\g<2>%d %s' % (os.cpu_count() or 1, today.day, today.strftime('%B %Y'))
    text = _MACHINE.sub(told, '\n'.join(lines) + '\n', count=1)
    with open(os.path.join(ROOT, page.path), 'w', encoding='utf-8') as file:
        file.write(text)
    print('%s: %d outputs of Keras %d.' % (page.path, len(new), KERAS))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or '').split('\n')[0])
    parser.add_argument('pages', nargs='*', help='paths; by default all that there are')
    parser.add_argument('--only', help='a part of the heading of the examples to run')
    arguments = parser.parse_args()
    for page in PAGES:
        if not arguments.pages or page.path in arguments.pages:
            rewrite(page, arguments.only)


if __name__ == '__main__':
    main()
