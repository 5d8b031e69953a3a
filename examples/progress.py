"""What the examples show while they train: a bar, and a line for each epoch."""

import sys
import time

import tqdm
from graphs import keras


class Progress(keras.callbacks.Callback):
    """Shows a bar, and a line for each epoch; put it after other callbacks.

    Keras's own bar prints a line for each batch wherever its output is no
    terminal, and under ``horovodrun`` it never is one.

    Args:
        unit: What is counted, in plural.
        per_sample: How many of them a sample of this worker stands for, those of
            the other workers counted too.
        describe: Function of an epoch's logs that returns the rest of the line.
        samples: Samples of an epoch on this worker. Default: as many as Keras says, which
            `fit_generator` does not.
    """

    def __init__(self, unit, per_sample, describe, samples=None):
        super().__init__()
        self.unit, self.per_sample, self.describe = unit, per_sample, describe
        self.samples_of_epoch = samples

    def on_train_begin(self, logs=None):
        self.bar = None

    def on_epoch_begin(self, epoch, logs=None):
        if self.bar is None:
            samples = self.samples_of_epoch or self.params['samples']
            self.bar = tqdm.tqdm(
                total=self.params['epochs'] * samples * self.per_sample,
                initial=epoch * samples * self.per_sample,  # Where training goes on.
                unit=' ' + self.unit,
                unit_scale=True,
                mininterval=1,
                ncols=79,
                ascii=True,  # horovodrun 0.19.5 may cut other signs in two, and stops there.
                file=sys.stdout,
            )
        self.start, self.samples = time.perf_counter(), 0

    def on_batch_end(self, batch, logs=None):
        self.seconds = time.perf_counter() - self.start  # What other callbacks take is not in it.
        self.samples += logs['size']
        self.bar.update(logs['size'] * self.per_sample)

    def on_epoch_end(self, epoch, logs=None):
        rate = self.samples * self.per_sample / self.seconds
        tqdm.tqdm.write(f'epoch {epoch + 1}: {rate:,.0f} {self.unit}/s, {self.describe(logs)}')

    def on_train_end(self, logs=None):
        if self.bar is not None:
            self.bar.close()
