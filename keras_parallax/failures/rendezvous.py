"""The place where the ranks of a job meet: a key-value store that `horovodrun` keeps for Gloo.

It is there from the start of a job until all ranks have found each other. The guards ask it too, so
this module needs nothing but the standard library.
"""

import json
import time

_ANSWER_SECONDS = 4


#: How long others may take to say that they have something to tell as well.
_CLAIM_SECONDS = 1


#: Horovod's own entries, one for each rank that has come, and ours.
_HOROVOD, _OWN = 'global_', 'parallax'


class RendezvousStore:
    """The store of this process's job.

    Args:
        environ: the process's environment, as `horovodrun` sets it for Gloo.
    """

    def __init__(self, environ):
        self._host = environ.get('HOROVOD_GLOO_RENDEZVOUS_ADDR')
        self._port = environ.get('HOROVOD_GLOO_RENDEZVOUS_PORT')

    def get(self, scope, key):
        """The text that somebody has put there, or `None`.

        Raises:
            OSError: the store is closed, or there is none.
        """
        return self._request('GET', scope, key)

    def put(self, scope, key, text):
        """Puts a text there.

        Raises:
            OSError: the store is closed, or there is none.
        """
        self._request('PUT', scope, key, text)

    def _request(self, method, scope, key, text=None):
        # Not every guard comes here, and the others do without the megabytes of this import.
        from http.client import HTTPConnection, HTTPException

        if not (self._host and self._port):
            raise OSError('Horovod was not started with Gloo.')
        connection = HTTPConnection(self._host, int(self._port), timeout=_ANSWER_SECONDS)
        try:
            connection.request(method, '/%s/%s' % (scope, key), body=text)
            answer = connection.getresponse()
            found = answer.read().decode('utf-8', 'replace')
            return found if answer.status == 200 else None
        except HTTPException as error:
            raise OSError(str(error)) from error
        finally:
            connection.close()


def claim(place, rank):
    """Asks to be the one who tells the user why the job ends, before all ranks have met.

    Args:
        place: the `RendezvousStore`.
        rank: who has something to tell.

    Returns:
        `False` if another has told it, or is about to: of those who ask at once, the lowest rank.

    Raises:
        OSError: it is closed, or cannot be reached.
    """
    if place.get(_OWN, 'told') is not None:
        return False
    place.put(_OWN, 'claim-%d' % rank, 'claim')
    time.sleep(_CLAIM_SECONDS)
    before = ['told'] + ['claim-%d' % each for each in range(rank)]
    if any(place.get(_OWN, key) is not None for key in before):
        return False
    place.put(_OWN, 'told', 'told')
    return True


def announce(place, environ, host, hosts):
    """Says that this rank has started, and what it knows of who is where.

    Args:
        place: the `RendezvousStore`.
        environ: the process's environment, as `horovodrun` sets it for Gloo.
        host: the name of this host.
        hosts: the names of all ranks' hosts, as `launcher.hosts_of_ranks` finds them, or `None`.
    """
    # horovodrun numbers the ranks of a host one after the other.
    first = int(environ['HOROVOD_RANK']) - int(environ['HOROVOD_LOCAL_RANK'])
    ranks = list(range(first, first + int(environ['HOROVOD_LOCAL_SIZE'])))
    said = json.dumps({'host': host, 'ranks': ranks, 'hosts': hosts})
    try:
        place.put(_OWN, environ['HOROVOD_RANK'], said)
    except OSError:
        pass  # All have met, before this module was asked.


def absent(place, size):
    """The ranks that never came, and their hosts.

    Args:
        place: the `RendezvousStore`.
        size: the number of ranks of the job.

    Returns:
        A dict from ranks to names of hosts; `None` is a host of which nobody knows the name. It is
        empty if all came, for then the place is closed.
    """
    try:
        missing = [rank for rank in range(size) if place.get(_HOROVOD, rank) is None]
        said = [place.get(_OWN, rank) for rank in range(size)]
    except OSError:
        return {}
    said = [json.loads(each) for each in said if each]
    names = {}
    for each in said:
        names.update(enumerate(each['hosts'] or ()))
    for each in said:
        # A host's own name is the one by which other sentences call it.
        names.update(dict.fromkeys(each['ranks'], each['host']))
    return {rank: names.get(rank) for rank in missing}
