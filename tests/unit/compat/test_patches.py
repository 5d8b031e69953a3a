"""What is changed of Keras and TensorFlow is changed in one place."""

import importlib
import inspect
import pkgutil

import keras_parallax

#: Classes outside `compat/` that override private methods of a framework, and why.
OVERRIDE = {
    # It takes the place of a variable, of which TensorFlow 1.11 asks all these.
    'keras_parallax.tables.sharded_variable.ShardedVariable',
}


def test_private_names_are_overridden_in_compat_alone():
    found = set()
    for module in pkgutil.walk_packages(keras_parallax.__path__, 'keras_parallax.'):
        if module.name.startswith('keras_parallax.compat') or module.name.endswith('__main__'):
            continue
        for _, cls in inspect.getmembers(importlib.import_module(module.name), inspect.isclass):
            if cls.__module__ == module.name and _overrides_private(cls):
                found.add('%s.%s' % (cls.__module__, cls.__qualname__))
    assert found == OVERRIDE


def _overrides_private(cls):
    theirs = {
        name
        for base in cls.__mro__[1:]
        if base.__module__.split('.')[0] in ('tensorflow', 'keras', 'horovod')
        for name in vars(base)
    }
    return any(name.startswith('_') and not name.endswith('__') for name in theirs & set(vars(cls)))
