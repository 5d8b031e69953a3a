# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Which graphics cards the backend of Keras 3 computes on: those of this worker, and no others."""

from typing import Any, Sequence

import tensorflow as tf

from keras_parallax.errors import PlanError

_TOO_LATE = (
    'Rank %d: %s must use %s, but has taken other cards, or all memory of the card, already. Make '
    'the ParallaxStrategy before anything is computed, or choose the card before that.'
)


def _named(numbers: Sequence[int]) -> str:
    return 'graphics card ' + ', '.join(map(str, numbers)) if numbers else 'no graphics card'


def use_cards_of_tensorflow(numbers: Sequence[int], rank: int) -> None:
    """Has TensorFlow compute on some cards, whose memory it takes as it needs it.

    Args:
        numbers: the numbers of the cards; the script may have chosen the same before.
        rank: the rank of this process.

    Raises:
        PlanError: TensorFlow has computed on other cards, or has taken all memory of them.
    """
    cards = tf.config.list_physical_devices('GPU')
    if not cards:
        return
    wanted = [cards[number] for number in numbers]
    try:
        if tf.config.get_visible_devices('GPU') != wanted:
            tf.config.set_visible_devices(wanted, 'GPU')
        for card in wanted:
            if not tf.config.experimental.get_memory_growth(card):
                tf.config.experimental.set_memory_growth(card, True)
    except RuntimeError as error:
        raise PlanError(_TOO_LATE % (rank, 'TensorFlow', _named(numbers))) from error


def use_cards_of_jax(numbers: Sequence[int], rank: int) -> None:
    """Has JAX compute on some cards, and TensorFlow, which looks up rows, on none.

    Args:
        numbers: the numbers of the cards; the script may have chosen any before.
        rank: the rank of this process.

    Raises:
        PlanError: JAX has taken several cards already.
    """
    import jax
    from jax._src import xla_bridge

    use_cards_of_tensorflow((), rank)
    named = ','.join(map(str, numbers))
    if jax.config.values['jax_cuda_visible_devices'] not in ('all', named):
        return
    if not xla_bridge.backends_are_initialized():
        jax.config.update('jax_cuda_visible_devices', named)
    elif jax.default_backend() != 'cpu' and jax.local_device_count() > 1:
        raise PlanError(_TOO_LATE % (rank, 'JAX', _named(numbers)))


def use_cards(backend: str, config: Any, rank: int, size: int) -> None:
    """Has the backend of Keras 3 compute on the cards of this worker, and the engine on none.

    The only worker of a job leaves the backend as it is.

    Args:
        backend: the name of the backend; one that trains no models is left as it is.
        config: the `tf.ConfigProto` of the engine's sessions, which names the cards; it is changed.
        rank: the rank of this process.
        size: the number of workers.

    Raises:
        PlanError: the backend has taken other cards already.
    """
    numbers = [int(number) for number in config.gpu_options.visible_device_list.split(',')]
    use = {'tensorflow': use_cards_of_tensorflow, 'jax': use_cards_of_jax}.get(backend)
    if use is not None and size > 1:
        use(numbers, rank)
    # What the engine computes for Keras 3 it gets from the host's memory, and puts there.
    config.device_count['GPU'] = 0
