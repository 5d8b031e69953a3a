"""Applies what is left of gradients that are added up over several batches, as an epoch ends."""

from keras_parallax.callbacks.epoch_reports import batches_per_epoch
from keras_parallax.compat import keras_api
from keras_parallax.step.train_step import step_of


class AccumulatedRest(keras_api.callbacks.Callback):
    """Has the last update of an epoch be that of the batches that are left.

    It comes before the user's callbacks, and after the last batch, so that what validates or saves
    sees the update. Where it is not known which batch is the last, it comes after the validation.
    """

    def on_batch_end(self, batch, logs=None):
        """Applies the rest, if the batch is known to be the last."""
        if batch + 1 == batches_per_epoch(self.params):
            step_of(self.model).apply_rest()

    def on_epoch_end(self, epoch, logs=None):
        """Applies the rest."""
        step_of(self.model).apply_rest()
