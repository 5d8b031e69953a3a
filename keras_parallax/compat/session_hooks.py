"""The session to derive from, and its functions, as the TensorFlow that is installed needs them."""

import importlib

from keras_parallax.compat.stack import generation

_hooks = importlib.import_module('keras_parallax.compat.session_hooks_' + generation.INTERNALS)

#: What a session resolves a run to.
Call = _hooks.Call

#: A `tf.Session` that asks itself before it does what it is asked; its subclass overrides this.
HookedSession = _hooks.HookedSession

make_callable = _hooks.make_callable

options_of = _hooks.options_of

connected_options = _hooks.connected_options

key_of = _hooks.key_of
