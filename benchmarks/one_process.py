# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""One process on a large table: ours against raw TensorFlow's sparse apply and plain Keras.

Every system trains the same model (a table of 793,471 rows of 512, the vocabulary of the 1 Billion
Word Benchmark; batches of 128 x 20 Zipf ids; Adagrad) in processes of its own, which take turns in
one run, so that the ratios hold when the machine's speed drifts. Two processes of one system differ
by a third, whatever the system: so there are many steps and rounds. Each process prints its median
step time after warm-up and its peak memory. With `--out`, a folder, what came out is kept there.

    python benchmarks/one_process.py

Keras 3 with `keras-rs` beside them, for which it needs an environment of its own:

    python3.12 -m venv .venv-keras3
    .venv-keras3/bin/pip install -r requirements/keras3.txt
    python benchmarks/one_process.py --keras3 .venv-keras3/bin/python
"""

import importlib.util
import json
import os
import resource
import statistics
import subprocess
import sys
import time

import click
import numpy as np
from report import results, scripts

ROWS, WIDTH, BATCH, LENGTH = 793471, 512, 128, 20
BASE, PLAIN = scripts.BASE, 'plain keras'
#: Beside TensorFlow 2, whose Keras 2 moves touched rows only; the package `keras` is Keras 3 there.
HAS_TF_KERAS = importlib.util.find_spec('tf_keras') is not None
#: Systems of Keras 3, by its backend.
KERAS_3 = {'Keras 3, %s' % backend: backend for backend in ('jax', 'tensorflow')}
#: System to (steps of warm-up, steps measured): some take seconds a step.
STEPS = {
    BASE: (100, 900),
    'keras-parallax (keras)': (100, 900),
    'keras-parallax (tf.keras)': (100, 900),
    PLAIN: (100, 900) if HAS_TF_KERAS else (1, 3),
    **dict.fromkeys(KERAS_3, (2, 6)),
}


def batches(count):
    """Batches of ids `[BATCH, LENGTH]` and targets `[BATCH, 1]`, the same for every system."""
    random = np.random.RandomState(3)
    for _ in range(count):
        ids = (random.zipf(1.2, (BATCH, LENGTH)) - 1) % ROWS
        yield ids.astype(np.int32), random.uniform(size=(BATCH, 1)).astype(np.float32)


def raw_tensorflow():
    """A step function of raw TensorFlow."""
    from works.stack import tf

    ids, targets = tf.placeholder(tf.int32, [None, LENGTH]), tf.placeholder(tf.float32, [None, 1])
    table = tf.Variable(tf.random_uniform([ROWS, WIDTH], -0.05, 0.05))
    mean = tf.reduce_mean(tf.nn.embedding_lookup(table, ids), 1)
    kernel = tf.Variable(tf.random_uniform([WIDTH, 1], -0.05, 0.05))
    bias = tf.Variable(tf.zeros([1]))
    loss = tf.losses.mean_squared_error(targets, tf.matmul(mean, kernel) + bias)
    train = tf.train.AdagradOptimizer(0.1).minimize(loss)
    session = tf.Session()
    session.run(tf.global_variables_initializer())
    # As Keras runs its training function.
    call = session.make_callable([loss, train], [ids, targets])
    return lambda x, y: call(x, y)[0]


def keras_model(keras, optimizer):
    """The compiled Keras model."""
    model = keras.models.Sequential(
        [
            keras.layers.Embedding(ROWS, WIDTH, input_length=LENGTH),
            keras.layers.GlobalAveragePooling1D(),
            keras.layers.Dense(1),
        ]
    )
    model.compile(optimizer, 'mse')
    return model


def ours(keras, optimizers):
    """A step function of keras-parallax."""
    import keras_parallax as kp

    with kp.ParallaxStrategy():
        optimizer = kp.ParallaxOptimizer(optimizers.Adagrad(0.1))
        return keras_model(keras, optimizer).train_on_batch


def keras_3(backend):
    """A step function of Keras 3 and `keras-rs`, as its documentation has a table and its bags."""
    os.environ['KERAS_BACKEND'] = backend
    import keras
    import keras_rs

    adagrad = keras.optimizers.Adagrad
    table = keras_rs.layers.TableConfig(
        'table', ROWS, WIDTH, initializer='uniform', optimizer=adagrad(0.1), combiner='mean'
    )
    feature = keras_rs.layers.FeatureConfig('ids', table, (BATCH, LENGTH), (BATCH, WIDTH))
    ids = keras.Input((LENGTH,), BATCH, dtype='int32')
    mean = keras_rs.layers.DistributedEmbedding({'ids': feature})({'ids': ids})['ids']
    model = keras.Model(ids, keras.layers.Dense(1)(mean))
    model.compile(adagrad(0.1), 'mse')
    return model.train_on_batch


def versions_of(system):
    """The packages that a system of Keras 3 consists of, with their versions, as text."""
    from importlib import metadata

    names = 'keras', 'keras-rs', KERAS_3[system]
    return ', '.join('%s %s' % (name, metadata.version(name)) for name in names)


def step_function(system):
    """The step function of a system: `(ids, targets) -> loss`."""
    if system == BASE:
        return raw_tensorflow()
    if system in KERAS_3:
        return keras_3(KERAS_3[system])
    from works import stack

    if system == 'keras-parallax (tf.keras)' and not stack.HAS_TENSORFLOW_2:
        return ours(stack.tf.keras, stack.tf.keras.optimizers)
    if system == PLAIN:
        return keras_model(stack.keras, stack.keras_optimizers().Adagrad(0.1)).train_on_batch
    return ours(stack.keras, stack.keras_optimizers())


def measure(system):
    """Trains in this process; returns step time in ms, peak memory in GiB, and the last loss."""
    warmup, measured = STEPS[system]
    step, times, loss = step_function(system), [], None
    for x, y in batches(warmup + measured):
        start = time.perf_counter()
        loss = step(x, y)
        times.append(time.perf_counter() - start)
    return {
        'step_ms': 1000 * statistics.median(times[warmup:]),
        'peak_gib': resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
        'loss': float(np.ravel(loss)[0]),
        **({'versions': versions_of(system)} if system in KERAS_3 else {}),
    }


def run(system, python):
    """Measures a system in a process of its own, of some Python."""
    environ = dict(os.environ, TF_CPP_MIN_LOG_LEVEL='2')
    if system in KERAS_3:
        environ.pop('TF_USE_LEGACY_KERAS', None)
    command = [python, os.path.abspath(__file__), '--system', system]
    output = subprocess.check_output(command, env=environ, stderr=subprocess.DEVNULL)
    return json.loads(output.decode('utf-8').splitlines()[-1])


@click.command()
@click.option(
    '--rounds', default=9, show_default=True, help='How often each that is fast has its turn.'
)
@click.option('--system', type=click.Choice(sorted(STEPS)), help='Measure one, in this process.')
@click.option('--skip-plain', is_flag=True, help='Leave out plain Keras, which is slow, or large.')
@click.option('--keras3', help='A Python that has requirements/keras3.txt: measures Keras 3 too.')
@click.option('--out', help='Folder that keeps the results, for the report.')
def main(rounds, system, skip_plain, keras3, out):
    """Prints a table of ratios to raw TensorFlow."""
    if system:
        print(json.dumps(measure(system)))
        return
    systems = [
        name
        for name in STEPS
        if not (skip_plain and name == PLAIN or name in KERAS_3 and not keras3)
    ]
    if HAS_TF_KERAS:
        systems.remove('keras-parallax (keras)')
    found = {name: [] for name in systems}
    with click.progressbar(range(rounds), label='rounds', file=sys.stderr) as bar:
        for number in bar:
            # Some are a hundred to a thousand times as slow: once tells.
            for name in [name for name in systems if min(STEPS[name]) > 9 or number == 0]:
                found[name].append(run(name, keras3 if name in KERAS_3 else sys.executable))
    print(scripts.one_process_table(found))
    if out:
        results.publish(out, 'one_process', found)


if __name__ == '__main__':
    main()
