# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Life cycles of a model: compiled again, frozen, shared or saved after it was trained.

A life cycle is one function of a `Life`. Plain Keras and our workers run the same function; what it
has noted must be equal (`parallel/test_life_cycles.py`). To add one, write the function and give it
`@life_cycle(...)`, with the optimizers and the arguments of `ParallaxStrategy` to run it with.
"""

import contextlib
import os
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence

import h5py
import numpy as np
import reference
from frameworks import TF1_15, TF2, keras_module, tf

import keras_parallax as kp
from keras_parallax.checkpoint import save
from keras_parallax.engine.step.train_step import step_of
from keras_parallax.tuning.moves import replan

RANKS = 2
ROWS, WIDTH, IDS, SAMPLES = 12, 3, 2, 8
#: The architectures and numbers of shards that cases take in turn.
STRATEGIES = {
    'hybrid': {'partitions': 3},
    'whole': {'partitions': 1},
    'default': {},
    'ps': {'architecture': 'ps'},
    'allreduce': {'architecture': 'allreduce'},
    'auto': {'architecture': 'auto'},
}

#: Functions of a Keras package that make optimizers.
OPTIMIZERS = {
    'sgd': lambda keras: keras.optimizers.SGD(lr=0.1),
    'momentum': lambda keras: keras.optimizers.SGD(lr=0.1, momentum=0.9),
    'rmsprop': lambda keras: keras.optimizers.RMSprop(lr=0.01),
    'adagrad': lambda keras: keras.optimizers.Adagrad(lr=0.1, epsilon=0.01),
    'adadelta': lambda keras: keras.optimizers.Adadelta(lr=1.0),
    'adam': lambda keras: keras.optimizers.Adam(lr=0.01),
    'amsgrad': lambda keras: keras.optimizers.Adam(lr=0.01, amsgrad=True),
    'adamax': lambda keras: keras.optimizers.Adamax(lr=0.01),
    'nadam': lambda keras: keras.optimizers.Nadam(lr=0.01),
    'tf_momentum': lambda keras: tf.train.MomentumOptimizer(0.1, 0.9),
    'tf_rmsprop': lambda keras: tf.train.RMSPropOptimizer(0.01),
    'tf_adagrad': lambda keras: tf.train.AdagradOptimizer(0.1),
    'tf_adadelta': lambda keras: tf.train.AdadeltaOptimizer(1.0),
    'tf_adam': lambda keras: tf.train.AdamOptimizer(0.01),
    'tf_ftrl': lambda keras: tf.train.FtrlOptimizer(0.1),
}
if TF2:
    OPTIMIZERS['ftrl'] = lambda keras: keras.optimizers.Ftrl(0.1)
if TF2 and not TF1_15:
    OPTIMIZERS['scaled_adam'] = lambda keras: keras.mixed_precision.LossScaleOptimizer(
        keras.optimizers.Adam(0.01), dynamic=False, initial_scale=64.0
    )


class Life:
    """One life of models, in plain Keras or on a worker of ours.

    Args:
        keras: the Keras package.
        optimizer: a function of the package that makes an optimizer.
        folder: where files go.
        ranks: the number of workers whose joined batches are trained.
        strategy: the arguments of `ParallaxStrategy`; `None` for plain Keras.

    Attributes:
        rank: the rank of this process, or `None` in plain Keras.
        notes: the arrays that the life cycle has noted, a list.
    """

    def __init__(
        self,
        keras: Any,
        optimizer: Callable[[Any], Any],
        folder: str,
        ranks: int,
        strategy: Optional[Dict[str, Any]],
    ) -> None:
        self.keras, self._optimizer, self._folder = keras, optimizer, folder
        self._ranks, self._random = ranks, np.random.RandomState(3)
        self._arguments = strategy
        self.notes: List[np.ndarray] = []
        self.restart()

    def restart(self) -> None:
        """Forgets all models, and enters on another graph."""
        self.keras.backend.clear_session()
        is_plain = self._arguments is None
        self.strategy = None if is_plain else kp.ParallaxStrategy(**self._arguments)
        self.rank = None if is_plain else self.strategy.rank

    def use(self, **arguments: Any) -> None:
        """Goes on with another strategy on the same graph; plain Keras has none."""
        if self.strategy is not None:
            self.strategy = kp.ParallaxStrategy(**arguments)

    def scope(self) -> Any:
        """The strategy's scope; in plain Keras a context manager that does nothing."""
        return self.strategy if self.strategy is not None else contextlib.ExitStack()

    def optimizer(self) -> Any:
        """A new optimizer, not wrapped; that of plain Keras does not race with itself."""
        made = self._optimizer(self.keras)
        if self.strategy is not None:
            return made
        name, gated = type(made).__name__, reference.gated(made)
        type(gated).__name__ = name  # As it is saved.
        return gated

    def wrapped(self, **arguments: Any) -> Any:
        """A new optimizer, in `kp.ParallaxOptimizer` unless this is plain Keras."""
        made = self.optimizer()
        if self.strategy is None:
            return made
        with self.scope():
            name = 'tf.keras' if self.keras.__name__ != 'keras' or TF2 and not TF1_15 else 'keras'
            return kp.ParallaxOptimizer(made, keras=name, **arguments)

    def layer(self, kind: str, *arguments: Any, **named: Any) -> Any:
        """A layer of the package."""
        return getattr(self.keras.layers, kind)(*arguments, **named)

    def embedding(self, **named: Any) -> Any:
        """A table of `ROWS` rows that is not connected yet."""
        return self.layer('Embedding', ROWS, WIDTH, **dict({'name': 'table'}, **named))

    def model(self, table: Any = None, width: int = 4) -> Any:
        """A model of a table and two dense layers, with start values that are always the same.

        Args:
            table: an `Embedding` that another model may have, too; a new one if not given.
            width: of the first dense layer.
        """
        with self.scope():
            is_new = table is None or not table.built
            table = self.embedding() if table is None else table
            ids = self.layer('Input', (IDS,), dtype='int32')
            flat = self.layer('Flatten')(table(ids))
            output = self.layer('Dense', 1)(self.layer('Dense', width)(flat))
            model = self.keras.models.Model(ids, output)
        random = np.random.RandomState(5)
        weights = [random.uniform(-1, 1, weight.shape.as_list()) for weight in model.weights]
        if not is_new:
            # Trained weights of another model stay.
            weights[0] = model.layers[1].get_weights()[0]
        model.set_weights(weights)
        return model

    def compile(self, model: Any, optimizer: Any, **named: Any) -> None:
        """Compiles a model in the scope."""
        with self.scope():
            model.compile(optimizer, 'mse', **named)

    def replan(self, model: Any, **changes: Any) -> None:
        """Has a model's step follow another request from now on; plain Keras has no such thing."""
        if self.strategy is not None:
            step = step_of(model)
            replan(step, step.request._replace(**changes))

    def train(self, model: Any, steps: int = 2, weights: bool = False) -> None:
        """Trains some batches, of which a worker has its share, and notes what came of it.

        Args:
            model: the model.
            steps: how many batches.
            weights: whether samples have weights.
        """
        for _ in range(steps):
            ids = self._random.randint(0, ROWS - 2, (SAMPLES, IDS))
            targets = self._random.uniform(-1, 1, (SAMPLES, 1))
            of_samples = 1.0 + np.arange(SAMPLES) % (SAMPLES // self._ranks)
            batch = [self.share(part) for part in (ids, targets, of_samples)]
            model.train_on_batch(*batch[: 2 + weights])
        self.note(model)

    def share(self, joined: np.ndarray) -> np.ndarray:
        """What of a joined batch this worker has; all of it in plain Keras."""
        if self.rank is None:
            return joined
        size = len(joined) // self._ranks
        return joined[self.rank * size : (self.rank + 1) * size]

    def note(self, model: Any) -> None:
        """Notes the weights of a model, to be compared."""
        self.notes += model.get_weights()

    def note_slots(self, model: Any) -> None:
        """Notes what the optimizer of a model keeps, to be compared."""
        self.notes += model.optimizer.get_weights()

    def note_file(self, path: str) -> None:
        """Notes the state of the optimizer in a file of `model.save`, to be compared."""
        if self.rank in (0, None):
            with h5py.File(path, 'r') as file:
                group = file['optimizer_weights']
                self.notes += [group[name][()] for name in group.attrs['weight_names']]

    def path(self, name: str) -> str:
        """The path of a file: plain Keras and our workers have files of their own."""
        kind = 'plain' if self.rank is None else 'ours'
        return os.path.join(self._folder, '%s.%s' % (kind, name))

    def load(self, path: str) -> Any:
        """A model from a file, compiled as it was."""
        with self.scope():
            if self.strategy is not None:
                return kp.load_model(path)
            return reference.load_model(self.keras, path, type(self._optimizer(self.keras)))


class Case(NamedTuple):
    """A life cycle, with what it is run.

    Attributes:
        act: the function of a `Life`.
        optimizer: a name of `OPTIMIZERS`.
        strategy: a name of `STRATEGIES`.
        tolerance: greatest difference of an array, relative to its largest entry.
        is_covered: whether it runs with `--every` alone.
    """

    act: Callable[[Life], None]
    optimizer: str
    strategy: str
    tolerance: float
    is_covered: bool


#: Dict from names to `Case`s.
CASES: Dict[str, Case] = {}


def life_cycle(*runs: str, covered: Sequence[str] = (), tolerance: float = 1e-5) -> Callable:
    """Makes cases of a function of a `Life`.

    Args:
        *runs: an optimizer and a strategy each, such as `'adam hybrid'`; those whose optimizer this
            stack has not are left out.
        covered: more of these, which run with `--every` alone, for the others show the same.
        tolerance: as in `Case`.
    """

    def note(act: Callable[[Life], None]) -> Callable[[Life], None]:
        for run in (*runs, *covered):
            optimizer, strategy = run.split()
            if optimizer in OPTIMIZERS:
                name = '%s_%s_%s' % (act.__name__, optimizer, strategy)
                CASES[name] = Case(act, optimizer, strategy, tolerance, run in covered)
        return act

    return note


def run(
    case: Case, package: str, folder: str, ranks: int, strategy: Optional[Dict[str, Any]] = None
) -> List[np.ndarray]:
    """What a case notes: in plain Keras, or by a strategy of these arguments."""
    life = Life(keras_module(package), OPTIMIZERS[case.optimizer], folder, ranks, strategy)
    case.act(life)
    return life.notes


@life_cycle(
    'adagrad hybrid', 'tf_adam ps', covered=['tf_adagrad ps', 'adam default', 'adamax auto']
)
def compiled_again(life: Life) -> None:
    """Compile again with the same optimizer, which the script has not wrapped."""
    model, optimizer = life.model(), life.optimizer()
    life.compile(model, optimizer)
    life.train(model)
    life.compile(model, optimizer)
    life.train(model)


@life_cycle(
    'rmsprop hybrid',
    covered=[
        'adam default',
        'tf_momentum hybrid',
        'nadam ps',
        'adadelta whole',
        'adagrad allreduce',
    ],
)
def frozen(life: Life) -> None:
    """Freeze a layer, train, and unfreeze it: each time compiled with the same optimizer."""
    for number in (1, 3):  # The table, then a dense layer.
        model, optimizer = life.model(), life.wrapped()
        life.compile(model, optimizer)
        life.train(model)
        for trainable in (False, True):
            model.layers[number].trainable = trainable
            life.compile(model, optimizer)
            life.train(model)


@life_cycle(
    'tf_ftrl hybrid',
    'adam ps',
    covered=['adagrad hybrid', 'tf_rmsprop auto', 'tf_adadelta default', 'momentum whole'],
)
def weighted_later(life: Life) -> None:
    """Train without weights of samples, then with weights, then without."""
    model = life.model()
    life.compile(model, life.optimizer())
    for weights in (False, True, False):
        life.train(model, weights=weights)


@life_cycle('adam hybrid', covered=['tf_adagrad hybrid', 'momentum ps', 'tf_adam allreduce'])
def shared(life: Life) -> None:
    """Two models on one table, with one optimizer."""
    table, optimizer = life.embedding(), life.optimizer()
    first, second = life.model(table), life.model(table, width=2)
    for model in (first, second):
        life.compile(model, optimizer)
        life.train(model)
    life.train(first)
    life.train(second)


@life_cycle(
    'adagrad hybrid', 'adam ps', covered=['adam hybrid', 'ftrl hybrid', 'rmsprop allreduce']
)
def saved_when_compiled(life: Life) -> None:
    """Save between a second compile with the same optimizer and the first batch after it."""
    model, optimizer = life.model(), life.optimizer()
    life.compile(model, optimizer)
    life.train(model)
    life.compile(model, optimizer)
    life.note_slots(model)
    path = life.path('h5')
    if life.rank in (0, None):  # Nothing is collective.
        model.save(path)
        life.note_file(path)
    life.train(model)
    life.train(life.load(path))


@life_cycle('nadam hybrid', covered=['adagrad hybrid', 'adam ps'])
def loaded(life: Life) -> None:
    """Load a model that was saved, and train it with and without weights of samples."""
    model, path = life.model(), life.path('h5')
    life.compile(model, life.optimizer())
    life.train(model)
    model.save(path)
    model = life.load(path)
    life.train(model, weights=True)
    life.train(model)


@life_cycle('adam ps', covered=['adagrad hybrid', 'momentum hybrid', 'rmsprop allreduce'])
def saved_when_frozen(life: Life) -> None:
    """Save between the second compile, with a layer frozen, and the first batch after it.

    The file has slots of the frozen layer, so the optimizer of the loaded model begins anew.
    """
    for number in (1, 3):  # The table, then a dense layer.
        model, optimizer, path = life.model(), life.optimizer(), life.path('frozen.h5')
        life.compile(model, optimizer)
        life.train(model)
        model.layers[number].trainable = False
        life.compile(model, optimizer)
        model.save(path)
        loaded = life.load(path)
        life.train(loaded)
        life.notes.append(np.array(life.keras.backend.get_value(loaded.optimizer.iterations)))
        life.restart()


@life_cycle('adagrad hybrid')
def saved_when_steps_were_read(life: Life) -> None:
    """Save a model that has not trained yet, where the script has read the number of steps."""
    model, optimizer, path = life.model(), life.optimizer(), life.path('read.h5')
    assert optimizer.iterations is not None
    life.compile(model, optimizer)
    model.save(path)
    life.train(life.load(path))


@life_cycle('tf_adagrad hybrid', covered=['tf_adam ps'])
def resumed(life: Life) -> None:
    """Go on from a checkpoint, first with weights of samples. Plain Keras has the model still."""
    model, path = life.model(), life.path('h5')
    life.compile(model, life.optimizer())
    life.train(model)
    if life.strategy is not None:
        if life.rank == 0:
            save.save(model, path)
        life.restart()
        model = life.model()
        life.compile(model, life.optimizer())
        life.strategy.resume(model, path)
    life.train(model, weights=True)


@life_cycle('momentum hybrid', covered=['tf_adam hybrid', 'adam hybrid'])
def begun_anew(life: Life) -> None:
    """Compile with another optimizer, then with the first one; then build all in another graph."""
    for _ in range(2):
        model, first = life.model(), life.optimizer()
        for optimizer in (first, life.optimizer(), first):
            life.compile(model, optimizer)
            life.train(model)
        life.restart()


@life_cycle('tf_momentum hybrid', covered=['adagrad hybrid', 'amsgrad ps'])
def moved(life: Life) -> None:
    """Tables get other shards, are trained again from anew, become dense, and get shards again."""
    model, optimizer = life.model(), life.optimizer()
    life.compile(model, optimizer)
    life.train(model)
    whole = {'architecture': 'allreduce', 'partitions': None}
    for changes in ({'partitions': 5}, whole, {'architecture': 'hybrid'}):
        life.replan(model, **changes)
        life.train(model)
    life.compile(model, optimizer)
    life.train(model)


@life_cycle('scaled_adam hybrid')
def scaled(life: Life) -> None:
    """An optimizer that scales the loss for another one, which two such share."""
    model, optimizer = life.model(), life.optimizer()
    for _ in range(2):
        life.compile(model, optimizer)
        life.train(model)
        life.train(model, weights=True)


@life_cycle('adam hybrid')
def amsgrad_later(life: Life) -> None:
    """Slots that were not there before begin anew, and those that were go on."""
    model, optimizer = life.model(), life.optimizer()
    for is_on in (False, True):
        optimizer.amsgrad = is_on
        life.compile(model, optimizer)
        life.train(model)


@life_cycle('adagrad hybrid')
def tables_of_another(life: Life) -> None:
    """An optimizer of tables beside that of the rest, which keep as many slots as one of all."""
    model = life.model()
    others = {} if life.strategy is None else {'tables': life.optimizer()}
    optimizer = life.wrapped(**others)
    for _ in range(2):
        life.compile(model, optimizer)
        life.train(model)
        life.train(model, weights=True)


@life_cycle('tf_adam hybrid', covered=['adam hybrid', 'adagrad hybrid'])
def sharded_later(life: Life) -> None:
    """A table gets shards after the optimizer has made slots of the whole table."""
    life.use(overrides={'table/embeddings': 'dense'})
    model, optimizer = life.model(), life.optimizer()
    life.compile(model, optimizer)
    life.train(model)
    life.use(partitions=3)
    life.compile(model, optimizer)
    life.train(model)


@life_cycle('adam hybrid', covered=['adagrad ps', 'momentum default'])
def fitted_when_moved(life: Life) -> None:
    """`fit` begins with a broadcast, which leaves out the slots that a move has freed."""
    model = life.model()
    life.compile(model, life.optimizer())
    ids = np.arange(SAMPLES * IDS).reshape(SAMPLES, IDS) % (ROWS - 2)
    batch = [life.share(part) for part in (ids, np.linspace(-1.0, 1.0, SAMPLES).reshape(-1, 1))]
    whole = {'architecture': 'allreduce', 'partitions': None}
    for changes in ({}, whole, {'architecture': 'hybrid'}, whole):
        if changes:
            life.replan(model, **changes)
        model.fit(*batch, batch_size=SAMPLES, epochs=2, verbose=0)
        life.note(model)


@life_cycle(
    # Optimizers of Keras 2.4 and later refuse a constraint of a variable that is looked up.
    *([] if TF2 else ['adam ps', 'sgd hybrid']),
    covered=[] if TF2 else ['adadelta ps', 'adamax hybrid', 'adagrad ps'],
)
def constrained(life: Life) -> None:
    """A table with a constraint: every slot is stored, read alone and saved as in plain Keras."""
    limit = life.keras.constraints.MaxNorm(0.5, axis=0)
    model, path = life.model(life.embedding(embeddings_constraint=limit)), life.path('limit.h5')
    life.compile(model, life.optimizer())
    life.train(model)
    life.notes += [life.keras.backend.get_value(one) for one in model.optimizer.weights]
    model.save(path)
    life.note_file(path)


def penalized(life: Life) -> Any:
    """A table with a regularizer; two of its rows are never looked up."""
    return life.embedding(embeddings_regularizer=life.keras.regularizers.l2(0.05))


@life_cycle('adam ps', covered=['sgd hybrid', 'momentum allreduce'])
def penalty_of_each_loss(life: Life) -> None:
    """Losses that Keras builds one after the other have a penalty each."""
    model = life.model(penalized(life))
    life.compile(model, life.optimizer())
    for weights in (True, False, True):
        life.train(model, 1, weights=weights)
    life.compile(model, life.optimizer(), metrics=['mae'])
    life.train(model, 1)
    ids, targets = np.ones((SAMPLES, IDS)), np.ones((SAMPLES, 1))
    loss, _ = model.evaluate(ids, targets, sample_weight=np.ones(SAMPLES), verbose=0)
    life.notes.append(np.array(loss))
    life.train(model, 1, weights=True)


@life_cycle('adagrad hybrid')
def penalty_of_a_loaded_model(life: Life) -> None:
    """A model from a file is trained with weights of samples, which it was not compiled for."""
    model = life.model(penalized(life))
    life.compile(model, life.optimizer())
    life.train(model)
    model.save(life.path('penalized.h5'))
    if life.strategy is None:
        life.keras.backend.clear_session()
    model = life.load(life.path('penalized.h5'))
    for weights in (True, False, True):
        life.train(model, 1, weights=weights)


@life_cycle('sgd default', covered=['adagrad ps'])
def penalty_of_two_models(life: Life) -> None:
    """Two models on a table whose penalty counts three times in the loss of the second."""
    backend = life.keras.backend
    # Of a user's own regularizer one owner needs the whole table.
    table = life.embedding(
        embeddings_regularizer=lambda rows: 0.1 * backend.sqrt(backend.sum(backend.square(rows)))
    )
    first, second = life.model(table), life.model(table, width=2)
    life.compile(first, life.optimizer())
    with life.scope():
        more = 2.0 * sum(table.losses)
        mean = life.keras.losses.mean_squared_error
        second.compile(life.optimizer(), lambda *given: mean(*given) + more)
    for model in (first, second, first):
        life.train(model)


def tied(life: Life, table: Any) -> Any:
    """A model that looks a table up, and multiplies with the whole of it."""
    backend = life.keras.backend
    with life.scope():
        ids = life.layer('Input', (IDS,), dtype='int32')
        summed = life.layer('Lambda', lambda rows: backend.sum(rows, axis=1))(table(ids))
        multiplied = life.layer(
            'Lambda', lambda rows: backend.dot(rows, backend.transpose(table.weights[0]))
        )(summed)
        output = life.layer('Dense', 1, kernel_initializer='ones')(multiplied)
        return life.keras.models.Model(ids, output)


@life_cycle(
    'adam default', covered=['sgd hybrid', 'adagrad ps', 'tf_adam hybrid', 'momentum whole']
)
def read_whole_later(life: Life) -> None:
    """A table that was trained by rows is read whole by a second model."""
    table = life.embedding()
    first = life.model(table)
    life.compile(first, life.optimizer())
    life.train(first)
    second = tied(life, table)
    life.compile(second, life.optimizer())
    for model in (second, first, second):
        life.train(model, 1)
    life.notes.append(second.predict(np.arange(SAMPLES * IDS).reshape(SAMPLES, IDS) % ROWS))


@life_cycle('adagrad default', covered=['sgd hybrid', 'adam ps'])
def read_whole_by_a_new_loss(life: Life) -> None:
    """A model is compiled with a loss that reads its table whole, and then with its former one."""
    backend, model = life.keras.backend, life.model()
    mean, table = life.keras.losses.mean_squared_error, model.layers[1].weights[0]
    losses = [mean, lambda *given: mean(*given) + 0.05 * backend.sum(backend.square(table))]
    for loss in (*losses, losses[0]):
        with life.scope():
            model.compile(life.optimizer(), loss)
        life.train(model)


@life_cycle('adam hybrid', covered=['sgd ps', 'momentum default', 'adagrad allreduce'])
def read_whole_first(life: Life) -> None:
    """The first of three models reads a table whole, the second looks it up only."""
    table = life.embedding(embeddings_initializer='ones')
    first = tied(life, table)
    second, third = life.model(table), tied(life, table)
    for model in (first, second, third):
        life.compile(model, life.optimizer())
    for model in (first, second, third, second, first):
        life.train(model, 1)


@life_cycle('sgd hybrid')
def read_whole_without_a_gradient(life: Life) -> None:
    """A second model reads a table whole, and holds the gradient of that still."""
    table, backend = life.embedding(), life.keras.backend
    first, second = life.model(table), life.model(table, width=2)
    life.compile(first, life.optimizer())
    life.train(first)
    with life.scope():
        held = backend.stop_gradient(backend.sum(table.weights[0]))
        mean = life.keras.losses.mean_squared_error
        second.compile(life.optimizer(), lambda *given: mean(*given) * held)
    life.train(second)
    life.train(first)


@life_cycle('adagrad hybrid')
def read_whole_of_several_batches(life: Life) -> None:
    """Gradients of two batches are exchanged at once, those of a whole read too."""
    table = life.embedding()
    arguments = {'accumulate_steps': 2}
    first, second = life.model(table), tied(life, table)
    for model in (first, second):
        life.compile(model, life.wrapped(**arguments))
    for model in (first, second, first):
        ids = np.arange(2 * SAMPLES * IDS).reshape(2 * SAMPLES, IDS) % (ROWS - 2)
        targets = np.linspace(-1.0, 1.0, 2 * SAMPLES).reshape(-1, 1)
        batches = 1 if life.strategy is None else 2
        shares = [np.split(life.share(part), batches) for part in (ids, targets)]
        for batch in zip(*shares):
            model.train_on_batch(*batch)
        life.note(model)
