# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Which graphics cards the backend of Keras 3 computes on in a worker."""

import os
import subprocess
import sys

import pytest

pytest.importorskip('jax')
pytest.importorskip('keras', minversion='3')

import tensorflow as tf  # noqa: E402

import keras_parallax as kp  # noqa: E402
from keras_parallax.compat import keras3_cards, session_config  # noqa: E402


class Cards:
    """What `tf.config` says of cards, and is told, on a machine that has some.

    Args:
        monkeypatch: pytest's.
        number: how many cards there are.
        is_taken: whether TensorFlow has computed already.
    """

    def __init__(self, monkeypatch, number, is_taken=False):
        self.all = ['card %d' % card for card in range(number)]
        self.visible, self.growing, self._is_taken = list(self.all), set(), is_taken
        monkeypatch.setattr(tf.config, 'list_physical_devices', lambda kind: self.all)
        monkeypatch.setattr(tf.config, 'get_visible_devices', lambda kind: self.visible)
        monkeypatch.setattr(tf.config, 'set_visible_devices', self._set_visible)
        experimental = tf.config.experimental
        monkeypatch.setattr(experimental, 'get_memory_growth', lambda card: card in self.growing)
        monkeypatch.setattr(experimental, 'set_memory_growth', self._grow)

    def _check(self):
        if self._is_taken:
            raise RuntimeError('Physical devices cannot be modified after being initialized')

    def _set_visible(self, cards, kind):
        self._check()
        self.visible = cards

    def _grow(self, card, is_growing):
        self._check()
        assert is_growing
        self.growing.add(card)


def test_a_worker_computes_on_its_own_card_and_the_engine_on_none(monkeypatch):
    cards, config = Cards(monkeypatch, 4), session_config.of_worker(2)
    keras3_cards.use_cards('tensorflow', config, 2, 4)
    assert cards.visible == ['card 2'] and cards.growing == {'card 2'}
    assert config.device_count['GPU'] == 0


def test_the_only_worker_keeps_the_cards_of_plain_keras(monkeypatch):
    cards, config = Cards(monkeypatch, 4), session_config.of_worker(0)
    keras3_cards.use_cards('tensorflow', config, 0, 1)
    assert cards.visible == cards.all and not cards.growing
    assert config.device_count['GPU'] == 0


def test_a_script_may_have_chosen_the_card_and_computed_on_it(monkeypatch):
    cards = Cards(monkeypatch, 4, is_taken=True)
    cards.visible, cards.growing = ['card 1'], {'card 1'}
    keras3_cards.use_cards('tensorflow', session_config.of_worker(1), 1, 4)


@pytest.mark.parametrize('visible', [['card 0'], ['card 1']])
def test_a_card_that_cannot_be_taken_any_more_is_named(monkeypatch, visible):
    # The second one is right, but all its memory is taken.
    Cards(monkeypatch, 2, is_taken=True).visible = visible
    with pytest.raises(kp.PlanError, match='Rank 1: TensorFlow .* card 1'):
        keras3_cards.use_cards('tensorflow', session_config.of_worker(1), 1, 2)


def test_the_jax_backend_gets_the_card_and_tensorflow_none(monkeypatch):
    script = (
        'import jax, tensorflow as tf\n'
        'from keras_parallax.compat import keras3_cards, session_config\n'
        'tf.config.list_physical_devices = lambda kind: ["a", "b"]\n'
        'tf.config.get_visible_devices = lambda kind: ["a", "b"]\n'
        'tf.config.set_visible_devices = lambda cards, kind: print("TensorFlow", cards)\n'
        'keras3_cards.use_cards("jax", session_config.of_worker(1), 1, 2)\n'
        'print("JAX", jax.config.values["jax_cuda_visible_devices"])\n'
    )
    output = subprocess.check_output(
        [sys.executable, '-c', script],
        cwd=os.path.dirname(os.path.abspath(__file__)),
        env=dict(os.environ, KERAS_BACKEND='jax', TF_CPP_MIN_LOG_LEVEL='2'),
        universal_newlines=True,
    )
    assert output.splitlines() == ['TensorFlow []', 'JAX 1']
