# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Every public name: what its docstring says, and that its example runs."""

import ast
import builtins
import doctest
import importlib
import inspect
import json
import os
import pkgutil
import re
import subprocess
import sys
import textwrap

import pytest
from frameworks import KERAS_PACKAGES, TF2, keras_module

import keras_parallax as kp
from keras_parallax.compat import installed_frameworks

#: Modules of public names.
ROOMS = ('callbacks', 'data', 'layers', 'metrics', 'optimizers')


def public_names():
    """Every class and function of ours that a user can name, by that name."""
    found = {name: getattr(kp, name) for name in kp.__all__}
    for room in ROOMS:
        del found[room]
    # Horovod's own, only handed on.
    del found['Compression']
    for room in ROOMS:
        of_room = getattr(kp, room)
        found.update(('%s.%s' % (room, name), getattr(of_room, name)) for name in of_room.__all__)
    return found


def public_methods(cls):
    """The methods that a class of ours defines, by name."""
    return {
        name: value
        for name, value in vars(cls).items()
        if inspect.isfunction(value) and not name.startswith('_')
    }


def overrides(cls):
    """Names of the methods whose contract is that of a parent's."""
    return {
        name
        for name in public_methods(cls)
        if any(name in vars(parent) for parent in cls.__mro__[1:])
    }


NAMES = public_names()
CLASSES = {name: value for name, value in NAMES.items() if inspect.isclass(value)}
#: Names, and the methods that are not a parent's.
DOCUMENTED = dict(NAMES)
for class_name, given_class in CLASSES.items():
    for method_name, method in public_methods(given_class).items():
        if method_name not in overrides(given_class):
            DOCUMENTED[f'{class_name}.{method_name}'] = method
#: Where `python -c` finds no package; in the checkout it would find ours before the installed one.
HERE = os.path.dirname(os.path.abspath(__file__))
CALLBACKS = sorted(name for name in NAMES if name.endswith('Callback'))


def section(thing, title):
    """A section of a docstring, without its title; empty if there is none."""
    text = inspect.getdoc(thing) or ''
    match = re.search(rf'^{title}:\n((?: {{4}}.*\n|\n)*)', text + '\n', re.MULTILINE)
    return match.group(1) if match else ''


def example(thing):
    """The doctest examples of a docstring."""
    # The fence that ends the code would count as expected output.
    text = re.sub(r'^ *```.*$', '', section(thing, 'Example'), flags=re.MULTILINE)
    return doctest.DocTestParser().get_examples(text)


def arguments(thing):
    """Names of what a function takes, or what a class takes to be made."""
    if inspect.isclass(thing):
        if '__init__' not in vars(thing):
            return []
        thing = thing.__init__
    return [name for name in inspect.signature(thing).parameters if name != 'self']


def own_code(function):
    """The statements of a function, without those of functions inside it."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
    pending = list(tree.body)
    while pending:
        node = pending.pop()
        yield node
        if not isinstance(node, (ast.FunctionDef, ast.Lambda, ast.ClassDef)):
            pending.extend(ast.iter_child_nodes(node))


def raised(function):
    """Names of the exceptions that a function raises by itself."""
    return {
        node.exc.func.id
        for node in own_code(function)
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call)
    }


def returns_something(function):
    return any(isinstance(node, ast.Return) and node.value for node in own_code(function))


def answered_for(thing):
    """The functions whose exceptions a docstring answers for."""
    if not inspect.isclass(thing):
        return [thing]
    own = [value for value in vars(thing).values() if inspect.isfunction(value)]
    return [value for value in own if value.__name__ in overrides(thing) or not value.__doc__]


def titles(text):
    """What a section describes: `start_epoch, end_epoch: ...` are two."""
    found = re.findall(r'^    (\S.*?):', text, re.MULTILINE)
    return [part.strip() for title in found for part in title.split(',')]


# --- names -------------------------------------------------------------------


def test_the_tests_see_the_installed_package():
    folders = os.path.dirname(os.path.abspath(kp.__file__)).split(os.sep)
    assert folders[-2] == 'site-packages'


def test_all_names_exist_once_and_in_order():
    assert kp.__all__ == sorted(set(kp.__all__))
    assert all(hasattr(kp, name) for name in kp.__all__)


def test_nothing_public_is_left_out():
    public = {
        name
        for name, value in vars(kp).items()
        if not name.startswith('_') and not inspect.ismodule(value)
    }
    assert public | set(ROOMS) == set(kp.__all__)


@pytest.mark.skipif(sys.version_info < (3, 7), reason='Python 3.6 asks no module for its names')
def test_dir_shows_public_names_only():
    assert set(dir(kp)) == {*kp.__all__, '__version__'}
    for room in ROOMS:
        assert dir(getattr(kp, room)) == sorted(getattr(kp, room).__all__)


def test_a_strategy_a_plan_and_an_optimizer_are_told_in_one_short_line():
    keras = keras_module(KERAS_PACKAGES[0])
    with kp.ParallaxStrategy(overrides={'words': 'dense'}) as strategy:
        model = keras.models.Sequential(
            [
                keras.layers.Embedding(9, 2, input_length=1, name='words'),
                keras.layers.Flatten(),
                keras.layers.Dense(1),
            ]
        )
        model.compile(kp.ParallaxOptimizer('adam', sparse_update='lazy'), 'mse')
    assert repr(strategy) == '<ParallaxStrategy: hybrid, rank 0 of 1>'
    assert repr(strategy.plan(model)) == '<Plan: allreduce, variables: 3, sparse: 0, servers: 0>'
    assert repr(model.optimizer) == "<ParallaxOptimizer: Adam, sparse_update='lazy'>"


def test_callbacks_have_the_names_of_horovods():
    import horovod.keras.callbacks as horovod_callbacks

    theirs = {name for name in vars(horovod_callbacks) if name.endswith('Callback')}
    assert theirs == {name.split('.')[1] for name in CALLBACKS}


@pytest.mark.parametrize('name', CALLBACKS)
def test_callbacks_take_the_arguments_of_horovods(name):
    import horovod.keras.callbacks as horovod_callbacks

    def parameters(cls):
        return [
            (parameter.name, parameter.default)
            for parameter in inspect.signature(cls.__init__).parameters.values()
        ]

    theirs = getattr(horovod_callbacks, name.split('.')[1])
    # Ours may take more, after theirs.
    ours = parameters(NAMES[name])
    assert ours[: len(parameters(theirs))] == parameters(theirs)


def test_every_error_of_ours_has_one_base():
    public = {cls for cls in CLASSES.values() if issubclass(cls, Exception)}
    assert public == {cls for _, cls in inspect.getmembers(kp.errors, inspect.isclass)}
    assert all(issubclass(cls, kp.ParallaxError) for cls in public)


# --- docstrings --------------------------------------------------------------


every_documented = pytest.mark.parametrize('name', sorted(DOCUMENTED))


@every_documented
def test_the_first_line_is_a_sentence(name):
    # `inspect.getdoc` would show a parent's.
    assert (DOCUMENTED[name].__doc__ or '').splitlines()[0].endswith('.')


@every_documented
def test_every_argument_is_described(name):
    thing = DOCUMENTED[name]
    assert titles(section(thing, 'Args')) == arguments(thing)


@every_documented
def test_what_is_returned_is_described(name):
    thing = DOCUMENTED[name]
    if inspect.isclass(thing) or not returns_something(thing):
        assert not section(thing, 'Returns')
    # One line can say what is returned, as a property's does.
    elif len(inspect.getdoc(thing).splitlines()) > 1:
        assert section(thing, 'Returns')


@every_documented
def test_every_error_raised_is_described(name):
    thing = DOCUMENTED[name]
    described = titles(section(thing, 'Raises'))
    for function in answered_for(thing):
        assert raised(function) <= set(described)
    for title in described:
        assert hasattr(kp, title) or hasattr(builtins, title)


# --- examples ----------------------------------------------------------------


@pytest.mark.parametrize('name', sorted(NAMES))
def test_a_name_has_an_example(name):
    assert example(NAMES[name])


#: Types each example into a Python of its own, as a user would. They are forks of one that has
#: imported what takes seconds to import, and done nothing else. Reads examples by name, and writes
#: by name what an example printed where it failed. A fork leaves out what Python does at its end,
#: which takes seconds with TensorFlow 2.
RUNNER = """
import doctest, json, os, sys, tempfile
import keras_parallax
results = {}
for name, pairs in json.load(sys.stdin).items():
    with tempfile.TemporaryFile('w+') as output:
        child = os.fork()
        if not child:
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)
            examples = [doctest.Example(*pair) for pair in pairs]
            failed, tried = doctest.DocTestRunner().run(
                doctest.DocTest(examples, {}, 'example', None, 0, None)
            )
            print('' if tried == len(examples) else 'not all were tried', flush=True)
            os._exit(failed > 0 or tried < len(examples))
        _, status = os.waitpid(child, 0)
        output.seek(0)
        results[name] = output.read() or 'ended with %d' % status if status else ''
print(json.dumps(results))
"""
if TF2:
    # Examples build graphs, and import `keras`, which may be Keras 3 there.
    RUNNER = (
        "import frameworks, sys; sys.modules['keras'] = frameworks.keras_module('tf.keras')"
        + RUNNER
    )
WITH_EXAMPLE = sorted(name for name in NAMES if example(NAMES[name]))


@pytest.fixture(scope='module')
def printed(request):
    """What the selected examples printed where they failed, by name."""
    selected = [
        item.callspec.params
        for item in request.session.items
        if item.module is request.module and 'printed' in item.fixturenames
    ]
    pairs = {
        params['name']: [(one.source, one.want) for one in example(NAMES[params['name']])]
        for params in selected
    }
    process = subprocess.run(
        [sys.executable, '-c', RUNNER],
        input=json.dumps(pairs),
        stdout=subprocess.PIPE,
        cwd=HERE,
        universal_newlines=True,
        env=dict(os.environ, TF_CPP_MIN_LOG_LEVEL='2'),
    )
    assert process.returncode == 0
    return json.loads(process.stdout)


@pytest.mark.parametrize('name', WITH_EXAMPLE)
def test_the_example_of_a_name_runs(printed, name):
    assert not printed[name]


#: Modules that import what is not installed here.
GENERATIONS = (
    'tensorflow_1', 'tensorflow_1_6', 'tensorflow_1_15', 'tensorflow_2', 'tensorflow_functions',
)  # fmt: skip
INTERNALS = ('graph_internals_', 'session_hooks_')
OF_OTHER_STACKS = {
    'keras_parallax.compat.' + name
    for name in GENERATIONS + tuple(kind + of for kind in INTERNALS for of in ('1_6', '1_11'))
} - {
    installed_frameworks.generation.__name__,
    *(
        'keras_parallax.compat.' + kind + installed_frameworks.generation.INTERNALS
        for kind in INTERNALS
    ),
}


#: Modules that import Keras 3, which is not there beside most stacks.
OF_KERAS_3 = re.compile(
    r'keras_parallax\.(keras3|compat\.(keras3_|keras_rs_api|fed_optimizers|jax_calls))'
)


def test_the_examples_of_what_is_not_public_run(monkeypatch):
    if TF2:
        monkeypatch.setitem(sys.modules, 'keras', keras_module('tf.keras'))
    tried = 0
    for found in pkgutil.walk_packages(kp.__path__, 'keras_parallax.'):
        if found.name in OF_OTHER_STACKS or OF_KERAS_3.match(found.name):
            continue
        module = importlib.import_module(found.name)
        for value in list(vars(module).values()):
            defined = inspect.isclass(value) or inspect.isfunction(value)
            if not defined or value.__module__ != module.__name__ or value in NAMES.values():
                continue
            examples = example(value)
            test = doctest.DocTest(examples, dict(vars(module)), value.__name__, None, 0, None)
            outcome = doctest.DocTestRunner().run(test)
            assert outcome == (0, len(examples))
            tried += outcome.attempted
    assert tried
