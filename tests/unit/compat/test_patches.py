# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What is changed of Keras, TensorFlow and the process is listed, and changed in one place."""

import ast
import importlib
import inspect
import os
import pkgutil
import re

import pytest
from frameworks import KERAS_PACKAGES

import keras_parallax
from keras_parallax.compat import keras_api, loaded_keras3, patches
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.keras2 import compiling, models

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

#: Classes outside `compat/` that override private methods of a framework, and why.
OVERRIDE = {
    # It takes the place of a variable, of which TensorFlow 1.11 asks all these.
    'keras_parallax.engine.tables.sharded_variable.ShardedVariable',
}

#: Of our own objects: an optimizer's wrapper, and an attribute of an operation that is ours.
OF_OURS = {
    '_parallax_collective',
    '_parallax_former',
    '_parallax_hidden',
    '_parallax_model',
    '_parallax_name',
    '_parallax_no_repeats',
    '_parallax_settings',
    '_parallax_shown',
    '_parallax_step',
    '_parallax_tables',
    '_parallax_training',
    '_parallax_wrapper',
}

#: Attributes of objects of ours, of Python's and of messages, which code sets from outside.
OF_OUR_OBJECTS = {
    '__kwdefaults__', '__loader__', '_copies', '_format_exc', '_rank', '_source', 'allow_growth',
    'argtypes', 'arithmetic_optimization', 'bars', 'batch_size', 'call', 'constant_folding',
    'daemon', 'dense', 'device',
    'disable_meta_optimizer', 'disable_model_pruning', 'do_constant_folding', 'excepthook',
    'exit', 'former', 'from_tensor', 'gathering',
    'has_begun', 'has_ended', 'has_weights', 'here', 'i', 'in_epoch', 'initial',
    'intra_op_parallelism_threads', 'joint', 'limits', 'loader', 'memory_optimization', 'n',
    'name', 'op', 'opt_level',
    'order', 'penalty', 'progress', 'restype', 'states', 'test_function', 'thread', 'to_tensor',
    'total', 'trace_level', 'type', 'validation_data', 'value', 'visible_device_list', 'whole',
    'write',
}  # fmt: skip
#: Attributes that no statement names: one in a dict of attributes, one by a name that is computed.
OF_NO_STATEMENT = {'assign_add', 'metrics'}
#: Functions of modules, which are listed among the methods of Keras 3.
OF_MODULES = {'is_memory_sufficient', 'reduce_weighted_values', 'safe_get_h5_dataset'}

#: What a process has once.
HOOKS = re.compile(
    r'\b(?:sys\.(?:meta_path|path_hooks|excepthook|settrace|setprofile)|atexit\.register|'
    r'signal\.(?:signal|set_wakeup_fd|setitimer)|faulthandler\.\w+|set_terminate|'
    r'sys\.exit(?= =)|stderr\.write(?= =)|threading\.excepthook)\b'
)
#: Programs of our own.
PROGRAMS = ('keras_parallax/commands/', 'keras_parallax/engine/failures/watchdog.py')


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
        'Model._prepare_total_loss',
        'SessionLocal.__init__',
    }
    of_modules = {
        'graph_util.convert_variables_to_constants',
        'training.weighted_masked_objective',
    }
    # When a scope is made for a graph, not when models are.
    of_sessions = {'tf.Session.run', 'tf.Session._make_callable_from_options'}
    made = set(models._METHODS) | {'tf.train.Optimizer.apply_gradients'}
    assert made | of_other_stacks | of_modules | of_sessions == targets(patches.METHOD)
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


def assigned():
    """The attributes that code sets on something else than `self`, of whatever objects."""
    found = set()
    for source in sources().values():
        for node in ast.walk(ast.parse(source)):
            for target in getattr(node, 'targets', ()) if isinstance(node, ast.Assign) else ():
                parts = target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]
                found.update(
                    part.attr
                    for part in parts
                    if isinstance(part, ast.Attribute)
                    and not (isinstance(part.value, ast.Name) and part.value.id == 'self')
                )
    return found


def test_every_attribute_of_theirs_that_gets_another_value_is_listed():
    listed = {target.split('.')[1] for target in targets(patches.INSTANCE)}
    found = {name for name in assigned() if not name.startswith('_parallax')}
    assert (found - OF_OUR_OBJECTS - OF_MODULES) | OF_NO_STATEMENT == listed


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
        if (
            module.name.startswith('keras_parallax.keras3')
            and not loaded_keras3.compiling_classes()
        ):
            continue  # Keras 3 is not there.
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
