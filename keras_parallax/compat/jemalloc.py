# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Keeps the pages that a step frees for the next step.

TensorFlow 1.11 allocates with jemalloc 4, which gives an arena's free pages back to the kernel as
soon as they are more than an eighth of the pages that the arena has in use. Threads have arenas by
chance: where a step's rows lie in another than the tables do, all that a step frees is given back,
and the next step waits for the kernel to find as many pages and fill them with zeros. That was so
in half of the processes that train a table of 793,471 x 512, and took them a third of each step
(`benchmarks/one_process.py`). Here the eighth is one of all arenas together.
"""

import ctypes
import errno
import functools
import os
from typing import Any, Callable, Optional, Tuple

from keras_parallax.compat.tensorflow_api import (
    tf,
)

#: Free pages may be this part of those in use, jemalloc 4's own default for each arena.
_FREE_PART = 1 / 8


#: How many steps go by before too many are given back again: to fault all of them in takes some
#: milliseconds, which must not happen often.
_CALLS = 100


#: More than this and than what is in use does not wait for that, in bytes: each thread's arena may
#: keep what a step needs.
_MUCH = 256 * 2**20


#: What a user sets himself is left alone.
_VARIABLE, _SETTING = 'JEMALLOC_MALLOC_CONF', 'lg_dirty_mult'


class Jemalloc:
    """What jemalloc's manual names, by those names.

    Args:
        control: its function `mallctl`.
    """

    def __init__(self, control: Callable[..., int]) -> None:
        self._control = control

    def read(self, name: str, kind: Any) -> Any:
        """The value of `name`, of a type of `ctypes`."""
        value = kind()
        size = ctypes.c_size_t(ctypes.sizeof(value))
        self._call(name, ctypes.byref(value), ctypes.byref(size), None, 0)
        return value.value

    def write(self, name: str, value: Any) -> None:
        """Gives `name` a value, one of a type of `ctypes`."""
        self._call(name, None, None, ctypes.byref(value), ctypes.sizeof(value))

    def do(self, name: str) -> None:
        """Does what `name` stands for."""
        self._call(name, None, None, None, 0)

    def _call(self, name: str, *args: Any) -> None:
        code = self._control(name.encode(), *args)
        # An arena that no thread has begun yet has nothing to set: EFAULT.
        if code not in (0, errno.EFAULT):
            raise OSError(code, 'jemalloc: %s' % os.strerror(code), name)


class FreePages:
    """The free pages of TensorFlow's allocator, in this process, which has one of these.

    Where the allocator is not jemalloc 4, or the user has set `lg_dirty_mult` in the environment,
    nothing is done.
    """

    def __init__(self) -> None:
        self._calls, self._kept, self._has_allocator = 0, False, False
        control = jemalloc_control()
        if control is None or _SETTING in os.environ.get(_VARIABLE, ''):
            return
        allocator = Jemalloc(control)
        if not allocator.read('config.stats', ctypes.c_bool):
            return
        self._allocator, self._has_allocator = allocator, True
        self._default = allocator.read('arenas.' + _SETTING, ctypes.c_ssize_t)
        self._arenas = allocator.read('arenas.narenas', ctypes.c_uint)

    def keep(self) -> None:
        """Keeps free pages from now on; called before each step, for the next ones."""
        if not self._has_allocator:
            return
        if not self._kept:
            # To build a model frees more than any step does.
            self._purge()
            self._set(-1)
            self._kept = True
        self._calls += 1
        free, used = self.counts()
        soon = self._calls < _CALLS and free <= max(used, _MUCH)
        if free > _FREE_PART * used and not soon:
            self._purge()

    def bound(self) -> None:
        """Gives back what is too much, if pages are kept; called before what is no step."""
        if self._kept:
            self.keep()

    def give_back(self) -> None:
        """Leaves free pages to jemalloc until the next step; called before rows are moved.

        To move rows block by block is to take no more memory than a block, and each arena might
        keep one.
        """
        if self._kept:
            self._set(self._default)
            self._kept = False

    def counts(self) -> Tuple[int, int]:
        """What is free and what is in use, in all arenas, in bytes."""
        self._allocator.write('epoch', ctypes.c_uint64(1))
        page = self._allocator.read('arenas.page', ctypes.c_size_t)
        names = ['stats.arenas.%d.%s' % (self._arenas, name) for name in ('pdirty', 'pactive')]
        dirty, active = (self._allocator.read(name, ctypes.c_size_t) for name in names)
        return page * dirty, page * active

    def _purge(self) -> None:
        self._allocator.do('arena.%d.purge' % self._arenas)
        self._calls = 0

    def _set(self, value: int) -> None:
        # For arenas that threads begin later, and for those that there are.
        self._allocator.write('arenas.' + _SETTING, ctypes.c_ssize_t(value))
        for arena in range(self._arenas):
            self._allocator.write('arena.%d.%s' % (arena, _SETTING), ctypes.c_ssize_t(value))


@functools.lru_cache(maxsize=None)
def free_pages() -> FreePages:
    """The `FreePages` of this process."""
    return FreePages()


def jemalloc_control() -> Optional[Callable[..., int]]:
    """The function `mallctl` of TensorFlow's allocator, or `None` if that is not jemalloc 4.

    It is in the wheels of TF 1.11 for Linux (proven by `tests/unit/compat/test_jemalloc.py`).
    """
    path = os.path.join(tf.sysconfig.get_lib(), 'libtensorflow_framework.so')
    return getattr(ctypes.CDLL(path), 'je_mallctl', None) if os.path.exists(path) else None
