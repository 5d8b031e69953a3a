# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What a random model test draws: a network, its optimizer, a strategy, and what becomes of it.

A draw is plain data: `expression` gives the code that makes it again. `vocabulary.py` draws it,
`scripts.py` writes it as a script.
"""

from typing import Any, NamedTuple, Optional, Tuple, Union

#: Ids in a sample of an input.
LENGTH = 3


class Table(NamedTuple):
    """An embedding. Layers are named `table0`, `table1` and so on.

    Attributes:
        rows, width: its shape.
        penalty: the code of its regularizer, or `''`.
        constraint: the code of its constraint, or `''`.
    """

    rows: int = 7
    width: int = 2
    penalty: str = ''
    constraint: str = ''


class Network(NamedTuple):
    """A model of tables and dense layers.

    Attributes:
        tables: its tables.
        lookups: for each input of ids, the number of the table that it looks up.
        masked: whether id 0 is padding.
        body: what is made of the rows: `'flat'`, `'mean'`, `'recurrent'`, or `'steps'`, which has
            an output for each id.
        features: whether the model has an input of numbers besides.
        hidden: whether there is a hidden layer.
        penalty: the code of the regularizer of the kernel of the first output, or `''`.
        tied: whether the model also reads its first table whole.
        outputs: the number of outputs.
    """

    tables: Tuple[Table, ...] = (Table(),)
    lookups: Tuple[int, ...] = (0,)
    masked: bool = False
    body: str = 'flat'
    features: bool = False
    hidden: bool = False
    penalty: str = ''
    tied: bool = False
    outputs: int = 1


class Data(NamedTuple):
    """Batches of random samples: all ids are from `low` and below `high`.

    Attributes:
        seed: of the samples.
        low, high: bounds of the ids. Rows of other ids are not looked up.
        batches: the number of joined batches.
    """

    seed: int = 0
    low: int = 0
    high: int = 3
    batches: int = 1


class Fit(NamedTuple):
    """Training.

    Attributes:
        data: on what.
        weights: weights of samples: `''`, `'some'`, `'zeros'` (some are 0), `'steps'` (of each step
            of each sample) or `'classes'` (weights of classes).
        way: `'fit'`, `'generator'` or `'batches'` (`train_on_batch`).
        epochs: the number of epochs.
        callback: the code of a callback, or `''`.
        alone: whether only rank 0 has the callback.
        other: whether the model of the last `Other` is trained, not the first one.
    """

    data: Data = Data()
    weights: str = ''
    way: str = 'fit'
    epochs: int = 1
    callback: str = ''
    alone: bool = False
    other: bool = False


class Compile(NamedTuple):
    """The model is compiled again.

    Attributes:
        same: whether with the optimizer that it has, not with a new one.
        trainable: pairs of names of layers and what becomes of their `trainable` before.
    """

    same: bool = True
    trainable: Tuple[Tuple[str, bool], ...] = ()


class AddLoss(NamedTuple):
    """A penalty of the whole first table is added, and the model is compiled again.

    Attributes:
        same: as in `Compile`.
    """

    same: bool = True


class Other(NamedTuple):
    """Another model with the first table is built and compiled.

    Attributes:
        same: whether with the optimizer of the first model, not with a new one.
        whole: whether it also reads the table whole.
    """

    same: bool = True
    whole: bool = False


class Rate(NamedTuple):
    """The learning rate is set."""

    value: float = 0.05


class Evaluate(NamedTuple):
    """Every process evaluates the model on the same samples.

    Attributes:
        data: on what.
        weights: as in `Fit`.
    """

    data: Data = Data()
    weights: str = ''


class Predict(NamedTuple):
    """Every process predicts the same samples."""

    data: Data = Data()


class Save(NamedTuple):
    """The model is saved in a file of Keras.

    Attributes:
        alone: whether only rank 0 saves.
    """

    alone: bool = False


class Resume(NamedTuple):
    """The model gets the state that was saved last."""


class Load(NamedTuple):
    """A model is made from the file that was saved last, and takes the place of the first one."""


Action = Union[Fit, Compile, AddLoss, Other, Rate, Evaluate, Predict, Save, Resume, Load]


class Draw(NamedTuple):
    """A script.

    Attributes:
        network: the model.
        optimizer: the code of the optimizer.
        loss: the code of the loss.
        metrics: the code of further arguments of `compile`, or `''`.
        strategy: the code of the arguments of `ParallaxStrategy`.
        wrapping: the code of further arguments of the `ParallaxOptimizer` that the script makes, in
            which `OPTIMIZER` stands for the code of the optimizer; `None` if it makes none.
        accumulate_steps: an argument of it; more than 1 has the script make one.
        samples: the number of samples of a joined batch.
        actions: what becomes of the model after it was compiled.
    """

    network: Network = Network()
    optimizer: str = 'keras.optimizers.SGD(0.1)'
    loss: str = "'mse'"
    metrics: str = ''
    strategy: str = ''
    wrapping: Optional[str] = None
    accumulate_steps: int = 1
    samples: int = 4
    actions: Tuple[Action, ...] = (Fit(),)


def expression(value: Any) -> str:
    """The code that makes a draw, or a part of one, without what has its default value."""
    if isinstance(value, tuple) and not hasattr(value, '_fields'):
        parts = [expression(part) for part in value]
        return '(%s)' % (', '.join(parts) + ',' * (len(parts) == 1))
    if not isinstance(value, tuple):
        return repr(value)
    given = [
        '%s=%s' % (name, expression(part))
        for name, part, default in zip(value._fields, value, type(value)())
        if part != default
    ]
    return '%s(%s)' % (type(value).__name__, ', '.join(given))
