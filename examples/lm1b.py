"""A word language model with sampled softmax, trained by several workers.

Run two workers on this machine:

    horovodrun -np 2 -H localhost:2 python examples/lm1b.py

This is a plain Keras script but for the lines marked ``# kp:``. Without what
they add, and with ``rank, size, chief = 0, 1, True``, it is the script for a
single process.

Two of the model's variables are large and sparse: the embedding table and the
softmax table. A batch reads and changes a few rows of each, and those rows are
all that has to travel. The LSTM's weights are dense and change everywhere.
"""

import functools

import click
import corpus
import numpy as np
import tabulate
import tqdm
from graphs import keras, tf
from progress import Progress

import keras_parallax as kp  # kp: the plugin


class SampledSoftmaxLoss(keras.layers.Layer):
    """Cross entropy of the next word under a softmax over the vocabulary.

    Call it on ``[hidden, next_words]`` of shapes [batch, steps, dim] and
    [batch, steps]; it returns the loss of each word, [batch, steps]. Normally
    the loss is estimated from a few noise words, which reads only their rows of
    the table and those of the next words. ``exact=True`` reads the whole table
    for the true value. The choice is made when the layer is called and not by
    the learning phase, so that a training graph never holds the whole table.

    Args:
        vocabulary_size: Number of words; frequent words must have small ids.
        num_sampled: Noise words per batch.
        **kwargs: As for any Keras layer.
    """

    def __init__(self, vocabulary_size, num_sampled, **kwargs):
        super().__init__(**kwargs)
        self.vocabulary_size = vocabulary_size
        self.num_sampled = num_sampled

    def build(self, input_shape):
        dim = input_shape[0][-1]
        self.kernel = self.add_weight(
            name='kernel', shape=(self.vocabulary_size, dim), initializer='glorot_uniform'
        )
        self.bias = self.add_weight(name='bias', shape=(self.vocabulary_size,), initializer='zeros')
        super().build(input_shape)

    def call(self, inputs, exact=False):
        hidden, labels = inputs
        flat_hidden = tf.reshape(hidden, [-1, keras.backend.int_shape(hidden)[-1]])
        if exact:
            logits = tf.matmul(flat_hidden, self.kernel, transpose_b=True)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
                labels=tf.reshape(labels, [-1]), logits=tf.nn.bias_add(logits, self.bias)
            )
        else:
            losses = tf.nn.sampled_softmax_loss(
                weights=self.kernel,
                biases=self.bias,
                labels=tf.cast(tf.reshape(labels, [-1, 1]), tf.int64),
                inputs=flat_hidden,
                num_sampled=self.num_sampled,
                num_classes=self.vocabulary_size,
            )
        return tf.reshape(losses, tf.shape(labels))

    def compute_output_shape(self, input_shape):
        return input_shape[1]

    def get_config(self):
        config = super().get_config()
        config.update(vocabulary_size=self.vocabulary_size, num_sampled=self.num_sampled)
        return config


def build_model(vocabulary_size=20000, steps=20, dim=64, num_sampled=256):
    """Builds the model to train, whose output is the sampled loss of each word.

    Args:
        vocabulary_size: Number of words.
        steps: Words per window.
        dim: Width of the embedding and of the LSTM.
        num_sampled: Noise words per batch.
    """
    words = keras.layers.Input((steps,), dtype='int32', name='words')
    next_words = keras.layers.Input((steps,), dtype='int32', name='next_words')
    embedded = keras.layers.Embedding(vocabulary_size, dim, name='embedding')(words)
    # One large matrix product per step suits a CPU better than four small ones.
    hidden = keras.layers.LSTM(dim, return_sequences=True, implementation=2, name='lstm')(embedded)
    softmax = SampledSoftmaxLoss(vocabulary_size, num_sampled, name='softmax')
    return keras.models.Model([words, next_words], softmax([hidden, next_words]))


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
        touched = 'not counted' if variable.alpha is None else f'{variable.alpha:.1%}'
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
        f'{table}\n\nA {"worker" if plan.cluster.hosts == 1 else "host"} sends '
        f"{planned / 1e6:.2f} MB a step where Horovod's allgather would send "
        f'{gathered / 1e6:.2f} MB.'
    )


class PlanReport(keras.callbacks.Callback):
    """Prints the plan after the first ten steps, in which the rows they touch are counted.

    Args:
        describe: Function that returns the text.
    """

    def __init__(self, describe):
        super().__init__()
        self.describe = describe
        self.steps = 0

    def on_batch_end(self, batch, logs=None):
        self.steps += 1
        if self.steps == 10:
            tqdm.tqdm.write(self.describe() + '\n')


class HeldOutLoss(keras.callbacks.Callback):
    """Puts the exact loss on held-out text into the epoch's logs.

    Args:
        exact_model: The model with the exact loss.
        words: Windows of words.
        next_words: Windows of the words after them.
        batch_size: Windows per batch.
    """

    def __init__(self, exact_model, words, next_words, batch_size):
        super().__init__()
        self.exact_model = exact_model
        self.inputs = [words, next_words]
        self.batch_size = batch_size

    def on_epoch_end(self, epoch, logs=None):
        losses = self.exact_model.predict(self.inputs, batch_size=self.batch_size)
        logs['val_log_loss'] = np.mean(losses)


def describe_epoch(logs):
    """Returns the perplexity on held-out text, as text."""
    # The exponential is not linear: the loss is averaged over the workers first.
    return f'held-out perplexity {np.exp(logs["val_log_loss"]):.1f}'


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
@_option('--sync/--no-sync', default=True, help="Whether workers' gradients are applied together.")
@_option('--seed', type=int, default=1, help='Makes runs repeatable, up to rounding.')
def main(
    data,
    vocabulary,
    vocabulary_size,
    max_tokens,
    epochs,
    batch_size,
    steps,
    dim,
    sampled,
    learning_rate,
    held_out_batches,
    architecture,
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
    strategy = kp.ParallaxStrategy(architecture=architecture, sync=sync, density=density)
    with strategy:  # kp: places the variables made here.
        rank, size = strategy.rank, strategy.size  # kp: alone it would be 0 of 1.
        chief = strategy.is_chief  # kp: one worker speaks for all.
        tf.set_random_seed(seed + rank)  # kp: + rank, for noise words of its own.
        model = build_model(words_known, steps, dim, sampled)
        exact_model = build_exact_model(model)
        optimizer = keras.optimizers.Adagrad(learning_rate)
        # Gradients are averaged, so the learning rate stays what it was.
        # The model's output is the loss already.
        model.compile(optimizer=optimizer, loss=lambda _, losses: losses)

    shape = dict(batch=batch_size, steps=steps)
    shape.update(rank=rank, size=size)  # kp: only this worker's share of the text.
    try:
        words, next_words = corpus.windows(text.train, **shape)
        held_out = corpus.windows(
            text.held_out, max_batches=held_out_batches, name='held-out text', **shape
        )
    except corpus.CorpusError as error:
        raise click.ClickException(str(error)) from None

    words_seen = batch_size * steps
    softmax_rows = words_seen + sampled
    ids = {
        'embedding/embeddings': words_seen,
        'softmax/kernel': softmax_rows,
        'softmax/bias': softmax_rows,
    }
    callbacks = [
        HeldOutLoss(exact_model, held_out[0], held_out[1], batch_size),
        kp.callbacks.MetricAverageCallback(),  # kp: means of what the line above adds.
    ]
    if chief:
        print(text.describe() + '\n')
        # kp: `strategy.summary(model)` tells more: why, and what each variable costs.
        callbacks.append(PlanReport(lambda: describe(strategy.plan(model), ids, size)))
        callbacks.append(Progress('words', steps * size, describe_epoch))

    model.fit(
        [words, next_words],
        np.zeros((len(words), 1)),
        batch_size=batch_size,
        epochs=epochs,
        verbose=0,
        callbacks=callbacks,
    )


if __name__ == '__main__':
    main()
