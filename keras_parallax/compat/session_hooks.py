# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The session to derive from, and its functions, as the TensorFlow that is installed needs them."""

import importlib
from typing import Any, Callable

from keras_parallax.compat import patches
from keras_parallax.compat.installed_frameworks import generation
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.framework_types import Session

# isort: split
from tensorflow.python.framework import graph_util as _graph_util

_hooks = importlib.import_module('keras_parallax.compat.session_hooks_' + generation.INTERNALS)

#: What a session resolves a run to.
Call = _hooks.Call

#: A `tf.Session` that asks itself before it does what it is asked; its subclass overrides this.
HookedSession = _hooks.HookedSession

make_callable = _hooks.make_callable

options_of = _hooks.options_of

connected_options = _hooks.connected_options

key_of = _hooks.key_of


def notice_runs(note: Callable[[Session], None]) -> None:
    """Calls a function with each session of TensorFlow's before the session runs anything.

    Args:
        note: the function. It may give the session another class, which then runs the call.
    """
    base = tf.Session.__mro__[1]  # TensorFlow's `BaseSession`, also of `tf.InteractiveSession`.

    def noticed(name: str) -> Callable[..., Any]:
        def make(original: Callable[..., Any]) -> Callable[..., Any]:
            def method(session: Session, *args: Any, **kwargs: Any) -> Any:
                before = type(session)
                note(session)
                if type(session) is before:
                    return original(session, *args, **kwargs)
                return getattr(session, name)(*args, **kwargs)

            return method

        return make

    patches.replace_method('tf.Session.run', base, noticed('run'))
    if hasattr(base, '_make_callable_from_options'):  # TF 1.6 does not have it.
        name = '_make_callable_from_options'
        patches.replace_method('tf.Session._make_callable_from_options', base, noticed(name))


def freeze_graphs_by(make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Replaces `convert_variables_to_constants` in the modules that have it.

    Args:
        make: function from TensorFlow's function to the one that takes its place.
    """
    # TensorFlow 2 has it in the first module only.
    for module in (tf.graph_util, _graph_util):
        if hasattr(module, 'convert_variables_to_constants'):
            patches.replace_method('graph_util.convert_variables_to_constants', module, make)
