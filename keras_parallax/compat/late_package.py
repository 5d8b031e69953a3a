# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Classes of ours that derive from one of the Keras package that a script uses, whichever it is."""

import functools
from typing import TYPE_CHECKING, Any, Callable, Dict, Mapping, Optional

from keras_parallax.compat import keras_api
from keras_parallax.errors import PlanError
from keras_parallax.framework_types import Mixin


class LatePackage(Mixin):
    """A class whose base is looked up when an object is made, so that it fits the user's model.

    An object of such a class is one of a class of the same name, which derives from it and from the
    package's class that `base` names. `super()` calls that one's methods.

    Attributes:
        base: a function from a `KerasPackage` to a class of it.
    """

    base: Callable[[Any], Any] = staticmethod(lambda package: object)
    #: The `KerasPackage` of a class that has one.
    _package: Any = None

    if not TYPE_CHECKING:  # A type checker is to see what `__init__` of each class takes.

        def __new__(cls, *args, keras=None, **kwargs):
            """Makes an object of the class that derives from the package's."""
            made = cls if cls._package else class_of(cls, _package_named(keras))
            # Keras 2.15 looks at the arguments; others do not take them.
            make = super(LatePackage, made).__new__
            return make(made) if make is object.__new__ else make(made, *args, **kwargs)

    def get_config(self) -> Dict[str, Any]:
        """The arguments of `__init__`, as Keras writes them to a file."""
        return dict(super().get_config(), keras=self._package.name)

    @classmethod
    def from_config(
        cls, config: Mapping[str, Any], custom_objects: Optional[Dict[str, Any]] = None
    ) -> Any:
        """An object made of what `get_config` has returned."""
        config = dict(config)
        if cls._package is not None:
            # Keras reads it for a model of this package, whichever it was written for.
            config['keras'] = cls._package.name
        return cls(**config)


@functools.lru_cache(maxsize=None)
def class_of(cls: Any, package: Any) -> Any:
    """The class of the same name that derives from a `LatePackage` and a `KerasPackage`'s class."""
    bases = (cls, cls.base(package))
    attributes = {'__module__': cls.__module__, '__doc__': cls.__doc__, '_package': package}
    return type(cls.__name__, bases, attributes)


def _package_named(name: Optional[str]) -> keras_api.KerasPackage:
    if name is None:
        return keras_api.loaded_keras_packages()[-1]
    if name not in ('keras', 'tf.keras'):
        raise PlanError("keras must be 'keras' or 'tf.keras', but %r was given." % (name,))
    return keras_api.keras_package(name)
