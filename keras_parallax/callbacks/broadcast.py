# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Start values that every worker gets from one."""

from keras_parallax.callbacks.epoch_reports import batches_per_epoch, check_equal_batches
from keras_parallax.callbacks.late_backend import _LateBackend
from keras_parallax.callbacks.replicas import own_states
from keras_parallax.compat import keras_api
from keras_parallax.engine.step.dense_values import broadcast
from keras_parallax.engine.step.train_step import step_of
from keras_parallax.errors import PlanError
from keras_parallax.framework_types import Logs


class BroadcastGlobalVariablesCallback(_LateBackend, keras_api.callbacks.Callback):
    """Gives every worker the start values of one worker when training begins.

    Dense variables and the optimizer's slots are broadcast; a sharded table has one value in the
    whole job already, that of rank 0. It also checks that all workers have equal numbers of
    batches.

    `fit` of a model of a strategy does both by itself, with the `root_rank` of this callback, if it
    is given, and that of rank 0 otherwise. This one is for values that other callbacks before it
    have set, and for models without a strategy. Give it to every worker.

    Args:
        root_rank: the worker whose values count.
        device: accepted for the sake of Horovod's callback; operations stay on the worker's task.

    Raises:
        UnequalBatchesError: at the start of training, if the workers have unequal numbers of
            batches.
        PlanError: `root_rank` is not 0 and a table is sharded.

    Example:
        ```python
        >>> import keras_parallax as kp
        >>> callback = kp.callbacks.BroadcastGlobalVariablesCallback(0)
        ```
    """

    def __init__(self, root_rank: int, device: str = '') -> None:
        super().__init__()
        self.root_rank = root_rank
        self.device = device

    def on_train_begin(self, logs: Logs = None) -> None:
        """Checks the numbers of batches, and broadcasts."""
        step = step_of(self.model)
        if step.job.size == 1:
            return
        if self.root_rank != 0 and step.spec.has_shards:
            raise PlanError(
                'BroadcastGlobalVariablesCallback was given root_rank=%r, but sharded tables start '
                'from the values of rank 0; use root_rank=0.' % self.root_rank
            )
        with step.job.call('BroadcastGlobalVariablesCallback'):
            check_equal_batches(step.job.gather(batches_per_epoch(self.params)))
            broadcast(step, self.root_rank, own_states(self.model))
