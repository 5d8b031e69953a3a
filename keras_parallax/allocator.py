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
import os

from keras_parallax import compat

#: Free pages may be this part of those in use, jemalloc 4's own default for each arena.
_FREE_PART = 1 / 8
#: How many calls go by before free pages are counted again: to fault all of them in takes some
#: milliseconds, which must not happen often.
_CALLS = 100
#: What a user sets himself is left alone.
_VARIABLE, _SETTING = 'JEMALLOC_MALLOC_CONF', 'lg_dirty_mult'


class Jemalloc:
    """What jemalloc's manual names, by those names.

    Args:
        control: its function `mallctl`.
    """

    def __init__(self, control):
        self._control = control

    def read(self, name, kind):
        """The value of `name`, of a type of `ctypes`."""
        value = kind()
        size = ctypes.c_size_t(ctypes.sizeof(value))
        self._call(name, ctypes.byref(value), ctypes.byref(size), None, 0)
        return value.value

    def write(self, name, value):
        """Gives `name` a value, one of a type of `ctypes`."""
        self._call(name, None, None, ctypes.byref(value), ctypes.sizeof(value))

    def do(self, name):
        """Does what `name` stands for."""
        self._call(name, None, None, None, 0)

    def _call(self, name, *args):
        code = self._control(name.encode(), *args)
        # An arena that no thread has begun yet has nothing to set: EFAULT.
        if code not in (0, errno.EFAULT):
            raise OSError(code, 'jemalloc: %s' % os.strerror(code), name)


class FreePages:
    """The free pages of TensorFlow's allocator, in this process.

    Where the allocator is not jemalloc 4, or the user has set `lg_dirty_mult` in the environment,
    nothing is done.
    """

    def __init__(self):
        self._calls, self._allocator = 0, None
        control = compat.jemalloc_control()
        if control is None or _SETTING in os.environ.get(_VARIABLE, ''):
            return
        allocator = Jemalloc(control)
        if not allocator.read('config.stats', ctypes.c_bool):
            return
        self._allocator = allocator
        # For arenas that threads begin later, and for those that there are.
        allocator.write('arenas.lg_dirty_mult', ctypes.c_ssize_t(-1))
        self._arenas = allocator.read('arenas.narenas', ctypes.c_uint)
        for arena in range(self._arenas):
            allocator.write('arena.%d.lg_dirty_mult' % arena, ctypes.c_ssize_t(-1))

    def before_call(self):
        """Called before each call of a function; gives free pages back if they are too many."""
        # At once before the first: to build a model frees more than any step does.
        if self._allocator is not None and self._calls % _CALLS == 0:
            free, used = self.counts()
            if free > _FREE_PART * used:
                self._allocator.do('arena.%d.purge' % self._arenas)
        self._calls += 1

    def counts(self):
        """The numbers of free pages and of pages in use, in all arenas."""
        self._allocator.write('epoch', ctypes.c_uint64(1))
        return tuple(
            self._allocator.read('stats.arenas.%d.%s' % (self._arenas, name), ctypes.c_size_t)
            for name in ('pdirty', 'pactive')
        )
