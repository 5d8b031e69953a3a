# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The state of an optimizer in a file that another generation of Keras has written.

Keras 2.2.4 lists weights that its formula has no use for (the last step of SGD without momentum,
one number for each variable of Adam without `amsgrad`), and for some optimizers not the number of
steps. Those of TensorFlow 1.15 and of Keras 2.4 and later, which take rows, list what they use.
What both list means the same, slot for slot; rates and the number of steps are among the
hyperparameters of a checkpoint.
"""

import re
from typing import Any, Container, Dict, List, Mapping, Optional, Tuple

from keras_parallax.errors import CheckpointError

#: With the same weights, layers compute otherwise in TensorFlow 2's Keras, unless this is given.
_GATES = 'recurrent_activation'
#: Numbers that an optimizer has in both, by their names in both.
_NAMES = {'lr': 'learning_rate', 'learning_rate': 'lr'}
#: What TensorFlow 1.15 calls its own Keras, whose optimizers are those of Keras 2.4.
_OF_1_15 = '2.2.4-tf'


def takes_rows(version: str) -> bool:
    """Whether optimizers of a version of Keras, `''` if it is not known, take rows."""
    numbers = [int(number) for number in re.findall(r'\d+', version)[:2]]
    return version == _OF_1_15 or numbers >= [2, 4]


def places(
    expected: List[Tuple[int, ...]], given: List[Tuple[int, ...]]
) -> Optional[List[Optional[int]]]:
    """Where in a file of the other generation each of an optimizer's weights is.

    Args:
        expected: the shapes of the optimizer's weights, a list of tuples.
        given: the shapes of those in the file.

    Returns:
        A list with the place of each in the file, or `None` if it is not there, which is no loss.
        `None` if the file is of another optimizer or model.

    Example:
        ```python
        >>> places([(), (3, 2), (3, 2)], [(), (3, 2), (3, 2), (1,)])  # Adam of Keras 2.2.4
        [0, 1, 2]
        >>> places([(3, 2)], [(), (3, 2)])  # Adagrad of Keras 2.15
        [1]
        ```
    """
    own, of_file = counters(expected), counters(given)
    slots, slots_of_file = expected[own:], given[of_file:]
    both = min(len(slots), len(slots_of_file))
    unused = slots[both:] + slots_of_file[both:]
    if slots[:both] != slots_of_file[:both] or (both and set(unused) - {(1,)}):
        return None
    first = [number if number < of_file else None for number in range(own)]
    return first + [of_file + number if number < both else None for number in range(len(slots))]


def counters(shapes: List[Tuple[int, ...]]) -> int:
    """How many weights come before the slots: single numbers, such as that of the steps."""
    return next((place for place, shape in enumerate(shapes) if shape), len(shapes))


def named(values: Mapping[str, Any], known: Container[str]) -> Dict[str, Any]:
    """Values of a checkpoint by the names that an optimizer has for them.

    Args:
        values: dict from names, of either generation, to numbers.
        known: the optimizer's own names.

    Returns:
        A dict, without those that it does not know.
    """
    found = {name if name in known else _NAMES.get(name, ''): values[name] for name in values}
    return {name: found[name] for name in found if name in known}


def gates(config: Any) -> List[Tuple[Any, Any]]:
    """What the gates of recurrent layers are.

    Args:
        config: the configuration of a model, from JSON.

    Returns:
        A list of pairs, the name of a layer and of its `recurrent_activation`, in their order.

    Example:
        ```python
        >>> gates({'layers': [{'config': {'name': 'lstm', 'recurrent_activation': 'sigmoid'}}]})
        [('lstm', 'sigmoid')]
        ```
    """
    if isinstance(config, dict):
        own = [(config.get('name'), config[_GATES])] if _GATES in config else []
        return own + gates(list(config.values()))
    return [pair for part in config for pair in gates(part)] if isinstance(config, list) else []


def check_gates(path: str, saved: Any, own: Any) -> None:
    """Checks that a model goes on with the gates that it had.

    Layers that are no longer as many, as where `LSTM` takes the place of `CuDNNLSTM`, are not
    compared.

    Args:
        path: the checkpoint's.
        saved: the configuration of the model in it, from JSON.
        own: that of the model that is to go on.

    Raises:
        CheckpointError: they differ, as defaults do between generations of Keras.
    """
    before, now = gates(saved), gates(own)
    if len(before) != len(now):
        return
    for (name, was), (layer, is_now) in zip(before, now):
        if was != is_now:
            raise CheckpointError(
                '%s was saved with %s=%r in the layer %s, but the model has %r in %s: Keras of '
                'TensorFlow 2 has another default than Keras 2.2.4. Build the model with %s=%r, or '
                'load the weights alone with model.load_weights.'
                % (path, _GATES, was, name, is_now, layer, _GATES, was)
            )
