# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""`kp.callbacks.ModelCheckpoint` in one process: what it keeps, and what it refuses."""

import os
import warnings

import cases
import h5py
import horovod.keras as hvd
import numpy as np
import pytest
from any_keras import keras
from frameworks import keras_module, tf

import keras_parallax as kp
from keras_parallax.callbacks.save_clock import SaveClock
from keras_parallax.checkpoint import resume

TF_KERAS = keras_module('tf.keras')


@pytest.fixture
def model():
    keras.backend.clear_session()
    with kp.ParallaxStrategy() as strategy:
        made = cases.CASES['adam'].model(keras)
        made.compile(kp.ParallaxOptimizer('adam'), 'mse')
    made.strategy = strategy
    yield made
    keras.backend.clear_session()


def fit(model, *callbacks, epochs=4, **arguments):
    ids, targets = cases.ids_and_targets(np.random.RandomState(0), 12)
    model.fit(ids, targets, 6, epochs, verbose=0, callbacks=list(callbacks), **arguments)


FORMS = pytest.mark.parametrize('sharded', [False, True], ids=['single', 'sharded'])


@FORMS
def test_the_newest_checkpoints_are_kept_and_the_files_of_others(model, sharded, tmpdir):
    pattern = str(tmpdir.join('model-{epoch:02d}'))

    def callback(filepath=pattern, **arguments):
        return kp.callbacks.ModelCheckpoint(filepath, sharded=sharded, **arguments)

    # Another callback's, under a name that a wildcard would take for one of this one's.
    fit(model, callback(str(tmpdir.join('model-best'))), epochs=1)
    # A user's own files, under names that this callback might have given but will not.
    model.save(str(tmpdir.join('model-90')))
    fit(model, callback(str(tmpdir.join('kept'))), epochs=1)
    os.rename(str(tmpdir.join('kept')), str(tmpdir.join('model-91')))
    tmpdir.join('model-92').write('of the user')
    others = ['model-90', 'model-91', 'model-92', 'model-best']
    # Left by a process that was killed while it saved, and by one that saves something else.
    tmpdir.join('.model-03.0123456789abcdef.part').write('half')
    tmpdir.join('.model-best.0123456789abcdef.part').write('half')
    fit(model, callback(max_to_keep=2))
    assert sorted(os.listdir(str(tmpdir))) == sorted(
        ['.model-best.0123456789abcdef.part', 'model-03', 'model-04'] + others
    )
    # Those of an earlier process count, too.
    fit(model, callback(max_to_keep=1), epochs=1)
    left = [name for name in os.listdir(str(tmpdir)) if not name.startswith('.')]
    assert sorted(left) == sorted(['model-01'] + others)
    assert model.strategy.resume(model, str(tmpdir.join('model-01'))) == 1


@FORMS
def test_the_checkpoint_of_another_callback_is_not_the_latest(model, sharded, tmpdir):
    pattern, best = str(tmpdir.join('model-{epoch:02d}.h5')), str(tmpdir.join('model-best.h5'))
    assert kp.latest_checkpoint(pattern) is None
    fit(model, kp.callbacks.ModelCheckpoint(best, sharded=sharded), epochs=1)
    assert kp.latest_checkpoint(pattern) is None
    fit(model, kp.callbacks.ModelCheckpoint(pattern, sharded=sharded), epochs=2)
    fit(model, kp.callbacks.ModelCheckpoint(best, sharded=sharded), epochs=1)
    assert kp.latest_checkpoint(pattern) == pattern.format(epoch=2)
    assert kp.latest_checkpoint(best) == best


def test_checkpoints_are_known_where_their_folder_was_moved_to(model, tmpdir):
    pattern = str(tmpdir.join('before', '{epoch}', 'model-{loss:.1e}.h5'))
    fit(model, kp.callbacks.ModelCheckpoint(pattern), epochs=2)
    os.rename(str(tmpdir.join('before')), str(tmpdir.join('after')))
    pattern = pattern.replace('before', 'after')
    assert kp.latest_checkpoint(pattern).startswith(str(tmpdir.join('after', '2')))
    fit(model, kp.callbacks.ModelCheckpoint(pattern, max_to_keep=1), epochs=1)
    left = [names for _, _, names in os.walk(str(tmpdir)) if names]
    assert len(left) == 1 and kp.latest_checkpoint(pattern).endswith(left[0][0])


@FORMS
def test_a_file_of_the_user_in_the_folder_of_a_checkpoint_is_kept(model, sharded, tmpdir):
    pattern = str(tmpdir.join('{epoch}', 'model' if not sharded else ''))
    notes = tmpdir.join('1', 'notes.txt')
    write = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: epoch == 0 and notes.write('of the user')
    )
    fit(model, kp.callbacks.ModelCheckpoint(pattern, sharded=sharded, max_to_keep=1), write)
    assert notes.read() == 'of the user'
    assert os.listdir(str(tmpdir.join('1'))) == ['notes.txt']


def test_a_damaged_checkpoint_is_not_the_latest(model, tmpdir):
    pattern = str(tmpdir.join('{epoch}.h5'))
    fit(model, kp.callbacks.ModelCheckpoint(pattern), epochs=2)
    newest = tmpdir.join('2.h5')
    newest.write(newest.read('rb')[:1000], 'wb')
    assert kp.latest_checkpoint(pattern) == str(tmpdir.join('1.h5'))


def test_only_an_improved_model_is_saved(model, tmpdir):
    callback = kp.callbacks.ModelCheckpoint(
        str(tmpdir.join('{epoch}.h5')), 'loss', save_best_only=True, mode='max'
    )
    fit(model, callback)
    assert os.listdir(str(tmpdir)) == ['1.h5']
    assert callback.best > 0


@pytest.mark.parametrize('sharded', [False, True], ids=['single', 'sharded'])
def test_the_best_model_is_not_replaced_by_a_worse_one_after_a_resume(model, sharded, tmpdir):
    pattern = str(tmpdir.join('{epoch}'))

    def best():
        return kp.callbacks.ModelCheckpoint(
            pattern, 'loss', save_best_only=True, mode='max', sharded=sharded
        )

    first = best()
    # The loss falls, so the first epoch is the best of them.
    fit(model, first, epochs=2)
    assert model.strategy.resume(model, kp.latest_checkpoint(pattern)) == 1
    again = best()
    fit(model, again, initial_epoch=1)
    assert again.best == first.best
    assert os.listdir(str(tmpdir)) == ['1']
    # Training that begins anew is not measured by what lies there.
    fit(model, best(), epochs=1)
    assert kp.latest_checkpoint(pattern) == str(tmpdir.join('1'))
    assert resume.state_of(str(tmpdir.join('1')))['best']['loss'] < first.best


def test_weights_alone_are_saved_when_asked(model, tmpdir):
    path = str(tmpdir.join('model.h5'))
    fit(model, kp.callbacks.ModelCheckpoint(path, save_weights_only=True), epochs=1)
    weights = model.get_weights()
    model.set_weights([0 * weight for weight in weights])
    model.load_weights(path)
    for one, other in zip(model.get_weights(), weights):
        np.testing.assert_array_equal(one, other)
    with pytest.warns(UserWarning, match='no state of an optimizer'):
        model.strategy.resume(model, path)


TENSORFLOWS = {
    'adam': lambda: tf.train.AdamOptimizer(0.01),
    'adagrad': lambda: tf.train.AdagradOptimizer(0.1),
    'momentum': lambda: tf.train.MomentumOptimizer(0.1, 0.9),
    'rmsprop': lambda: tf.train.RMSPropOptimizer(0.01, momentum=0.5, centered=True),
}


def with_tensorflows(package, optimizer):
    """A model in a graph of its own, with one of TensorFlow's optimizers."""
    package.backend.clear_session()
    with kp.ParallaxStrategy() as strategy:
        made = cases.CASES['adam'].model(package)
        name = 'keras' if package is keras else 'tf.keras'
        made.compile(kp.ParallaxOptimizer(optimizer, keras=name), 'mse')
    made.set_weights(cases.start_weights(made))
    made.strategy = strategy
    return made


@pytest.mark.parametrize(
    'name, package',
    [('adam', TF_KERAS), ('adagrad', keras), ('momentum', TF_KERAS), ('rmsprop', keras)],
)
def test_the_state_of_tensorflows_optimizers_is_in_our_checkpoint(name, package, tmpdir):
    unbroken = with_tensorflows(package, TENSORFLOWS[name]())
    pattern = str(tmpdir.join('{epoch}.h5'))
    np.random.seed(0)
    fit(unbroken, kp.callbacks.ModelCheckpoint(pattern))
    expected = unbroken.get_weights() + unbroken.optimizer.get_weights()
    resumed = with_tensorflows(package, TENSORFLOWS[name]())
    fit(resumed, epochs=1)
    assert resumed.strategy.resume(resumed, pattern.format(epoch=2)) == 2
    fit(resumed, kp.callbacks.ModelCheckpoint(str(tmpdir.join('other'))), initial_epoch=2)
    found = resumed.get_weights() + resumed.optimizer.get_weights()
    # Two dense layers and a table have five variables; each has a slot or more.
    assert len(found) == len(expected) >= 5 + 1 + 5
    for one, other in zip(found, expected):
        np.testing.assert_array_equal(one, other)


def test_the_file_of_a_model_with_tensorflows_optimizer_is_that_of_keras(tmpdir):
    ours = with_tensorflows(keras, TENSORFLOWS['adam']())
    with pytest.warns(UserWarning, match='TensorFlow optimizers do not make it possible'):
        ours.save(str(tmpdir.join('ours.h5')))
    with warnings.catch_warnings():
        warnings.simplefilter('error', UserWarning)
        fit(ours, kp.callbacks.ModelCheckpoint(str(tmpdir.join('checkpoint.h5'))), epochs=1)
    keras.backend.clear_session()
    plain = cases.CASES['adam'].model(keras)
    plain.compile(TENSORFLOWS['adam'](), 'mse')
    with pytest.warns(UserWarning):
        plain.save(str(tmpdir.join('plain.h5')))
    found = []
    for name in ('plain', 'ours', 'checkpoint'):
        with h5py.File(str(tmpdir.join(name + '.h5')), 'r') as file:
            found.append((sorted(file.attrs), dict(file.attrs), []))
            file.visit(found[-1][-1].append)
    assert found[0] == found[1]
    assert found[0][-1] == [path for path in found[2][-1] if not path.startswith('keras_parallax')]
    assert found[0][:2] == found[2][:2]


def test_the_state_of_another_optimizer_of_tensorflow_is_refused_by_name(tmpdir):
    pattern = str(tmpdir.join('{epoch}.h5'))
    fit(
        with_tensorflows(keras, TENSORFLOWS['adam']()),
        kp.callbacks.ModelCheckpoint(pattern),
        epochs=1,
    )
    for other in (TENSORFLOWS['adagrad'](), 'adam'):
        model = with_tensorflows(keras, other)
        with pytest.raises(kp.CheckpointError, match='with the optimizer AdamOptimizer'):
            model.strategy.resume(model, pattern.format(epoch=1))
    centered = tf.train.RMSPropOptimizer(0.1, centered=True)
    fit(with_tensorflows(keras, centered), kp.callbacks.ModelCheckpoint(pattern), epochs=1)
    model = with_tensorflows(keras, tf.train.RMSPropOptimizer(0.1))
    with pytest.raises(kp.CheckpointError, match='in the slots mg/'):
        model.strategy.resume(model, pattern.format(epoch=1))


class _Counting(tf.train.GradientDescentOptimizer):
    """A user's optimizer that keeps a slot of some variables only."""

    def _create_slots(self, var_list):
        self._zeros_slot(var_list[0], 'count', self._name)


def test_an_optimizer_whose_state_is_not_known_is_refused_at_the_start(tmpdir):
    model = with_tensorflows(keras, _Counting(0.1))
    with pytest.raises(kp.PlanError, match='_Counting'):
        fit(model, kp.callbacks.ModelCheckpoint(str(tmpdir.join('model.h5'))))
    assert not os.listdir(str(tmpdir))
    fit(
        model,
        kp.callbacks.ModelCheckpoint(str(tmpdir.join('model.h5')), save_weights_only=True),
        epochs=1,
    )
    assert os.listdir(str(tmpdir)) == ['model.h5']


def test_without_a_checkpoint_resume_changes_nothing(model, tmpdir):
    before = model.get_weights()
    latest = kp.latest_checkpoint(str(tmpdir.join('{epoch}.h5')))
    assert model.strategy.resume(model, latest) == 0
    for one, other in zip(model.get_weights(), before):
        np.testing.assert_array_equal(one, other)


@FORMS
def test_folders_on_the_way_to_a_checkpoint_are_made(model, sharded, tmpdir):
    pattern = str(tmpdir.join('no', 'such', '{epoch}', 'model.h5'))
    fit(model, kp.callbacks.ModelCheckpoint(pattern, sharded=sharded), epochs=2)
    assert kp.latest_checkpoint(pattern) == pattern.format(epoch=2)


def test_folders_on_the_way_to_a_saved_model_are_made(model, tmpdir):
    model.save(str(tmpdir.join('a', 'b', 'model.h5')))
    model.save_weights(str(tmpdir.join('c', 'd', 'model.h5')))
    assert keras.models.load_model(str(tmpdir.join('a', 'b', 'model.h5'))).count_params()
    model.load_weights(str(tmpdir.join('c', 'd', 'model.h5')))


@FORMS
def test_a_save_that_fails_raises_or_warns_as_asked(model, sharded, tmpdir):
    tmpdir.join('file').write('in the way')
    path = str(tmpdir.join('file', 'model.h5'))
    told = 'Not a directory|File exists'
    with pytest.raises(kp.CheckpointError, match=told) as caught:
        fit(model, kp.callbacks.ModelCheckpoint(path, sharded=sharded))
    assert path in str(caught.value) and 'MiB' not in str(caught.value)
    with pytest.warns(UserWarning, match='No checkpoint after epoch 2.*(%s)' % told):
        callback = kp.callbacks.ModelCheckpoint(path, sharded=sharded, on_save_error='warn')
        fit(model, callback, epochs=2)


@pytest.mark.parametrize(
    'argument',
    [{'on_save_error': 'ignore'}, {'max_to_keep': 0}, {'save_steps': 0}, {'save_seconds': 0}],
)
def test_arguments_that_mean_nothing_are_refused(argument):
    with pytest.raises(ValueError, match='%s must be' % list(argument)[0]):
        kp.callbacks.ModelCheckpoint('model.h5', **argument)


@pytest.mark.parametrize('steps', [-1, 1.5, True, '3'])
def test_only_a_number_of_batches_is_one(steps):
    with pytest.raises(ValueError, match='save_steps must be a number of batches.* %r' % (steps,)):
        kp.callbacks.ModelCheckpoint('model.h5', save_steps=steps)


@pytest.mark.parametrize('seconds', [-1, 0.0, True, '3', float('nan'), float('inf')])
def test_only_a_number_of_seconds_is_one(seconds):
    with pytest.raises(ValueError, match='save_seconds must be a number of seconds above 0'):
        kp.callbacks.ModelCheckpoint('model.h5', save_seconds=seconds)


@pytest.mark.parametrize('argument', [{'save_best_only': True}, {'period': 2}])
@pytest.mark.parametrize('within', ['save_steps', 'save_seconds'])
def test_what_looks_at_epochs_is_refused_with_steps_and_seconds(argument, within):
    told = '%s looks at epochs, but with %s' % (list(argument)[0], within)
    with pytest.raises(ValueError, match=told):
        kp.callbacks.ModelCheckpoint('model.h5', **argument, **{within: 3})


def test_a_metric_in_the_name_is_refused_with_steps():
    with pytest.raises(ValueError, match='but not loss and val_loss, which'):
        kp.callbacks.ModelCheckpoint('{epoch}-{val_loss:.1f}-{loss}.h5', save_steps=3)


@FORMS
def test_every_nth_batch_is_saved_counted_over_epochs(model, sharded, tmpdir, capsys):
    pattern = str(tmpdir.join('{epoch}-{batch:02d}'))
    fit(model, kp.callbacks.ModelCheckpoint(pattern, sharded=sharded, save_steps=3, verbose=1))
    # An epoch has two batches.
    assert sorted(os.listdir(str(tmpdir))) == ['2-01', '3-02']
    assert kp.latest_checkpoint(pattern) == pattern.format(epoch=3, batch=2)
    told = [line for line in capsys.readouterr().out.splitlines() if line]
    assert told == [
        'After batch %d of epoch %d: saving model to %s' % (batch, epoch, pattern.format(**numbers))
        for numbers in ({'epoch': 2, 'batch': 1}, {'epoch': 3, 'batch': 2})
        for epoch, batch in [(numbers['epoch'], numbers['batch'])]
    ]


@pytest.mark.parametrize('save_steps, expected', [
    (None, ['1-3', '2-2', '3-1', '3-4']), (5, ['1-3', '2-1', '2-4', '3-2']),
])  # fmt: skip
def test_it_saves_when_the_seconds_are_over_or_the_steps(model, save_steps, expected, tmpdir):
    """By a clock that a batch moves on by a second; an epoch has four batches."""
    callback = kp.callbacks.ModelCheckpoint(
        str(tmpdir.join('{epoch}-{batch}')), save_seconds=2.5, save_steps=save_steps
    )
    time = [0.0]
    callback._clock = SaveClock(2.5, lambda: time[0])

    def pass_a_second(batch, logs):
        time[0] += 1.0

    tick = keras.callbacks.LambdaCallback(on_batch_begin=pass_a_second)
    ids, targets = cases.ids_and_targets(np.random.RandomState(0), 12)
    model.fit(ids, targets, 3, 3, verbose=0, callbacks=[tick, callback])
    assert sorted(os.listdir(str(tmpdir))) == expected


@FORMS
def test_the_newest_of_those_after_batches_are_kept_beside_those_after_epochs(
    model, sharded, tmpdir
):
    steps = str(tmpdir.join('steps-{epoch}-{batch}'))
    fit(
        model,
        kp.callbacks.ModelCheckpoint(steps, sharded=sharded, save_steps=1, max_to_keep=2),
        kp.callbacks.ModelCheckpoint(str(tmpdir.join('best')), 'loss', save_best_only=True),
    )
    assert sorted(os.listdir(str(tmpdir))) == ['best', 'steps-4-1', 'steps-4-2']
    assert model.strategy.resume(model, str(tmpdir.join('best'))) == 4
    assert model.strategy.resume(model, kp.latest_checkpoint(steps)) == 3


@FORMS
def test_a_save_after_a_batch_that_fails_raises_or_warns_as_asked(model, sharded, tmpdir):
    tmpdir.join('file').write('in the way')
    arguments = {'sharded': sharded, 'save_steps': 3}
    path = str(tmpdir.join('file', 'model.h5'))
    with pytest.raises(kp.CheckpointError, match='Not a directory|File exists'):
        fit(model, kp.callbacks.ModelCheckpoint(path, **arguments))
    with pytest.warns(UserWarning, match='No checkpoint after batch 1 of epoch 2: '):
        fit(model, kp.callbacks.ModelCheckpoint(path, on_save_error='warn', **arguments), epochs=2)


def test_variables_of_one_process_that_are_larger_than_a_block_are_moved_in_blocks(
    model, monkeypatch, tmpdir
):
    """As if blocks were tiny: whatever is not a scalar goes block by block."""
    fit(model, epochs=1)
    weights, slots = model.get_weights(), model.optimizer.get_weights()
    model.save(str(tmpdir.join('plain.h5')))
    monkeypatch.setattr('keras_parallax.engine.tables.row_transfer.BLOCK_BYTES', 8)
    path = str(tmpdir.join('model.h5'))
    kp.save_model(model, path, block_bytes=100)
    loaded = keras.models.load_model(path)
    for one, other in zip(loaded.get_weights() + loaded.optimizer.get_weights(), weights + slots):
        np.testing.assert_array_equal(one, other)
    model.set_weights([0 * weight for weight in weights])
    model.optimizer.set_weights([0 * slot for slot in slots])
    assert model.strategy.resume(model, path) == 0
    for one, other in zip(model.get_weights() + model.optimizer.get_weights(), weights + slots):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize('case', ['sgd', 'adam'])
def test_without_a_strategy_keras_saves_and_loads_the_optimizers_state(case, tmpdir):
    hvd.init()
    keras.backend.clear_session()
    model, path = cases.CASES[case].model(keras), str(tmpdir.join('model.h5'))
    wrapped = kp.ParallaxOptimizer(cases.CASES[case].optimizer(keras), sparse_update='lazy')
    model.compile(wrapped, 'mse')
    fit(model, epochs=2)
    slots = model.optimizer.get_weights()
    model.save(path)
    loaded = keras.models.load_model(path).optimizer.get_weights()
    model.optimizer.set_weights([0 * slot for slot in slots])
    assert not any(slot.any() for slot in model.optimizer.get_weights())
    model.optimizer.set_weights(loaded)
    for one, other in zip(model.optimizer.get_weights(), slots):
        np.testing.assert_array_equal(one, other)
    keras.backend.clear_session()


@pytest.mark.parametrize('argument', [{'filepath': '{epohc}.h5'}, {'sharded': 'no'}])
def test_what_would_fail_after_an_epoch_is_refused_at_once(argument):
    with pytest.raises(ValueError, match='epohc|sharded must be True or False'):
        kp.callbacks.ModelCheckpoint(**{'filepath': '{epoch}.h5', **argument})


def test_a_field_that_no_metric_fills_is_told_with_those_that_one_does(model, tmpdir):
    callback = kp.callbacks.ModelCheckpoint(str(tmpdir.join('{epoch}-{click}.h5')))
    with pytest.raises(kp.CheckpointError, match='the field click, but .* epoch, loss'):
        fit(model, callback, epochs=1)
    # It may be known where it is filled, in every second epoch.
    path = str(tmpdir.join('{epoch}-{click:.0f}.h5'))

    def add(epoch, logs):
        logs.update({'click': 7.0} if epoch % 2 else {})

    callback = kp.callbacks.ModelCheckpoint(path, period=2)
    fit(model, keras.callbacks.LambdaCallback(on_epoch_end=add), callback, epochs=2)
    assert os.listdir(str(tmpdir)) == ['2-7.h5']
