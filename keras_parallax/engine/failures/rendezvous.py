# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Where workers meet before Horovod does: a key-value store that `horovodrun` keeps for Gloo.

It is there from the start of a job; Horovod 0.19.5 closes it when its own workers have met. Both
functions raise an `OSError` where it is not, and take the process's environment as `horovodrun`
sets it.
"""

import json
from http.client import HTTPConnection, HTTPException
from typing import Any, Dict, Iterable, Mapping, Optional


def leave(environ: Mapping[str, str], rank: int, entry: Any) -> None:
    """Leaves something for the other workers, anything that `json.dumps` takes."""
    _request(environ, 'PUT', rank, json.dumps(entry))


def entries(environ: Mapping[str, str], ranks: Iterable[int]) -> Dict[int, Any]:
    """What these workers have left, a dict from those that have."""
    texts = {rank: _request(environ, 'GET', rank) for rank in ranks}
    return {rank: json.loads(text) for rank, text in texts.items() if text}


def _request(
    environ: Mapping[str, str], method: str, rank: int, text: Optional[str] = None
) -> Optional[str]:
    host, port = (environ.get('HOROVOD_GLOO_RENDEZVOUS_' + name) for name in ('ADDR', 'PORT'))
    if not (host and port):
        raise OSError('Horovod was not started with Gloo.')
    connection = HTTPConnection(host, int(port), timeout=4)
    try:
        connection.request(method, '/parallax/%d' % rank, body=text)
        answer = connection.getresponse()
        value = answer.read().decode('utf-8', 'replace')
        return value if answer.status == 200 else None
    except HTTPException as error:
        raise OSError(str(error)) from error
    finally:
        connection.close()
