"""Where the ranks of a job meet: a key-value store that `horovodrun` keeps for Gloo.

It is there from the start of a job until all ranks have found each other. Watchdogs ask it too, so
this module needs nothing but the standard library.
"""

import contextlib
import json

_ANSWER_SECONDS = 4


#: Horovod's own entries, one for each rank that has come, and ours.
_HOROVOD, _OWN = 'global_', 'parallax'


class RendezvousStore:
    """The store of this process's job.

    Args:
        environ: the process's environment, as `horovodrun` sets it for Gloo.
    """

    def __init__(self, environ):
        self._environ, self._size = environ, int(environ.get('HOROVOD_SIZE', 0))

    def announce(self, host, hosts, place=None):
        """Says that this rank has started, and what it knows of who is where.

        Args:
            host: the name of this host.
            hosts: the names of all ranks' hosts, as `launcher.hosts_of_ranks` finds them, or
                `None`.
            place: where the other watchdogs are to reach this rank's, as `Watchdog.place`.
        """
        rank, local_rank, local_size = (
            int(self._environ['HOROVOD_' + name]) for name in ('RANK', 'LOCAL_RANK', 'LOCAL_SIZE')
        )
        # horovodrun numbers the ranks of a host one after the other.
        ranks = list(range(rank - local_rank, rank - local_rank + local_size))
        words = {'host': host, 'ranks': ranks, 'hosts': hosts, 'place': place}
        # It is closed if all have met, before this module was asked.
        with contextlib.suppress(OSError):
            self._request('PUT', _OWN, rank, json.dumps(words))

    def places(self):
        """Where the watchdogs of the ranks that have started are, a dict; empty if it is closed."""
        with contextlib.suppress(OSError):
            return {rank: words['place'] for rank, words in self._announced()}
        return {}

    def note_told(self):
        """Says to those that come later that the user has been told why the job ends."""
        with contextlib.suppress(OSError):
            self._request('PUT', _OWN, 'told', 'told')

    def is_told(self):
        """Whether somebody has said so; `False` if it is closed."""
        with contextlib.suppress(OSError):
            return self._request('GET', _OWN, 'told') is not None
        return False

    def absent(self):
        """The ranks that never came, and their hosts.

        Returns:
            A dict from ranks to names of hosts; `None` is a host of which nobody knows the name. It
            is empty if all came, for then the store is closed.
        """
        try:
            ranks = range(self._size)
            missing = [rank for rank in ranks if self._request('GET', _HOROVOD, rank) is None]
            announced = self._announced()
        except OSError:
            return {}
        names = {}
        for _, words in announced:
            names.update(enumerate(words['hosts'] or ()))
        for _, words in announced:
            # A host's own name is the one by which other sentences call it.
            names.update(dict.fromkeys(words['ranks'], words['host']))
        return {rank: names.get(rank) for rank in missing}

    def _announced(self):
        texts = [(rank, self._request('GET', _OWN, rank)) for rank in range(self._size)]
        return [(rank, json.loads(text)) for rank, text in texts if text]

    def _request(self, method, scope, key, text=None):
        # Not every watchdog comes here, and the others do without the megabytes of this import.
        from http.client import HTTPConnection, HTTPException

        host = self._environ.get('HOROVOD_GLOO_RENDEZVOUS_ADDR')
        port = self._environ.get('HOROVOD_GLOO_RENDEZVOUS_PORT')
        if not (host and port):
            raise OSError('Horovod was not started with Gloo.')
        connection = HTTPConnection(host, int(port), timeout=_ANSWER_SECONDS)
        try:
            connection.request(method, '/%s/%s' % (scope, key), body=text)
            answer = connection.getresponse()
            value = answer.read().decode('utf-8', 'replace')
            return value if answer.status == 200 else None
        except HTTPException as error:
            raise OSError(str(error)) from error
        finally:
            connection.close()
