# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The part of a script that has its helpers: what plain Keras and workers do differently."""

from typing import Sequence

from random_models.draws import LENGTH, Action, Draw, Evaluate, Fit, Save

_HEADER = '''\
# Plain Keras: PYTHONPATH=tests python script.py
# Two workers: PYTHONPATH=tests horovodrun -np 2 -H localhost:2 python script.py
import contextlib
import itertools
import os

import h5py
import numpy as np
from frameworks import keras_module, tf

RANK, RANKS = int(os.environ.get('HOROVOD_RANK', 0)), int(os.environ.get('HOROVOD_SIZE', 1))
SAMPLES = {samples}  # Of a joined batch.
keras = keras_module('{package}')
K = keras.backend
K.set_floatx('{floatx}')
{ours_everywhere}if RANKS > 1:
    import keras_parallax as kp

    BATCH = SAMPLES // RANKS // {accumulate}
    strategy = kp.ParallaxStrategy({strategy})
{ours}else:
    import reference  # It holds updates back until all gradients are there.

    BATCH = SAMPLES
    strategy = contextlib.ExitStack()
{plain}

def own(arrays):
    """Of each joined batch this worker's part."""
    batches = [np.split(array, len(array) // SAMPLES) for array in arrays]
    return [np.concatenate([np.split(part, RANKS)[RANK] for part in parts]) for parts in batches]


def data(seed, low, high, batches):
    random, size = np.random.RandomState(seed), batches * SAMPLES
    inputs = [random.randint(low, high, (size, {length})) for _ in range({inputs})]
    inputs += [random.uniform(-1, 1, (size, 2)) for _ in range({features})]
    targets = [random.randint(0, 2, (size, {target})) * 1.0 for _ in range({outputs})]
    return inputs, targets


def start(layer):
    random = np.random.RandomState(5)
    layer.set_weights([random.uniform(-0.5, 0.5, weight.shape) for weight in layer.get_weights()])


def show(label, numbers=()):
    print('rank %d: %s' % (RANK, label), numbers)
    for model in models:
        for weight, value in zip(model.weights, model.get_weights()):
            print(weight.name, value.tolist())

'''

_WEIGHTS = '''
def weights(kind, size, seed):
    random = np.random.RandomState(seed)
    found = random.uniform(0.5, 1.5, (size, {length}) if kind == 'steps' else size)
    if kind != 'some':
        found *= random.randint(0, 2, found.shape)
        found[::SAMPLES] = 1
    return [found] * {outputs}

'''

_BATCHES = '''
def batches(*arrays):
    for first in itertools.cycle(range(0, len(arrays[0][0]), BATCH)):
        yield tuple([array[first : first + BATCH] for array in part] for part in arrays)

'''

_OURS = {
    'made': '''\
    {made}
''',
    'save': '''\
    files = []

    def save(model, alone):
        if RANK == 0 or not alone:
            model.save('model.h5')
        files.append('model.h5')

    def load():
        return kp.load_model(files[-1]{tables})

    def resume(model):
        strategy.resume(model, files[-1])
''',
    'checkpoint': '''\

    def checkpoint(path, **arguments):
        files.append(path)
        return kp.callbacks.ModelCheckpoint(path, **arguments)
''',
}

_PLAIN = {
    'made': '''\
    def made(optimizer):
        name, gated = type(optimizer).__name__, reference.gated(optimizer)
        type(gated).__name__ = name  # As it is saved.
        return gated
''',
    'save': '''\
    files, saved = [], []

    def state(model):
        model._make_train_function()
        inner = getattr(model.optimizer, 'optimizer', None)
        slots = model.optimizer.weights if inner is None else inner.variables()
        rate = getattr(model.optimizer, 'lr', None)
        rates = [] if rate is None or files[-1] == 'model.h5' else [rate]
        return model.weights + rates + list(slots)

    def save(model, alone, path='model.h5'):
        model.save(path)
        files.append(path)
        with h5py.File(path, 'r') as file:
            # Keras saves no optimizer state before the first step; resuming keeps the state.
            has_slots = path != 'model.h5' or 'optimizer_weights' in file
        saved[:] = K.batch_get_value(state(model) if has_slots else model.weights)

    def load(path=None):
        return reference.load_model(keras, path or files[-1], {cls})

    def resume(model):
        variables = state(model)
        assert len(saved) in (len(model.weights), len(variables))
        K.batch_set_value(list(zip(variables, saved)))
''',
    'checkpoint': '''\

    def checkpoint(path, **arguments):
        return keras.callbacks.LambdaCallback(
            on_epoch_end=lambda epoch, logs: save(model, False, 'checkpoint.h5')
        )
''',
}


def header(draw: Draw, package: str, floatx: str = 'float32', servers: Sequence[str] = ()) -> str:
    """The part of a script that has the helpers.

    Args:
        draw: the draw.
        package: a Keras package.
        floatx: the precision in which all is computed.
        servers: addresses of dedicated servers for its shards, if there are any.
    """
    parts = ['made']
    if any(is_saving(action) for action in draw.actions):
        parts += ['save', 'checkpoint']
    made = 'made = lambda optimizer: optimizer'
    given = (draw.wrapping or '').replace('OPTIMIZER', draw.optimizer)
    if is_wrapped(draw):
        arguments = [given] if given else []
        if draw.accumulate_steps > 1:
            arguments.append('accumulate_steps=%d' % draw.accumulate_steps)
        wrapping = ', '.join(['optimizer'] + arguments)
        made = 'made = lambda optimizer: kp.ParallaxOptimizer(%s)' % wrapping
    network = draw.network
    texts = {
        'package': package,
        'floatx': floatx,
        'samples': draw.samples,
        'accumulate': draw.accumulate_steps,
        'strategy': _on_servers(draw.strategy, servers),
        'made': made,
        'cls': draw.optimizer.split('(')[0],
        # A file does not have the rates of optimizers of tables.
        'tables': ', ' + given if has_optimizers_of_tables(draw) else '',
        # Plain Keras trains with our optimizers, too.
        'ours_everywhere': 'import keras_parallax as kp\n\n' * draw.optimizer.startswith('kp.'),
        'length': LENGTH,
        'inputs': len(network.lookups),
        'features': int(network.features),
        'outputs': network.outputs,
        'target': '%d, 1' % LENGTH if network.body == 'steps' else '1',
    }
    texts['ours'] = ''.join(_OURS[part] for part in parts).format(**texts)
    texts['plain'] = ''.join(_PLAIN[part] for part in parts).format(**texts)
    text = _HEADER
    fits = [action for action in draw.actions if isinstance(action, Fit)]
    if any(action.weights not in ('', 'classes') for action in draw.actions if weighs(action)):
        text += _WEIGHTS
    if any(fit.way != 'fit' for fit in fits):
        text += _BATCHES
    return text.format(**texts)


def _on_servers(strategy: str, servers: Sequence[str]) -> str:
    """The code of a strategy's arguments with dedicated servers, if it has shards."""
    if not servers or 'allreduce' in strategy:
        return strategy
    kept = strategy.replace("servers='host'", '').rstrip(', ')
    return ', '.join(filter(None, [kept, 'servers=%r' % (list(servers),)]))


def is_saving(action: Action) -> bool:
    """Whether an action writes a file that may be resumed from."""
    return isinstance(action, Save) or getattr(action, 'callback', '').startswith('checkpoint')


def weighs(action: Action) -> bool:
    """Whether an action may have weights of samples."""
    return isinstance(action, (Fit, Evaluate))


def has_optimizers_of_tables(draw: Draw) -> bool:
    """Whether tables have an optimizer that is not the one of the model."""
    return bool(draw.wrapping) and 'table' in draw.wrapping


def is_wrapped(draw: Draw) -> bool:
    """Whether the script makes a `ParallaxOptimizer`."""
    return draw.wrapping is not None or draw.accumulate_steps > 1
