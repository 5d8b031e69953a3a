# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The update of what is left at the end of an epoch, against plain Keras."""

import cases
import pytest
from accumulated import BATCH, PACKAGES, adam, assert_close, batches, compiled, data, plain_fit


@PACKAGES
def test_fit_ends_each_epoch_with_the_update_of_what_is_left_before_it_validates(package):
    numbers = [2 * BATCH, 2 * BATCH, BATCH]
    weights, loss = plain_fit(package, adam, numbers, epochs=3)
    model, (x, y) = compiled(package, 2), data()
    history = model.fit(
        x, y, BATCH, epochs=3, shuffle=False, validation_data=(x, y), verbose=0
    ).history
    assert_close(model.get_weights(), weights)
    assert history['val_loss'][-1] == pytest.approx(loss, rel=1e-5)
    assert model.optimizer._parallax_step.runs.pending == 0


@PACKAGES
def test_an_epoch_that_a_callback_ends_leaves_nothing_behind(package):
    keras = cases.keras_module(package)
    weights, _ = plain_fit(package, adam, [2 * BATCH, BATCH, 2 * BATCH], epochs=1)

    class Stop(keras.callbacks.Callback):
        def on_batch_end(self, batch, logs=None):
            self.model.stop_training = batch == 2

    model, (x, y) = compiled(package, 2), data()
    model.fit(x, y, BATCH, shuffle=False, verbose=0, callbacks=[Stop()])
    for of_batch in batches(x, y)[3:]:
        model.train_on_batch(*of_batch)
    assert_close(model.get_weights(), weights)
