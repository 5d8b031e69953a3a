"""Runs a command and prints what it prints, without horovodrun's `Tue Nov 24 ... 2026[0]<stdout>:`.

    python examples/without_prefix.py horovodrun -np 2 -H localhost:2 python examples/lm1b.py

horovodrun has no option for it. Lines of other workers than 0 keep theirs. Where the output is
no terminal, a line that is drawn again and again comes once, as it is in the end.
"""

import re
import signal
import subprocess
import sys

# Horovod 0.28.1 leaves the time out.
_STAMP = rb'(?:\w{3} \w{3} [ \d]\d [\d:]{8} \d{4})?\[%s\]<std(?:out|err)>:'
_LEFT_OUT = re.compile(_STAMP % rb'\d+' + rb'Using TensorFlow backend\.\n|' + _STAMP % rb'0')


def main(command):
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    # Ctrl-C reaches the command too, which may have something to say yet.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: process.terminate())
    on_terminal, rest = sys.stdout.isatty(), b''
    for chunk in iter(lambda: process.stdout.read1(65536), b''):
        lines = (rest + chunk).splitlines(True)
        rest = b'' if lines[-1].endswith((b'\n', b'\r')) else lines.pop()
        show(lines, on_terminal)
    show([rest], on_terminal)
    code = process.wait()
    return code if code >= 0 else 128 - code


def show(lines, on_terminal):
    for line in lines:
        if on_terminal or not line.endswith(b'\r'):
            sys.stdout.buffer.write(_LEFT_OUT.sub(b'', line))
    sys.stdout.buffer.flush()


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
