# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The graph that a worker trains, as text and for TensorBoard."""

import os
import warnings

from keras_parallax.compat import keras_api
from keras_parallax.compat.tensorflow_api import tf
from keras_parallax.framework_types import Logs


class GraphExport(keras_api.callbacks.Callback):
    """Writes the graph that a worker trains when training begins: as text, and for TensorBoard.

    Workers have graphs of their own: the one that owns a shard has its updates. Give the callback
    to the workers whose graphs you want; none waits for another. Rank 0 writes `rank-0/graph.pbtxt`
    and, beside it, a file of events, so that TensorBoard on `directory` shows each worker as a run.

    Args:
        directory: where the folders of the workers are made. What cannot be written there is warned
            of, and training goes on.

    Example:
        ```python
        >>> import os, tempfile
        >>> import keras, keras_parallax as kp
        >>> with kp.ParallaxStrategy():
        ...     model = keras.models.Sequential([keras.layers.Dense(1, input_shape=(1,))])
        ...     model.compile('sgd', 'mse')
        >>> folder = tempfile.mkdtemp()
        >>> export = kp.callbacks.GraphExport(folder)
        >>> _ = model.fit([[0.0]], [[0.0]], verbose=0, callbacks=[export])
        >>> os.path.exists(os.path.join(folder, 'rank-0', 'graph.pbtxt'))
        True
        ```
    """

    def __init__(self, directory: str) -> None:
        super().__init__()
        self.directory = directory

    def on_train_begin(self, logs: Logs = None) -> None:
        """Writes it: what a training step runs is all there by now."""
        step = getattr(self.model.optimizer, '_parallax_step', None)
        folder = os.path.join(self.directory, 'rank-%d' % (0 if step is None else step.job.rank))
        # Keras's backend has the session of another graph if several are open.
        graph = self.model.total_loss.graph
        try:
            # A graph with more than 2 GiB of constants makes no message (ValueError).
            tf.train.write_graph(graph, folder, 'graph.pbtxt')
            tf.summary.FileWriter(folder, graph).close()
        except (OSError, tf.errors.OpError, ValueError) as error:
            warnings.warn(
                'GraphExport could not write the graph to %s: %s. Training goes on without it.'
                % (folder, getattr(error, 'message', error)),
                stacklevel=2,
            )
