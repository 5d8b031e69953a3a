# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What is drawn: strategies of hypothesis, whose first values are the simplest."""

from typing import Any, FrozenSet, List, NamedTuple

from hypothesis import strategies as st
from random_models import headers
from random_models.draws import (
    Action,
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

#: Parts of the vocabulary that can be left out, by what they draw.
PARTS = {
    'weights': 'weights of samples',
    'masks': 'masks that reach the loss',
    'sums': 'losses that sum over the batch',
    'weighted metrics': 'metrics that weigh samples',
    'tensorflow': 'optimizers of TensorFlow',
    'dense': 'tables that are made dense',
    'penalties': 'regularizers of tables',
    'constraints': 'constraints of tables',
    'again': 'a model that is compiled again with the same optimizer',
    'trainable': 'layers that are frozen',
    'add_loss': 'a penalty that is added later',
    'other': 'a second model on a table',
    'tied': 'a table that is also read whole',
    'accumulate': 'batches that are accumulated',
    'rows': 'lazy updates, and optimizers for tables, that have the numbers of plain Keras',
    'servers': 'shards on one server of a host',
    'files': 'saving, resuming and loading',
}

_KERAS_1 = [
    'SGD(0.1)',
    'Adagrad(0.1)',
    'Adam(0.01)',
    'SGD(0.1, momentum=0.9)',
    'SGD(0.1, momentum=0.9, nesterov=True)',
    'SGD(0.1, decay=0.1)',
    'RMSprop(0.01)',
    'Adadelta(1.0)',
    'Adam(0.01, amsgrad=True)',
    'Adamax(0.01)',
    'Nadam(0.01)',
    'SGD(0.1, clipnorm=0.2)',
    'Adagrad(0.1, clipvalue=0.02)',
]
_KERAS_2 = ['RMSprop(0.01, momentum=0.9)', 'RMSprop(0.01, centered=True)', 'Ftrl(0.1)']
_KERAS_2 += ['Ftrl(0.1, l1_regularization_strength=0.01, l2_regularization_strength=0.01)']
_TENSORFLOW = [
    'GradientDescentOptimizer(0.1)',
    'AdagradOptimizer(0.1)',
    'AdamOptimizer(0.01)',
    'MomentumOptimizer(0.1, 0.9)',
    'MomentumOptimizer(0.1, 0.9, use_nesterov=True)',
    'RMSPropOptimizer(0.01)',
    'RMSPropOptimizer(0.01, momentum=0.9)',
    'RMSPropOptimizer(0.01, centered=True)',
    'AdadeltaOptimizer(1.0)',
    'FtrlOptimizer(0.1)',
    'FtrlOptimizer(0.1, l1_regularization_strength=0.01, l2_regularization_strength=0.01)',
    'ProximalAdagradOptimizer(0.1, l2_regularization_strength=0.1)',
    'ProximalGradientDescentOptimizer(0.1, l1_regularization_strength=0.01)',
]
_CONTRIB = ['LazyAdam', 'Nadam', 'AdaMax', 'AddSign', 'PowerSign']
_OURS = ['kp.optimizers.LazyAdam(0.01)', 'kp.optimizers.RowwiseAdagrad(0.1)']
#: Optimizers that move only rows with a gradient: they are the same if updates are lazy.
_BY_ROW = [
    'keras.optimizers.' + name for name in ('SGD(0.1)', 'SGD(0.1, decay=0.1)', 'Adagrad(0.1)')
]
_BY_ROW += _OURS
_LAZY = _BY_ROW + ['tf.train.GradientDescentOptimizer(0.1)', 'tf.train.AdagradOptimizer(0.1)']

_STOPPING = [
    "keras.callbacks.EarlyStopping('loss', min_delta=9)",
    # It goes back to the weights after the first epoch.
    "keras.callbacks.EarlyStopping('loss', patience=1, mode='max', restore_best_weights=True)",
]
_KERAS_CHECKPOINT = "keras.callbacks.ModelCheckpoint('epoch.h5')"
_CHECKPOINTS = ["checkpoint('single.h5')", "checkpoint('parts', sharded=True)"]
_CHECKPOINTS += ["checkpoint('increments', incremental=True)"]
_RATE_CALLBACKS = [
    'keras.callbacks.LearningRateScheduler(lambda epoch: 0.1 / (1 + epoch))',
    "keras.callbacks.ReduceLROnPlateau('loss', patience=1, min_delta=9)",
]
_PENALTIES = ['keras.regularizers.l2(0.02)', 'keras.regularizers.l1_l2(0.01, 0.02)']
_CONSTRAINTS = ['keras.constraints.max_norm(0.4)', 'keras.constraints.non_neg()']
_CONSTRAINTS += ['keras.constraints.unit_norm(axis=1)']
_SUMMED = 'lambda targets, outputs: K.sum(K.square(targets - outputs))'
_SUM = "keras.losses.MeanSquaredError(reduction='sum')"


class Vocabulary(NamedTuple):
    """What a stack can be asked for.

    Attributes:
        package: the Keras package.
        is_2: whether its optimizers are those of TensorFlow 2.
        without: those of `PARTS` that are left out.
    """

    package: str
    is_2: bool
    without: FrozenSet[str] = frozenset()

    def has(self, part: str) -> bool:
        assert part in PARTS
        return part not in self.without

    @property
    def optimizers(self) -> List[str]:
        """The codes of optimizers, some several times."""
        keras = _KERAS_1 + _KERAS_2 * self.is_2
        found = ['keras.optimizers.' + name for name in keras] * 2
        if self.has('tensorflow'):
            found += ['tf.train.' + name for name in _TENSORFLOW]
            if not self.is_2:
                found += ['tf.contrib.opt.%sOptimizer(0.01)' % name for name in _CONTRIB]
        return found + _OURS

    @property
    def losses(self) -> List[str]:
        found = ["'mse'", "'mse'", "'binary_crossentropy'", "'mse'", "'logcosh'"]
        if self.has('sums'):
            found += [_SUMMED] + [_SUM] * self.is_2
        return found


def _maybe(draw: Any, values: List[Any], simplest: Any, one_in: int = 3) -> Any:
    """One of some values in a share of the draws, and the simplest one in all others."""
    if not values or draw(st.integers(0, one_in - 1)) != one_in - 1:
        return simplest
    return draw(st.sampled_from(values))


@st.composite
def _tables(draw: Any, words: Vocabulary) -> Table:
    penalties = _PENALTIES if words.has('penalties') else []
    rows, width = draw(st.sampled_from([7, 12, 5])), draw(st.sampled_from([2, 3, 1]))
    constraints = _CONSTRAINTS if words.has('constraints') else []
    return Table(rows, width, _maybe(draw, penalties, ''), _maybe(draw, constraints, '', 5))


@st.composite
def _networks(draw: Any, words: Vocabulary) -> Network:
    tables = tuple(draw(st.lists(_tables(words), min_size=1, max_size=2)))
    lookups = list(range(len(tables))) + _maybe(draw, [[0]], [])
    bodies = ['flat', 'recurrent', 'mean', 'steps']
    body = draw(st.sampled_from(bodies))
    masked = body == 'recurrent' or (body == 'steps' and words.has('masks'))
    masked = masked and _maybe(draw, [True], False, 2)
    tied = words.has('tied') and not masked and _maybe(draw, [True], False, 6)
    return Network(
        tables,
        tuple(lookups),
        masked,
        body,
        body != 'steps' and _maybe(draw, [True], False),
        _maybe(draw, [True], False),
        _maybe(draw, _PENALTIES, '', 5),
        tied,
        _maybe(draw, [2], 1, 4),
    )


@st.composite
def _data(draw: Any) -> Data:
    low, width = draw(st.sampled_from([0, 1, 3])), draw(st.integers(1, 4))
    return Data(
        draw(st.integers(0, 3)), low, low + width, draw(st.sampled_from([1, 2, 3, 1, 2, 12]))
    )


@st.composite
def _fits(draw: Any, words: Vocabulary) -> Fit:
    kinds = ['some', 'zeros', 'classes', 'steps'] if words.has('weights') else []
    weights = _maybe(draw, kinds, '', 2)
    way = draw(st.sampled_from(['fit', 'fit', 'fit', 'generator', 'batches']))
    callbacks = _STOPPING + _RATE_CALLBACKS + [_KERAS_CHECKPOINT]
    callbacks += _CHECKPOINTS * 2 if words.has('files') else []
    callback = _maybe(draw, callbacks, '', 4)
    alone = callback in _STOPPING and draw(st.booleans())
    epochs = 3 if callback else draw(st.sampled_from([1, 2]))
    other = words.has('other') and _maybe(draw, [True], False)
    return Fit(draw(_data()), weights, way, epochs, callback, alone, other)


@st.composite
def _changes(draw: Any, words: Vocabulary) -> Action:
    """What happens between two calls that train."""
    kinds = ['compile'] * 4 + ['rate', 'evaluate', 'predict']
    kinds += ['files'] * 4 * words.has('files')
    kinds += ['other'] * 2 * words.has('other') + ['add_loss'] * words.has('add_loss')
    kind = draw(st.sampled_from(kinds))
    same = words.has('again') and _maybe(draw, [False], True)
    if kind == 'compile':
        names = ['table0', 'out0', 'table1', 'hidden'] if words.has('trainable') else []
        name = _maybe(draw, names, '', 2)
        return Compile(same, ((name, draw(st.booleans())),) if name else ())
    if kind == 'files':
        return draw(st.sampled_from([Save(), Resume(), Load(), Save(alone=True)]))
    weights = ['', 'some'] if words.has('weights') else ['']
    found = {
        'rate': st.builds(Rate, st.sampled_from([0.05, 0.2])),
        'evaluate': st.builds(Evaluate, _data(), st.sampled_from(weights)),
        'predict': st.builds(Predict, _data()),
        'other': st.builds(Other, st.just(same), st.booleans()),
        'add_loss': st.just(AddLoss(same)),
    }
    return draw(found[kind])


@st.composite
def _actions(draw: Any, words: Vocabulary) -> List[Action]:
    """What is trained, and what happens before: nothing, one thing or two."""
    changes, found = st.lists(_changes(words), max_size=2), []
    for part in draw(st.lists(st.tuples(changes, _fits(words)), min_size=1, max_size=4)):
        found += part[0] + [part[1]]
    return found


@st.composite
def _strategy_arguments(draw: Any, words: Vocabulary, tables: int) -> str:
    names = ['table%d/embeddings' % number for number in range(tables)]
    found = []
    architecture = draw(st.sampled_from(['hybrid', 'ps', 'allreduce', 'auto', 'hybrid']))
    if architecture != 'hybrid':
        found.append('architecture=%r' % architecture)
    if words.has('dense'):
        dense = _maybe(draw, names, None)
        if dense and architecture == 'auto':
            found.append('density=%r' % {name: 1.0 for name in names})
        elif dense:
            found.append('overrides=%r' % {dense: 'dense'})
    if architecture != 'allreduce':
        partitions = [1, 3, 5, {names[0]: 3}, 'search']
        partitions = _maybe(draw, partitions, None)
        if partitions and not (partitions == 'search' and architecture == 'auto'):
            found.append('partitions=%r' % (partitions,))
        if words.has('servers'):
            found += _maybe(draw, [["servers='host'"]], [], 6)
    return ', '.join(found)


def _wrappings(words: Vocabulary, optimizer: str, strategy: str) -> List[str]:
    """The codes of arguments of `ParallaxOptimizer` with which the numbers are plain Keras's."""
    found = ['']
    if words.has('rows') and optimizer in _LAZY:
        found.append("sparse_update='lazy'")
    # An optimizer for tables is refused if a table may be dense.
    if words.has('rows') and optimizer in _BY_ROW and 'dense' not in strategy:
        if 'auto' not in strategy:
            found += ['tables=OPTIMIZER', "per_table={'table0': OPTIMIZER}"]
    return found


@st.composite
def draws(draw: Any, words: Vocabulary) -> Draw:
    """A draw of a vocabulary."""
    network = draw(_networks(words))
    optimizer = draw(st.sampled_from(words.optimizers))
    network = network._replace(
        tables=tuple(_constrainable(table, optimizer, words) for table in network.tables)
    )
    loss = draw(st.sampled_from(words.losses))
    accumulate = 1
    if words.has('accumulate'):
        accumulate = _maybe(draw, [2], 1, 6)
    metrics = ["metrics=['mae']"]
    metrics += ["weighted_metrics=['mse']"] * words.has('weighted metrics')
    strategy = draw(_strategy_arguments(words, len(network.tables)))
    found = Draw(
        network,
        optimizer,
        loss,
        _maybe(draw, metrics, ''),
        strategy,
        _maybe(draw, _wrappings(words, optimizer, strategy), None, 2),
        accumulate,
        draw(st.sampled_from([4, 8])) * accumulate,
        tuple(draw(_actions(words))),
    )
    return possible(found)


def _constrainable(table: Table, optimizer: str, words: Vocabulary) -> Table:
    """A table without its constraint if plain Keras cannot train it.

    TensorFlow's optimizers refuse the constraint of a variable whose gradient is `IndexedSlices`.
    With TensorFlow 2, Keras's own are of that kind, and a penalty makes the gradient a tensor.
    """
    is_keras = optimizer.startswith('keras.')
    is_trained = is_keras and bool(table.penalty or not words.is_2)
    return table if is_trained else table._replace(constraint='')


def _of_single_rows(network: Network) -> Network:
    """A network without penalties and constraints of tables, which concern rows of no batch."""
    tables = tuple(table._replace(penalty='', constraint='') for table in network.tables)
    return network._replace(tables=tables)


def is_tensorflows(optimizer: str) -> bool:
    """Whether an optimizer is not one of a Keras package."""
    return optimizer.startswith('tf.')


def can_load(draw: Draw) -> bool:
    """Whether plain Keras can make the model again from its file, and train on."""
    return not (is_tensorflows(draw.optimizer) or draw.network.tied or 'lambda' in draw.loss)


def possible(draw: Draw) -> Draw:
    """A draw without what plain Keras cannot do: actions are left out or made simpler."""
    if 'density' in draw.strategy:  # It is refused for a table that is read whole.
        actions = tuple(action for action in draw.actions if not isinstance(action, AddLoss))
        draw = draw._replace(network=draw.network._replace(tied=False), actions=actions)
    by_table = headers.has_optimizers_of_tables(draw)
    if by_table or 'lazy' in (draw.wrapping or ''):
        draw = draw._replace(network=_of_single_rows(draw.network))
    lowest = min(table.rows for table in draw.network.tables)
    temporal = draw.network.body == 'steps' and any(
        isinstance(action, Fit) and action.weights == 'steps' for action in draw.actions
    )
    layers = ['table%d' % number for number in range(len(draw.network.tables))]
    # A strategy may name no table that is frozen.
    layers = [] if 'table' in draw.strategy else layers
    layers += ['out0'] + ['hidden'] * draw.network.hidden
    found, checkpoint, other, added = [], '', False, False
    for action in draw.actions:
        kind = type(action)
        if hasattr(action, 'data'):
            action = action._replace(data=_within(action.data, lowest))
        if kind is Fit:
            action = _possible_fit(action, draw, temporal, other)
        elif kind is Evaluate and action.weights and temporal:
            action = action._replace(weights='steps')
        elif kind is Compile:
            kept = tuple(pair for pair in action.trainable if pair[0] in layers)
            action = action._replace(trainable=kept)
        elif kind is Other:
            action = action._replace(whole=action.whole and 'density' not in draw.strategy)
        # Optimizers of tables have rates of their own.
        elif kind is Rate and (by_table or is_tensorflows(draw.optimizer)):
            continue
        elif kind is Resume and not checkpoint:
            continue
        # Keras saves no slots of such an optimizer.
        elif kind is Resume and is_tensorflows(draw.optimizer) and checkpoint == 'save':
            continue
        elif kind is Load and (not checkpoint or added or not can_load(draw)):
            continue
        if headers.is_saving(action):
            checkpoint = 'save' if kind is Save else action.callback
        other, added = other or kind is Other, added or kind is AddLoss
        found.append(action)
    if not any(isinstance(action, Fit) for action in found):
        found.append(Fit())
    return draw._replace(actions=tuple(found))


def _within(data: Data, rows: int) -> Data:
    low = min(data.low, rows - 1)
    return data._replace(low=low, high=max(low + 1, min(data.high, rows)))


def _possible_fit(fit: Fit, draw: Draw, temporal: bool, other: bool) -> Fit:
    fit = fit._replace(other=fit.other and other)
    if fit.weights:
        several = draw.network.outputs > 1 or draw.network.body == 'steps'
        weights = 'some' if fit.weights == 'classes' and several else fit.weights
        weights = 'steps' if temporal else 'some' if weights == 'steps' else weights
        fit = fit._replace(weights='' if fit.other else weights)
    has_one_rate = not (is_tensorflows(draw.optimizer) or headers.has_optimizers_of_tables(draw))
    if fit.callback in _RATE_CALLBACKS and not has_one_rate:
        fit = fit._replace(callback='')
    if fit.way == 'batches' or (fit.other and fit.callback in _CHECKPOINTS):
        fit = fit._replace(callback='')
    return fit if fit.callback in _STOPPING else fit._replace(alone=False)
