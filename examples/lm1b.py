# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""A word language model with sampled softmax, trained by several workers.

Run two workers on this machine:

    keras-parallax run -np 2 examples/lm1b.py

This is a plain Keras script but for the lines marked ``# kp:``. Without what
they add, and with ``rank, size, chief = 0, 1, True``, it is the script for a
single process.

Two of the model's variables are large and sparse: the embedding table and the
softmax table. A batch reads and changes a few rows of each, and those rows are
all that has to travel. The LSTM's weights are dense and change everywhere.
"""

import functools
import os

import click
import corpus
import numpy as np
import tabulate
from graphs import SeededUniform, adagrad, keras, tf
from sampled_softmax import HeldOutLoss, SampledSoftmaxLoss, describe_epoch, loss_of

import keras_parallax as kp  # kp: the plugin


class ProjectedLSTMCell(keras.layers.Layer):
    """An LSTM's cell whose output is narrower than its memory; `keras.layers.RNN` takes it.

    A matrix projects what an LSTM would put out, and the result is what goes into the next
    step (Sak, Senior and Beaufays, "Long Short-Term Memory Based Recurrent Neural Network
    Architectures for Large Vocabulary Speech Recognition", 2014, without peepholes). The rows of
    the softmax table are as narrow then.

    Args:
        units: Width of the memory.
        projection: Width of the output.
        **kwargs: As for any Keras layer.
    """

    def __init__(self, units, projection, **kwargs):
        super().__init__(**kwargs)
        self.units, self.projection = units, projection
        self.state_size, self.output_size = (projection, units), projection

    def build(self, input_shape):
        rows, add_weight = input_shape[-1] + self.projection, self.add_weight
        self.kernel = add_weight(
            name='kernel', shape=(rows, 4 * self.units), initializer='glorot_uniform'
        )
        self.bias = add_weight(name='bias', shape=(4 * self.units,), initializer='zeros')
        self.projector = add_weight(
            name='projection', shape=(self.units, self.projection), initializer='glorot_uniform'
        )
        super().build(input_shape)

    def call(self, inputs, states):
        output, memory = states
        gates = tf.matmul(tf.concat([inputs, output], 1), self.kernel) + self.bias
        into, forget, new, out = tf.split(gates, 4, 1)
        # An LSTM begins with remembering, hence + 1: as Keras's does by `unit_forget_bias`.
        memory = tf.sigmoid(forget + 1) * memory + tf.sigmoid(into) * tf.tanh(new)
        output = tf.matmul(tf.sigmoid(out) * tf.tanh(memory), self.projector)
        return output, [output, memory]

    def get_config(self):
        config = super().get_config()
        config.update(units=self.units, projection=self.projection)
        return config


def build_model(
    vocabulary_size=20000,
    steps=20,
    dim=64,
    num_sampled=256,
    projection=None,
    batch_size=None,
    noise_seed=None,
):
    """Builds the model to train, whose output is the sampled loss of each word.

    Args:
        vocabulary_size: Number of words.
        steps: Words per window.
        dim: Width of the embedding and of the LSTM.
        num_sampled: Noise words per batch.
        projection: Width to which the LSTM's output is projected, and of the embedding then.
            Default: it is not.
        batch_size: Windows per batch, where each goes on with the state in which the LSTM has
            left the one before. Default: each begins anew.
        noise_seed: As for :class:`sampled_softmax.SampledSoftmaxLoss`.
    """
    words, next_words = (
        keras.layers.Input(batch_shape=(batch_size, steps), dtype='int32', name=name)
        for name in ('words', 'next_words')
    )
    embedding = keras.layers.Embedding(
        vocabulary_size,
        projection or dim,
        embeddings_initializer=SeededUniform(1, 0.05),
        name='embedding',
    )
    options = dict(return_sequences=True, stateful=batch_size is not None, name='lstm')
    if projection:
        lstm = keras.layers.RNN(ProjectedLSTMCell(dim, projection), **options)
    else:
        lstm = keras.layers.LSTM(
            dim,
            # What each gate is would depend on Keras's version.
            recurrent_activation='sigmoid',
            kernel_initializer=SeededUniform(2),
            recurrent_initializer=SeededUniform(3),
            # One large matrix product per step suits a CPU better than four small ones.
            implementation=2,
            **options,
        )
    softmax = SampledSoftmaxLoss(
        vocabulary_size, num_sampled, SeededUniform(4), noise_seed, name='softmax'
    )
    return keras.models.Model([words, next_words], softmax([lstm(embedding(words)), next_words]))


def build_exact_model(model):
    """Builds the model to judge by, with the same layers, whose output is the exact loss."""
    words, next_words = model.inputs
    hidden, softmax = model.get_layer('lstm').output, model.get_layer('softmax')
    return keras.models.Model([words, next_words], softmax([hidden, next_words], exact=True))


def measure_density(text, batch_size, steps, num_sampled):
    """Counts which part of each table's rows a batch names, the mean of ten batches.

    A job with servers counts this itself. One without has to be told.

    Args:
        text: The :class:`corpus.Corpus`.
        batch_size, steps, num_sampled: As for the training.
    """
    vocabulary_size = len(text.vocabulary)
    windows = corpus.windows(text.train, 0, 1, batch_size, steps, max_batches=10)
    batches = [array.reshape(-1, batch_size * steps) for array in windows]
    # Noise words as TensorFlow draws them: the more frequent, the more likely, none twice.
    frequency = np.diff(np.log(np.arange(1, vocabulary_size + 2)))
    frequency /= frequency.sum()
    random = np.random.RandomState(0)
    embedding, softmax = [], []
    for words, next_words in zip(*batches):
        noise = random.choice(vocabulary_size, num_sampled, replace=False, p=frequency)
        embedding.append(len(np.unique(words)) / vocabulary_size)
        softmax.append(len(np.union1d(next_words, noise)) / vocabulary_size)
    return {
        'embedding/embeddings': np.mean(embedding),
        'softmax/kernel': np.mean(softmax),
        'softmax/bias': np.mean(softmax),
    }


class ResetStates(keras.callbacks.Callback):
    """Has the LSTM begin anew with each epoch, as the text does, and when it is judged.

    Put it before what judges.
    """

    def on_epoch_begin(self, epoch, logs=None):
        self.model.reset_states()

    def on_epoch_end(self, epoch, logs=None):
        self.model.reset_states()


def describe(plan, ids, workers):
    """Returns where each variable went, and what a step sends, as text.

    Args:
        plan: What ``strategy.plan(model)`` returns.
        ids: Dict from the names of tables to how many of their rows a worker's
            batch names, those that it names twice counted twice.
        workers: Number of workers.
    """
    rows = []
    for variable in plan.variables:
        touched = 'not counted' if variable.density is None else f'{variable.density:.1%}'
        megabytes = f'{variable.bytes / 1e6:.2f} MB'
        rows.append((variable.name, megabytes, variable.kind, touched, variable.place))
    headers = ('variable', 'size', 'class', 'rows a batch', 'place')
    table = tabulate.tabulate(rows, headers, disable_numparse=True)
    prediction = plan.predict()
    if prediction is None or prediction.unknown:  # One worker, or tables on no server.
        return table
    planned, gathered = prediction.totals['plan'].sent, 0
    for variable in plan.variables:
        if variable.name in ids:  # A row for each id goes to each other worker.
            gathered += (workers - 1) * ids[variable.name] * variable.bytes / variable.rows
        else:
            gathered += prediction.variables[variable.name].allreduce
    return (
        f'{table}\n\n{plan.verdict()}\nA {"worker" if plan.cluster.hosts == 1 else "host"} sends '
        f"{planned / 1e6:.2f} MB a step where Horovod's allgather would send "
        f'{gathered / 1e6:.2f} MB.'
    )


_COUNT = click.IntRange(min=1)
_option = functools.partial(click.option, show_default=True)


@click.command()
@_option(
    '--data',
    metavar='DIR',
    help='Folder in the 1-Billion-Word layout, or with .txt files. '
    'Default: the source of the Python standard library.',
)
@_option(
    '--vocabulary',
    metavar='FILE',
    help='Vocabulary file, "word" or "word count" on each line. Default: count the words.',
)
@_option('--vocabulary-size', type=_COUNT, default=20000, help='Upper limit for the vocabulary.')
@_option(
    '--max-tokens',
    type=_COUNT,
    default=900000,
    help='Upper limit for the training words, all workers together.',
)
@_option('--epochs', type=_COUNT, default=3, help='Passes over the training words.')
@_option('--batch-size', type=_COUNT, default=64, help='Windows per batch on each worker.')
@_option('--steps', type=_COUNT, default=20, help='Words per window.')
@_option('--dim', type=_COUNT, default=64, help='Width of the embedding and of the LSTM.')
@_option('--projection', type=_COUNT, help="Width to project the LSTM's output to.")
@_option(
    '--stateful/--stateless',
    default=True,
    help='Whether a window goes on where the LSTM has come to in the one before.',
)
@_option('--sampled', type=_COUNT, default=256, help='Noise words per batch.')
@_option('--learning-rate', type=float, default=0.1, help="Adagrad's.")
@_option(
    '--held-out-batches',
    type=_COUNT,
    default=5,
    help='Upper limit for the batches each worker judges by.',
)
@_option(
    '--architecture',
    type=click.Choice(['hybrid', 'allreduce', 'ps', 'auto']),
    default='hybrid',
    help='How gradients are exchanged.',
)
@_option('--partitions', help="Shards of a table, or 'search'.  [default: one on each server]")
@_option(
    '--compression',
    type=click.Choice(['none', 'fp16']),
    default='none',
    help='How gradients and rows are sent.',
)
@_option(
    '--servers', help="Where tables are: 'host', or addresses HOST:PORT,...  [default: workers]"
)
@_option(
    '--checkpoint',
    metavar='DIR',
    help='Folder for checkpoints, one after each epoch. From the newest training goes on.',
)
@_option('--evaluate', is_flag=True, help='Only judge the newest one, on all held-out text.')
@_option('--sync/--no-sync', default=True, help="Whether workers' gradients are applied together.")
@_option('--seed', type=int, default=1, help='Makes runs without --checkpoint repeatable.')
def main(
    data,
    vocabulary,
    vocabulary_size,
    max_tokens,
    epochs,
    batch_size,
    steps,
    dim,
    projection,
    stateful,
    sampled,
    learning_rate,
    held_out_batches,
    architecture,
    partitions,
    compression,
    servers,
    checkpoint,
    evaluate,
    sync,
    seed,
):
    """Trains a word language model and reports its held-out perplexity."""
    try:
        text = corpus.read(data, vocabulary_size, max_tokens, vocabulary)
        words_known = len(text.vocabulary)
        if sampled >= words_known:
            raise click.ClickException(
                f'There are {sampled} noise words to draw but only {words_known} words in the '
                'vocabulary; choose a smaller --sampled.'
            )
        density = None
        if architecture == 'allreduce':  # kp: no server counts rows there.
            density = measure_density(text, batch_size, steps, sampled)
    except corpus.CorpusError as error:
        raise click.ClickException(str(error)) from None

    np.random.seed(seed)
    strategy = kp.ParallaxStrategy(
        architecture=architecture,
        sync=sync,
        density=density,
        partitions=int(partitions) if (partitions or '').isdigit() else partitions,
        servers=servers.split(',') if ':' in (servers or '') else servers,
    )
    with strategy:  # kp: places the variables made here.
        rank, size = strategy.rank, strategy.size  # kp: alone it would be 0 of 1.
        chief = strategy.is_chief  # kp: one worker speaks for all.
        # kp: + rank, for noise words of its own. A run that goes on must draw other ones, too.
        tf.set_random_seed(None if checkpoint else seed + rank)
        batch = batch_size if stateful else None
        noise_seed = None if checkpoint else 5
        model = build_model(words_known, steps, dim, sampled, projection, batch, noise_seed)
        exact_model = build_exact_model(model)
        smaller = getattr(kp.Compression, compression)
        optimizer = kp.ParallaxOptimizer(  # kp: the optimizer itself would do without compression.
            adagrad(learning_rate), compression=smaller, pull_compression=smaller
        )
        # Gradients are averaged, so the learning rate stays what it was.
        model.compile(optimizer=optimizer, loss=loss_of)

    epoch = 0
    if checkpoint:
        path = os.path.join(checkpoint, 'model-{epoch:02d}.h5')
        epoch = strategy.resume(model, kp.latest_checkpoint(path))  # kp: 0 if there is none.

    if evaluate:
        if not epoch:
            raise click.ClickException('--evaluate needs a --checkpoint DIR that has one.')
        held_out_batches = None  # All.

    shape = dict(batch=batch_size, steps=steps)
    shape.update(rank=rank, size=size)  # kp: only this worker's share of the text.
    try:
        words, next_words = corpus.windows(text.train, **shape)
        held_out = corpus.windows(
            text.held_out,
            max_batches=held_out_batches,
            name='held-out text',
            **shape,
        )
    except corpus.CorpusError as error:
        raise click.ClickException(str(error)) from None

    if evaluate:
        losses = exact_model.predict(list(held_out), batch_size=batch_size)
        perplexity = np.exp(losses.mean())
        print(f'epoch {epoch}: held-out perplexity {perplexity:.1f} of {losses.size:,} words')
        return

    words_seen = batch_size * steps
    softmax_rows = words_seen + sampled
    ids = {
        'embedding/embeddings': words_seen,
        'softmax/kernel': softmax_rows,
        'softmax/bias': softmax_rows,
    }
    callbacks = [
        ResetStates(),
        HeldOutLoss(exact_model, list(held_out), batch_size),
        kp.callbacks.MetricAverageCallback(),  # kp: means of what the line above adds.
        # kp: after ten batches, in which rows are counted. Without `describe` it tells more.
        kp.callbacks.PlanReport(describe=lambda plan: describe(plan, ids, size)),
        # kp: one bar for all workers; Keras's own is none where the output is no terminal.
        kp.callbacks.ProgressBar('words', per_sample=steps, describe=describe_epoch),
    ]
    if chief:
        print(text.describe() + '\n')
    if checkpoint:  # kp: without waiting for each other, every worker saves its own part.
        callbacks.append(kp.callbacks.ModelCheckpoint(path, max_to_keep=3, sharded=not sync))

    model.fit(
        [words, next_words],
        np.zeros((len(words), 1)),
        batch_size=batch_size,
        epochs=epochs,
        initial_epoch=epoch,
        shuffle=not stateful,
        verbose=0,
        callbacks=callbacks,
    )


if __name__ == '__main__':
    main()
