# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Logs metrics under the names that Keras gives them in its default mode, too.

Where graphs are built, Keras of TensorFlow 2 logs `metrics=['accuracy', 'mse']` as `acc` and
`mean_squared_error`, as TensorFlow 1 does, and a script for TensorFlow 2 monitors `val_accuracy`.
"""

from typing import Any, Dict

from keras_parallax.compat import keras_api, keras_metrics


def other_names(logs: Any, names: Dict[str, str]) -> Dict[str, Any]:
    """What logs lack: the values of metrics under their other names.

    Args:
        logs: a dict from names to values.
        names: dict from names of metrics to other names of them.

    Example:
        ```python
        >>> other_names({'loss': 1.0, 'acc': 0.5, 'val_acc': 0.25}, {'acc': 'accuracy'})
        {'accuracy': 0.5, 'val_accuracy': 0.25}
        ```
    """
    found = {}
    for prefix in ('', 'val_'):
        for name, other in names.items():
            if prefix + name in logs and prefix + other not in logs:
                found[prefix + other] = logs[prefix + name]
    return found


class DefaultNames(keras_api.callbacks.Callback):
    """Adds the names to the logs, before the user's callbacks see them."""

    def __init__(self) -> None:
        super().__init__()
        self._names: Dict[str, str] = {}

    def on_train_begin(self, logs: Any = None) -> None:
        """Finds out the names, now that `fit` has built the model."""
        self._names = keras_metrics.names_by_default(self.model)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """As Keras calls it; what it logs is changed.

        The logs of batches stay: Keras's progress bar would average them under the new names, for
        it only knows of the former names that their values are averages already (TF 2.21; proven
        by `tests/unit/callbacks/test_fit_progress.py`).
        """
        if logs:
            logs.update(other_names(logs, self._names))
