# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""A session that asks itself before it does what it is asked.

`session_hooks_1_6` and `session_hooks_1_11` ask, where their TensorFlow runs something.
"""

from typing import Any, Callable, ContextManager, List

from keras_parallax.compat.tensorflow_api import tf


class AskingSession(tf.Session):
    """A `tf.Session` with the questions that it asks itself, which its subclass overrides."""

    def running(self, operations: List[Any]) -> ContextManager[None]:
        """A context manager, open while `run` runs operations and tensors, a list."""
        raise NotImplementedError

    def before_run(self) -> None:
        """Called before whatever may be new in the graph is run."""
        raise NotImplementedError

    def run_call(self, call: Any) -> Any:
        """Runs a `Call`, of `run` and of the functions of `make_callable`."""
        raise NotImplementedError

    def run_part(self, handle: str, call: Any) -> Any:
        """Runs a `Call` of `partial_run`, of which only feeds and fetches are known."""
        raise NotImplementedError

    def make_function(self, options: Any) -> Callable[..., Any]:
        """Makes the function of `CallableOptions` that a Keras `Function` calls."""
        raise NotImplementedError

    def refuse(self, refuses: bool) -> None:
        """Has the session refuse to run anything, or not, whether it is closed or not."""
        self._closed = refuses
