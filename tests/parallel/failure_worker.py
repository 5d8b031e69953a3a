# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Run by `horovodrun`: one way for a job to fail, or to end well.

Usage: failure_worker.py WAY [FOLDER]. Every worker prints its process id and its server's port
first.
"""

import itertools
import os
import resource
import signal
import subprocess
import sys
import threading
import time

import horovod.tensorflow as hvd
import numpy as np
from any_keras import keras
from frameworks import tf

import keras_parallax as kp
from keras_parallax.compat import horovod_api
from keras_parallax.engine.job import devices, job, worker_servers

ROWS, LENGTH = 50, 3
STEP_TIMEOUT = {'stopped': 10, 'hung': 10}


def build(strategy, optimizer=None, rows=ROWS, width=4, name='words'):
    with strategy:
        model = keras.models.Sequential(
            [
                keras.layers.Embedding(rows, width, input_length=LENGTH, name=name),
                keras.layers.Flatten(),
                keras.layers.Dense(1),
            ]
        )
        model.compile(kp.ParallaxOptimizer(optimizer or keras.optimizers.Adagrad(lr=0.1)), 'mse')
    return model


def batch(size=8):
    return np.arange(size * LENGTH).reshape(size, LENGTH) % ROWS, np.ones((size, 1))


def train(model, steps):
    for _ in range(steps):
        model.train_on_batch(*batch())


def callbacks():
    return [
        kp.callbacks.BroadcastGlobalVariablesCallback(0),
        kp.callbacks.MetricAverageCallback(),
    ]


def ends_well(strategy):
    model = build(strategy)
    if strategy.rank == 1:
        # As in a debugger, for longer than it takes to notice a host that is cut off.
        subprocess.Popen(['sh', '-c', 'sleep 15; kill -CONT %d' % os.getpid()])
        os.kill(os.getpid(), signal.SIGSTOP)
    model.fit(*batch(64), batch_size=8, epochs=2, verbose=0, callbacks=callbacks())


def bad_id(strategy):
    model = build(strategy)
    train(model, 3)
    x, y = batch()
    if strategy.rank == 1:
        x[0, 0] = ROWS + 7
    for _ in range(5):
        model.train_on_batch(x, y)


def empty_batch(strategy):
    model = build(strategy)
    train(model, 3)
    size = 0 if strategy.rank == 1 else 8
    for _ in range(5):
        model.train_on_batch(*batch(size))


def exception(strategy):
    # Steps of a session that is closed cannot be interrupted, which is no news for the user.
    closed = build(strategy)
    train(closed, 1)
    keras.backend.get_session().close()
    keras.backend.clear_session()
    model = build(kp.ParallaxStrategy(step_timeout=600))
    train(model, 3)
    if strategy.rank == 1:
        raise KeyError('the user made a mistake')
    train(model, 100)


def exception_without_tables(strategy):
    """Nothing is on servers: the session is the process's own; rank 0 waits in an allreduce."""
    model = dense(strategy)
    train(model, 3)
    if strategy.rank == 1:
        raise KeyError('the user made a mistake')
    train(model, 100)


def exception_before_training(strategy):
    if strategy.rank == 1:
        raise KeyError('the user made a mistake')
    train(build(strategy), 3)


def exception_while_others_compute(strategy):
    model = build(strategy)
    train(model, 3)
    if strategy.rank == 1:
        raise KeyError('the user made a mistake')
    while True:  # In Python all the time, so that no TensorFlow call can be interrupted.
        pass


def exception_with_a_hook(strategy):
    """A hook of the script's own has taken the place of ours."""
    sys.excepthook = sys.__excepthook__
    exception(strategy)


def exception_at_the_start(strategy):
    """What happens is in `main`."""


def exception_before_the_job(strategy):
    """What happens is in `main`."""


def no_card(*arguments):
    raise ValueError('no such card')


def exit_with_a_message(strategy):
    model = build(strategy)
    train(model, 3)
    if strategy.rank == 1:
        sys.exit('no data')
    train(model, 5)


def exit_by_an_exception(strategy):
    model = build(strategy)
    train(model, 3)
    if strategy.rank == 1:
        raise SystemExit('no data')
    train(model, 5)


def ends_before_training(strategy):
    model = build(strategy)
    if strategy.rank == 1:
        sys.exit(0)
    model.fit(*batch(64), batch_size=8, verbose=0, callbacks=callbacks())


def ends_before_resume(strategy):
    model = build(strategy)
    if strategy.rank == 0:
        strategy.resume(model, None)


def save_sharded(model):
    """Saves as a loop of the user's own does."""
    checkpoint = kp.callbacks.ModelCheckpoint(os.path.join(sys.argv[2], 'model'), sharded=True)
    checkpoint.set_model(model)
    checkpoint.on_epoch_end(0, {})


def saves_alone(strategy):
    model = build(strategy)
    train(model, 3)
    if strategy.rank == 0:
        save_sharded(model)


def resumes_alone(strategy):
    model = build(strategy)
    if strategy.rank == 0:
        strategy.resume(model, None)
    train(model, 3)


def reduces_alone(strategy):
    model = build(strategy)
    train(model, 3)
    if strategy.rank == 1:
        total = hvd.allreduce(keras.backend.constant(1.0), average=False)
        keras.backend.get_session().run({'total': total})


def dense(strategy, loss='mse'):
    """A model without tables: its steps wait in Horovod's operations alone."""
    with strategy:
        model = keras.models.Sequential([keras.layers.Dense(1, input_shape=(LENGTH,))])
        model.compile(kp.ParallaxOptimizer(keras.optimizers.Adagrad(lr=0.1)), loss)
    return model


def saves_while_others_train(strategy):
    model = dense(strategy)
    train(model, 3)
    if strategy.rank == 0:
        save_sharded(model)
    train(model, 100)


def go_on(model):
    """What a script may do by itself; it ends when the job's problem comes out of it."""
    while True:
        model.predict(batch()[0])
        time.sleep(0.1)


def caught(strategy):
    model = build(strategy)
    train(model, 3)
    x, y = batch()
    if strategy.rank == 1:
        x[0, 0] = ROWS + 7
    try:
        model.train_on_batch(x, y)
    except kp.IdOutOfRangeError:
        print('CAUGHT', flush=True)
        go_on(model)


def caught_in_session_run(strategy):
    """The same in a step that the script has a session run."""
    model = build(strategy)
    train(model, 3)
    model._make_train_function()
    x, y = batch()
    if strategy.rank == 1:
        x[0, 0] = ROWS + 7
    places = model._feed_inputs + model._feed_targets + model._feed_sample_weights
    values = [x, y, np.ones(len(x))]
    session = keras.backend.get_session()
    try:
        session.run(model.train_function.updates_op, dict(zip(places, values)))
    except kp.IdOutOfRangeError:
        print('CAUGHT', flush=True)
        go_on(model)


def caught_in_fit(strategy):
    """The error comes from Python, between two steps, and another call of `fit` follows."""
    model = build(strategy)

    def batches():
        for number in itertools.count():
            if number == 3 and strategy.rank == 1:
                raise KeyError('the user made a mistake')
            yield batch()

    try:
        model.fit_generator(batches(), steps_per_epoch=5, workers=0, verbose=0)
    except KeyError:
        print('CAUGHT', flush=True)
        train(model, 1)
        go_on(model)


def caught_after_fit(strategy):
    """A callback of rank 1 fails when all batches are over."""
    model = build(strategy)

    def fail(logs):
        raise KeyError('the user made a mistake')

    failing = [keras.callbacks.LambdaCallback(on_train_end=fail)] if strategy.rank == 1 else []
    try:
        model.fit(*batch(), verbose=0, callbacks=failing)
    except KeyError:
        print('CAUGHT', flush=True)
        go_on(model)


class UsersOwn:
    """A function in Python, in a loss, which raises an error when it is told to."""

    raises = False

    def loss(self, truth, predicted):
        checked = tf.py_func(self.check, [truth], tf.float32)
        checked.set_shape(truth.shape)
        return keras.losses.mse(checked, predicted)

    def check(self, truth):
        if self.raises:
            raise KeyError('the user made a mistake')
        return truth


def catch_users_own(model):
    """Has a step break off, of which nobody has to be asked for the reason."""
    job.start().watch.await_problem = lambda: print('AWAITED', flush=True)
    try:
        train(model, 1)
    except tf.errors.UnknownError as error:
        print('CAUGHT', error.message.split('\n')[0], flush=True)
    del job.start().watch.await_problem


def caught_without_tables(strategy):
    users_own = UsersOwn()
    model = dense(strategy, users_own.loss)
    train(model, 3)
    users_own.raises = strategy.rank == 1
    if strategy.rank == 0:
        train(model, 100)
    catch_users_own(model)
    go_on(model)


def caught_by_all(strategy):
    users_own = UsersOwn()
    model = dense(strategy, users_own.loss)
    train(model, 3)
    users_own.raises = True
    catch_users_own(model)
    users_own.raises = False
    for _ in range(8):
        # Until all have heard of it.
        train(model, 1)
        time.sleep(1)


def exit_code(strategy):
    model = build(strategy)
    train(model, 3)
    if strategy.rank == 1:
        sys.exit(3)
    train(model, 5)


def early_success(strategy):
    model = build(strategy)
    train(model, 1)
    # So that the end of rank 1 comes while its steps are being interrupted: a process that took
    # away its session crashed then.
    session = keras.backend.get_session()
    extend = session._extend_graph

    def slowly():
        extend()
        if threading.current_thread() is not threading.main_thread():
            time.sleep(0.01)

    session._extend_graph = slowly
    train(model, 2 if strategy.rank == 1 else 4)


def unequal_fit(strategy):
    model = build(strategy)
    size = 64 if strategy.rank == 0 else 48
    model.fit(*batch(size), batch_size=8, epochs=2, verbose=0, callbacks=callbacks())


def other_width(strategy):
    train(build(strategy, width=4 + strategy.rank), 3)


def other_name(strategy):
    train(build(strategy, name='words' if strategy.rank == 0 else 'items'), 3)


def other_rate(strategy):
    train(build(strategy, keras.optimizers.Adagrad(lr=0.1 * (1 + strategy.rank))), 3)


def compile_outside(strategy):
    with strategy:
        ids = keras.layers.Input((LENGTH,))
        out = keras.layers.Flatten()(keras.layers.Embedding(ROWS, 4)(ids))
        model = keras.models.Model(ids, out)
        optimizer = kp.ParallaxOptimizer('adagrad')
    model.compile(optimizer, 'mse')
    model.train_on_batch(batch()[0], np.ones((8, 4 * LENGTH)))


def optimizer_outside(strategy):
    with strategy:
        keras.layers.Embedding(ROWS, 4)(keras.layers.Input((LENGTH,)))
    kp.ParallaxOptimizer('adagrad')


def nan_loss(strategy):
    model = build(strategy)
    x, y = batch()
    losses = [model.train_on_batch(x, y * np.nan) for _ in range(2)]
    assert np.isnan(losses).all()


def killed(strategy):
    model = build(strategy)
    train(model, 3)
    if strategy.rank == 1:
        # Somewhere in a step: whatever the others are doing then, they end in the same way.
        threading.Timer(0.5, os.kill, [os.getpid(), signal.SIGKILL]).start()
    train(model, 1000000)


def killed_together(strategy):
    """All at one time, as when a scheduler takes a host away."""
    model = build(strategy)
    train(model, 3)
    # A full second, the same for all if their clocks are read within two of each other.
    threading.Timer(2 + -time.time() % 2, os.kill, [os.getpid(), signal.SIGKILL]).start()
    train(model, 1000000)


def killed_alone(strategy):
    os.kill(os.getpid(), signal.SIGKILL)


def killed_with_its_watchdog(strategy):
    model = build(strategy)
    train(model, 3)
    if strategy.rank == 1:
        job.start().process_end.watchdog._process.kill()
        os.kill(os.getpid(), signal.SIGKILL)
    train(model, 1000000)


def stopped(strategy):
    model = build(strategy)
    train(model, 3)
    if strategy.rank == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    train(model, 1000000)


def hung(strategy):
    model = build(strategy)
    train(model, 3)
    if strategy.rank == 1:
        time.sleep(1000)
    train(model, 1000000)


def out_of_memory(strategy):
    model = build(strategy)
    train(model, 3)
    if strategy.rank == 1:
        resource.setrlimit(resource.RLIMIT_AS, (2**32, 2**32))
        np.ones(2**30)
    train(model, 1000000)


def killed_for_memory(strategy):
    """Rank 1 moves to the control group that the environment names, and takes all its memory."""
    model = build(strategy)
    train(model, 3)
    if strategy.rank == 1:
        with open(os.environ['MEMORY_GROUP'], 'w') as file:
            file.write(str(os.getpid()))
        held = []
        while True:
            held.append(np.ones(2**20))
    train(model, 1000000)


def never_ends(strategy):
    model = build(strategy)
    train(model, 1)
    print('TRAINS', flush=True)
    train(model, 1000000)


def never_meets(strategy):
    """What happens is in `main`."""


def killed_before_it_meets(strategy):
    """What happens is in `main`."""


def killed_before_it_serves(strategy):
    """What happens is in `main`."""


def killed_before_the_job(strategy):
    """What happens is in `main`."""


def die(*arguments):
    os.kill(os.getpid(), signal.SIGKILL)


def wait(*arguments):
    print('WAITS PROCESS %d PORT 1' % os.getpid(), flush=True)
    time.sleep(1000)


def main(way):
    is_last = os.environ.get('HOROVOD_RANK') == '1'
    if way == 'first_killed_before_the_job':
        is_last, way = not is_last, 'killed_before_the_job'
    if way == 'killed_before_it_meets' and is_last:
        horovod_api.hvd.init = die
    if way == 'exception_at_the_start' and is_last:
        devices.card_of = no_card
    if way == 'exception_before_the_job' and is_last:
        raise KeyError('the user made a mistake')
    if way == 'never_meets':
        horovod_api.hvd.init = wait
    if way == 'killed_before_the_job' and is_last:
        os.kill(os.getpid(), signal.SIGKILL)
    if way in ('killed_before_the_job', 'killed_before_it_meets'):
        # Not in the environment of horovodrun, which has a value of its own for the workers.
        os.environ['HOROVOD_GLOO_TIMEOUT_SECONDS'] = '10'
    if way == 'killed_before_it_serves' and is_last:
        worker_servers.start_servers = die
    strategy = kp.ParallaxStrategy(step_timeout=STEP_TIMEOUT.get(way, 600))
    server = job.start().servers.server
    port = tf.compat.as_str(server.target).rsplit(':', 1)[1] if server else 1
    print('PROCESS %d PORT %s' % (os.getpid(), port), flush=True)
    tf.logging.set_verbosity(tf.logging.ERROR)
    globals()[way](strategy)


main(sys.argv[1])
