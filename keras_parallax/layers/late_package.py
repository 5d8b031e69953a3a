"""Layers that are of one Keras package or the other, whichever a script uses."""

import functools

from keras_parallax.compat import keras_api
from keras_parallax.errors import PlanError


class LateLayer:
    """A layer whose base class is looked up when it is made, so that it fits into the user's model.

    An object of such a class is one of a class of the same name, which derives from it and from the
    package's layer that `base` names. `super()` calls that one's methods.

    Attributes:
        base: the name of the package's layer.
    """

    base = None
    #: The `KerasPackage` of a class that has one.
    _package = None

    def __new__(cls, *args, keras=None, **kwargs):
        """Makes an object of the class that derives from the package's layer."""
        made = cls if cls._package else class_of(cls, _package_named(keras))
        # Keras 2.15 looks at the arguments; others do not take them.
        make = super(LateLayer, made).__new__
        return make(made) if make is object.__new__ else make(made, *args, **kwargs)

    def __call__(self, inputs, *args, **kwargs):
        """Calls the layer on tensors of its package's models.

        Args:
            inputs: a tensor, or a list of tensors.
            *args: as Keras's layers take them.
            **kwargs: as Keras's layers take them.

        Returns:
            A tensor.

        Raises:
            PlanError: a tensor is of the other package.
        """
        for tensor in inputs if isinstance(inputs, (list, tuple)) else [inputs]:
            package = keras_api.package_of_tensor(tensor)
            if package is not None and package.name != self._package.name:
                raise PlanError(
                    'The layer %s is one of %s, but it was called on a tensor of %s; make it with '
                    'keras=%r.' % (self.name, self._package.name, package.name, package.name)
                )
        return super().__call__(inputs, *args, **kwargs)

    def get_config(self):
        """The arguments of `__init__`, as Keras writes them to a file."""
        return dict(super().get_config(), keras=self._package.name)

    @classmethod
    def from_config(cls, config):
        """A layer made of what `get_config` has returned."""
        config = dict(config)
        if cls._package is not None:
            # Keras reads it for a model of this package, whichever it was written for.
            config['keras'] = cls._package.name
        return cls(**config)


@functools.lru_cache(maxsize=None)
def class_of(cls, package):
    """The class of the same name that derives from a `LateLayer` and a `KerasPackage`'s layer."""
    bases = (cls, getattr(package.module.layers, cls.base))
    attributes = {'__module__': cls.__module__, '__doc__': cls.__doc__, '_package': package}
    return type(cls.__name__, bases, attributes)


def _package_named(name):
    if name is None:
        return keras_api.loaded_keras_packages()[-1]
    if name not in ('keras', 'tf.keras'):
        raise PlanError("keras must be 'keras' or 'tf.keras', but %r was given." % (name,))
    return keras_api.keras_package(name)
