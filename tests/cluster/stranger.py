# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Run on a host outside a job: tries to connect to ports of the job until a file is there.

Usage: stranger.py FILE ADDRESS,PORT...

Prints `TRIED n;` for the number of attempts, and `REACHED address,port;` for each that succeeded.
"""

import os
import socket
import sys


def main(stop, *places):
    count, reached = 0, set()
    while not os.path.exists(stop) or count < len(places):
        for place in places:
            address, _, port = place.partition(',')
            count += 1
            try:
                socket.create_connection((address, int(port)), 0.5).close()
                reached.add(place)
            # No answer; or nobody listens there for this family of addresses or this interface.
            except (socket.timeout, ConnectionRefusedError):
                pass
    for place in sorted(reached):
        print('REACHED %s;' % place)
    print('TRIED %d;' % count)


main(*sys.argv[1:])
