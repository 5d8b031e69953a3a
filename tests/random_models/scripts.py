# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Writes a draw as a script.

Plain Keras runs it in one process, on joined batches; two workers run it under `horovodrun`, each
on its share of them. Which of the two it is decides the header alone.
"""

from typing import Dict, List, Sequence

from random_models.draws import (
    LENGTH,
    AddLoss,
    Compile,
    Data,
    Draw,
    Evaluate,
    Fit,
    Load,
    Network,
    Other,
    Predict,
    Rate,
    Resume,
    Save,
    Table,
)
from random_models.headers import header, weighs

#: The weights of the classes of samples whose weights are those of classes.
CLASS_WEIGHTS = {0: 0.5, 1: 2.0}


def body(draw: Draw) -> str:
    """The part of a script that trains."""
    network = draw.network
    lines = ['with strategy:'] + ['    ' + line for line in _network(network, draw)]
    lines += ['    optimizer = made(%s)' % draw.optimizer]
    lines += ['    ' + _compile(draw, 'optimizer'), 'start(model)', 'models = [model]']
    for number, action in enumerate(draw.actions):
        lines += _ACTIONS[type(action)](action, draw, number)
    return '\n'.join(lines) + '\n'


def script(draw: Draw, package: str, servers: Sequence[str] = ()) -> str:
    """A script that stands alone; arguments as `header` takes them."""
    return header(draw, package, servers=servers) + '\n' + body(draw)


def continuation(draw: Draw, path: str) -> str:
    """The body of a script of plain Keras that goes on from a file, if Keras takes its slots."""
    lines = ['model = load(%r)' % path, 'models = [model]', "show('load')"]
    # If layers were frozen, slots in a file may be more than Keras has for the model then.
    lines += ['model._make_train_function()', 'with h5py.File(%r) as file:' % path]
    lines += ["    group = file.get('optimizer_weights')"]
    lines += ["    slots = None if group is None else len(group.attrs['weight_names'])"]
    lines += ["assert slots in (None, len(model.optimizer.weights)), 'it starts slots afresh'"]
    for number, action in enumerate([Fit(Data(seed=7)), Fit(Data(seed=8))]):
        lines += _fit(action, draw, number)
    return '\n'.join(lines) + '\n'


def _table(number: int, table: Table, masked: bool) -> str:
    arguments = ['%d' % table.rows, '%d' % table.width]
    arguments += ['embeddings_regularizer=' + table.penalty] * bool(table.penalty)
    arguments += ['embeddings_constraint=' + table.constraint] * bool(table.constraint)
    arguments += ['mask_zero=True'] * masked + ["name='table%d'" % number]
    return 'table%d = keras.layers.Embedding(%s)' % (number, ', '.join(arguments))


def _network(network: Network, draw: Draw) -> List[str]:
    lines, inputs = [], []
    for number, table in enumerate(network.tables):
        lines.append(_table(number, table, network.masked))
    for number, _ in enumerate(network.lookups):
        inputs.append('ids%d' % number)
        lines.append("ids%d = keras.layers.Input((%d,), dtype='int32')" % (number, LENGTH))
    rows = ['table%d(ids%d)' % (table, number) for number, table in enumerate(network.lookups)]
    value = rows[0] if len(rows) == 1 else 'keras.layers.concatenate([%s])' % ', '.join(rows)
    lines.append('value = ' + value)
    wrap = {
        'flat': 'keras.layers.Flatten()',
        'mean': 'keras.layers.GlobalAveragePooling1D()',
        'recurrent': "keras.layers.SimpleRNN(2, name='recurrent')",
    }
    if network.body in wrap:
        lines.append('value = %s(value)' % wrap[network.body])
    if network.features:
        inputs.append('features')
        lines.append('features = keras.layers.Input((2,))')
        lines.append('value = keras.layers.concatenate([value, features])')
    if network.hidden:
        lines.append("value = keras.layers.Dense(2, activation='tanh', name='hidden')(value)")
    if network.tied:
        first = network.tables[0]
        lines.append("value = keras.layers.Dense(%d, name='projected')(value)" % first.width)
        whole = 'keras.layers.Lambda(lambda x: K.dot(x, K.transpose(table0.embeddings)))'
        lines.append('value = %s(value)' % whole)
    outputs = []
    for number in range(network.outputs):
        arguments = ['1', "name='out%d'" % number]
        if 'crossentropy' in draw.loss:
            arguments.insert(1, "activation='sigmoid'")
        if network.penalty and number == 0:
            arguments.insert(1, 'kernel_regularizer=' + network.penalty)
        outputs.append('out%d' % number)
        lines.append('out%d = keras.layers.Dense(%s)(value)' % (number, ', '.join(arguments)))
    lines.append('model = keras.models.Model([%s], [%s])' % (', '.join(inputs), ', '.join(outputs)))
    return lines


def _compile(draw: Draw, optimizer: str, model: str = 'model') -> str:
    arguments = [optimizer, draw.loss]
    if model == 'model':
        arguments += [draw.metrics] * bool(draw.metrics)
        if any(action.weights == 'steps' for action in draw.actions if weighs(action)):
            arguments.append("sample_weight_mode='temporal'")
    return '%s.compile(%s)' % (model, ', '.join(arguments))


def _again(draw: Draw, same: bool, before: List[str] = ()) -> List[str]:
    lines = ['with strategy:'] + ['    ' + line for line in before]
    if not same:
        lines.append('    optimizer = made(%s)' % draw.optimizer)
    return lines + ['    ' + _compile(draw, 'optimizer')]


def _data(data, inputs: int = None) -> str:
    return 'x, y = data(%d, %d, %d, %d)' % (data.seed, data.low, data.high, data.batches)


def _fit(fit: Fit, draw: Draw, number: int) -> List[str]:
    lines = [_data(fit.data)]
    model, x, y = 'model', 'own(x)', 'own(y)'
    if fit.other:
        model, x, y = 'other', 'own(x[:1])', 'own(y[:1])'
        if draw.network.body == 'steps':
            y = 'own([y[0][:, 0]])'
    given, weighted = [x, y], fit.weights not in ('', 'classes') and not fit.other
    if weighted:
        lines.append('w = weights(%r, len(y[0]), %d)' % (fit.weights, fit.data.seed))
    weights = 'own(w)' if draw.network.outputs > 1 else 'own(w)[0]'
    label = '%d: fit' % number
    if fit.way == 'fit':
        given += ['batch_size=BATCH', 'epochs=%d' % fit.epochs, 'shuffle=False', 'verbose=0']
        given += ['sample_weight=' + weights] * weighted
    else:
        lines.append('made_batches = batches(%s)' % ', '.join([x, y] + ['own(w)'] * weighted))
        lines.append('steps = len(own(x)[0]) // BATCH')
        given = ['made_batches', 'steps', 'epochs=%d' % fit.epochs, 'verbose=0']
    if fit.weights == 'classes' and not fit.other:
        given.append('class_weight=%r' % (CLASS_WEIGHTS,))
    if fit.way == 'batches':
        arguments = '*batch'
        if fit.weights == 'classes':
            arguments += ', class_weight=%r' % (CLASS_WEIGHTS,)
        lines.append('for batch in itertools.islice(made_batches, %d * steps):' % fit.epochs)
        lines.append('    %s.train_on_batch(%s)' % (model, arguments))
        return lines + ["show('%s')" % label]
    callbacks = '[%s]' % fit.callback + ' * (RANK == 0)' * fit.alone
    given += ['callbacks=' + callbacks] * bool(fit.callback)
    method = 'fit' if fit.way == 'fit' else 'fit_generator'
    lines.append('history = %s.%s(%s)' % (model, method, ', '.join(given)))
    return lines + ["show('%s', history.history)" % label]


def _recompile(action: Compile, draw: Draw, number: int) -> List[str]:
    before = [
        'model.get_layer(%r).trainable = %r' % (name, value) for name, value in action.trainable
    ]
    return _again(draw, action.same, before)


def _add_loss(action: AddLoss, draw: Draw, number: int) -> List[str]:
    penalty = 'table0.add_loss(0.02 * K.sum(K.square(table0.embeddings)))'
    return _again(draw, action.same, [penalty])


def _other(action: Other, draw: Draw, number: int) -> List[str]:
    lines = ['with strategy:', "    ids = keras.layers.Input((%d,), dtype='int32')" % LENGTH]
    lines.append('    value = keras.layers.Lambda(lambda x: K.mean(x, 1))(table0(ids))')
    if action.whole:
        whole = 'keras.layers.Lambda(lambda x: K.dot(x, K.transpose(table0.embeddings)))'
        lines.append('    value = %s(value)' % whole)
    lines.append("    head = keras.layers.Dense(1, name='head%d')" % number)
    lines.append('    other = keras.models.Model([ids], [head(value)])')
    optimizer = 'optimizer' if action.same else 'made(%s)' % draw.optimizer
    lines.append('    other.compile(%s, %s)' % (optimizer, draw.loss))
    return lines + ['start(head)', 'models[1:] = [other]']


def _rate(action: Rate, draw: Draw, number: int) -> List[str]:
    return ['K.set_value(model.optimizer.lr, %r)' % action.value]


def _evaluate(action: Evaluate, draw: Draw, number: int) -> List[str]:
    lines = [_data(action.data)]
    given = ['x', 'y', 'batch_size=SAMPLES', 'verbose=0']
    if action.weights:
        lines.append('w = weights(%r, len(y[0]), %d)' % (action.weights, action.data.seed))
        given.append('sample_weight=' + ('w' if draw.network.outputs > 1 else 'w[0]'))
    value = 'np.ravel(model.evaluate(%s))' % ', '.join(given)
    return lines + ["show('%d: evaluate', dict(zip(model.metrics_names, %s)))" % (number, value)]


def _predict(action: Predict, draw: Draw, number: int) -> List[str]:
    return [_data(action.data), "show('%d: predict', {'values': model.predict(x)})" % number]


def _save(action: Save, draw: Draw, number: int) -> List[str]:
    return ['save(model, alone=%r)' % action.alone]


def _resume(action: Resume, draw: Draw, number: int) -> List[str]:
    return ['resume(model)', "show('%d: resume')" % number]


def _load(action: Load, draw: Draw, number: int) -> List[str]:
    lines = ['with strategy:', '    model = load()', "table0 = model.get_layer('table0')"]
    lines.append('optimizer, models[0] = model.optimizer, model')
    return lines + ["show('%d: load')" % number]


_ACTIONS: Dict[type, object] = {
    Fit: _fit,
    Compile: _recompile,
    AddLoss: _add_loss,
    Other: _other,
    Rate: _rate,
    Evaluate: _evaluate,
    Predict: _predict,
    Save: _save,
    Resume: _resume,
    Load: _load,
}
