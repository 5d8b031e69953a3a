# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""One thread at a time changes a graph.

A thread of a script may read a weight or predict while another trains. What a session runs is made
to use the shards of tables first, which builds operations; so do the first step, and one whose
tables move. TensorFlow 1.11 allows one thread at a time to do so.
"""

import contextlib
import threading
from typing import Iterator

from keras_parallax.framework_types import Graph


class GraphLock:
    """The lock of a graph. A thread that holds it may take it again.

    Whoever runs a session takes it for the preparations, and not for the run. Whoever builds a step
    holds it across collective calls: none of them waits for another thread of the script.
    """

    def __init__(self) -> None:
        self._lock, self._lent = threading.RLock(), threading.local()

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """While open, no other thread changes the graph."""
        if getattr(self._lent, 'value', False):
            yield
            return
        with self._lock:
            yield

    @contextlib.contextmanager
    def lent(self) -> Iterator[None]:
        """While open, the calling thread need not wait for the lock.

        For a thread of ours that acts for the one that holds it, which waits meanwhile.
        """
        self._lent.value = True
        try:
            yield
        finally:
            self._lent.value = False


def lock_of(graph: Graph) -> GraphLock:
    """The `GraphLock` of a graph."""
    with _making:
        if not hasattr(graph, '_parallax_lock'):
            graph._parallax_lock = GraphLock()
        return graph._parallax_lock


_making = threading.Lock()
