# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""A package that a script imports later, and what is to be done then."""

import importlib.util
import sys
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from typing import Any, Callable, Optional, cast


class _Finder:
    """Finds one package as Python does, and has something done when it has been loaded.

    Args:
        name: name of the package.
        then: function of nothing.
    """

    def __init__(self, name: str, then: Callable[[], None]) -> None:
        self._name, self._then = name, then

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Optional[ModuleSpec]:
        """As Python calls it: the package's spec, or `None` for what it is not to find."""
        if name != self._name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            sys.meta_path.insert(0, self)
            return spec
        spec.loader = cast(Loader, _Loader(spec.loader, self))  # It loads as one does.
        return spec

    def loaded(self) -> None:
        """Called when the package is there."""
        self._then()

    def failed(self) -> None:
        """Called when the package could not be loaded; a script may try again."""
        sys.meta_path.insert(0, self)


class _Loader:
    """Loads as another loader does, in whose place it is for that long."""

    def __init__(self, loader: Any, finder: _Finder) -> None:
        self._loader, self._finder = loader, finder

    def create_module(self, spec: ModuleSpec) -> Any:
        return self._loader.create_module(spec)

    def exec_module(self, module: Any) -> None:
        # Whoever asks the module for its loader, to read a file beside it, gets the real one.
        module.__spec__.loader = module.__loader__ = self._loader
        try:
            self._loader.exec_module(module)
        except BaseException:
            self._finder.failed()
            raise
        self._finder.loaded()


def when_imported(name: str, then: Callable[[], None]) -> None:
    """Has a function called as soon as a package has been imported; at once if it has been.

    Args:
        name: name of the package, without a dot.
        then: function of nothing. What it raises, the import raises.
    """
    if name in sys.modules:
        then()
    else:
        sys.meta_path.insert(0, _Finder(name, then))
