"""What is changed of Keras, TensorFlow and the process is listed, and changed in one place."""

import importlib
import inspect
import os
import pkgutil
import re

import pytest
from frameworks import KERAS_PACKAGES

import keras_parallax
from keras_parallax import compiling, models
from keras_parallax.compat import keras_api, patches
from keras_parallax.compat.tensorflow_api import tf

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

#: Classes outside `compat/` that override private methods of a framework, and why.
OVERRIDE = {
    # It takes the place of a variable, of which TensorFlow 1.11 asks all these.
    'keras_parallax.tables.sharded_variable.ShardedVariable',
}

#: Of our own objects: an optimizer's wrapper, and an attribute of an operation that is ours.
OF_OURS = {
    '_parallax_collective',
    '_parallax_hidden',
    '_parallax_model',
    '_parallax_no_repeats',
    '_parallax_settings',
    '_parallax_step',
    '_parallax_wrapper',
}

#: What a process has once.
HOOKS = re.compile(
    r'\b(?:sys\.(?:meta_path|path_hooks|excepthook|settrace|setprofile)|atexit\.register|'
    r'signal\.(?:signal|set_wakeup_fd|setitimer)|faulthandler\.\w+|set_terminate)\b'
)
#: Programs of our own.
PROGRAMS = ('keras_parallax/commands/', 'keras_parallax/failures/watchdog.py')


def sources():
    """Dict from the paths of the package's modules to their sources, without the list itself."""
    found = {}
    for folder, _, files in os.walk(os.path.join(ROOT, 'keras_parallax')):
        for name in files:
            path = os.path.join(folder, name)
            if name.endswith('.py') and name != 'patches.py':
                with open(path) as file:
                    found[os.path.relpath(path, ROOT)] = file.read()
    return found


def targets(kind):
    return {patch.target for patch in patches.PATCHES if patch.kind == kind}


@pytest.mark.parametrize('patch', patches.PATCHES, ids=lambda patch: patch.target)
def test_the_test_that_proves_a_patch_exists(patch):
    path, name = patch.test.split('::')
    with open(os.path.join(ROOT, path)) as file:
        assert re.search(r'^def %s\(' % name, file.read(), re.MULTILINE)
    assert patch.why and patch.version


def test_every_method_that_is_replaced_is_one_of_its_class_and_listed():
    import keras  # noqa: F401 - so that all packages are loaded.

    models.install()
    of_other_stacks = {
        'Function.__call__',
        'SessionLocal.__init__',
    }
    made = set(models._METHODS) | {'tf.train.Optimizer.apply_gradients'} | of_other_stacks
    assert made == targets(patches.METHOD)
    owners = [package.patched for package in keras_api.loaded_keras_packages()]
    assert len(owners) == len(KERAS_PACKAGES)
    for target in models._METHODS:
        name, method = target.split('.')
        for of_package in owners:
            assert method in vars(of_package[name]), target
            assert hasattr(getattr(of_package[name], method), '__wrapped__'), target
    assert hasattr(tf.train.Optimizer.apply_gradients, '__wrapped__')


def test_a_method_is_replaced_once():
    before = tf.train.Optimizer.apply_gradients
    models.install()
    patches.replace_method(
        'tf.train.Optimizer.apply_gradients', tf.train.Optimizer, compiling.apply_gradients_of
    )
    assert tf.train.Optimizer.apply_gradients.__wrapped__ is getattr(before, '__wrapped__', before)


def test_what_is_not_listed_cannot_be_patched():
    with pytest.raises(KeyError):
        patches.replace_method('Model.predict', tf.keras.Model, lambda original: original)
    with pytest.raises(KeyError):
        patches.change_class('tf.Graph', tf.Graph(), tf.Graph)
    with pytest.raises(KeyError), patches.replaced('tf.group', [tf], None):
        pass


def test_classes_are_changed_in_one_place():
    assert [path for path, source in sources().items() if '__class__ =' in source] == []


def test_every_attribute_of_ours_is_listed():
    used = {name for source in sources().values() for name in re.findall(r'\b_parallax\w*', source)}
    assert used - OF_OURS == targets(patches.ATTRIBUTE)


def test_every_hook_of_the_process_is_listed():
    used = {
        hook
        for path, source in sources().items()
        if not path.startswith(PROGRAMS)
        for hook in HOOKS.findall(source)
    }
    assert used == targets(patches.PROCESS) - {'jemalloc'}


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
