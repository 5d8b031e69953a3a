#!/usr/bin/env python3
# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Checks that every source file begins with its license; `make lint` runs it, `make format` mends.

python scripts/check_headers.py           fails where the two lines above are missing
python scripts/check_headers.py --write   writes them there
"""

import subprocess
import sys
from typing import List

HEADER = """\
# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""
#: What begins with them: Python, shell, and what is built and run by.
PATTERNS = ('*.py', '*.sh', '.ci/run', 'Dockerfile', 'Makefile')


def with_header(source: str) -> str:
    """A source that begins with the license, after the line that names its interpreter."""
    first, rest = '', source
    if source.startswith('#!'):
        first, _, rest = source.partition('\n')
        first += '\n'
    return source if rest.startswith(HEADER) else first + HEADER + rest


def sources() -> List[str]:
    """The paths of the files of the work tree that are to have a header."""
    listed = subprocess.check_output(
        ['git', 'ls-files', '-z', '--cached', '--others', '--exclude-standard', '--', *PATTERNS]
    )
    return sorted(set(listed.decode().split('\0')) - {''})


def main(arguments: List[str]) -> int:
    """Names, or mends, what has no header; the exit code."""
    lacking = 0
    for path in sources():
        with open(path, encoding='utf-8', newline='') as file:
            source = file.read()
        headed = with_header(source)
        if not source or headed == source:
            continue
        if arguments == ['--write']:
            with open(path, 'w', encoding='utf-8', newline='') as file:
                file.write(headed)
        else:
            print('%s: no license header; `make format` writes it' % path)
            lacking += 1
    return int(lacking > 0)


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
