# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""How good a model's weights are on samples that no worker trains on.

In a graph of its own, in plain Keras: the same judge for every system.
"""

import numpy as np

from works import models
from works.stack import K, keras, tf

#: No worker draws its batches from this worker's seed: see `models`.
HELD_OUT_RANK = 900
#: Words at a time, for each of which there is a probability of each word of the vocabulary.
_WORDS_AT_ONCE = 512


def perplexity(work, weights, batches=4):
    """Perplexity of a language model on the text that is held out, over the whole vocabulary.

    Args:
        work: a language model of `works`, of the demo's text.
        weights: its weights, a list of arrays as Keras orders them.
        batches: how many are judged.
    """
    kernel, bias = weights[-2:]
    work = models.language_model(**dict(work.options, words='held out'))
    with tf.Graph().as_default(), tf.Session().as_default():
        model, _ = work.build(models.Table, models.SampledSoftmax, HELD_OUT_RANK)
        hidden_of = keras.models.Model(model.inputs[:1], model.get_layer('softmax').input[0])
        hidden_of.set_weights(weights[:-2])
        losses = []
        for (ids, following), _ in work.batches(HELD_OUT_RANK, batches):
            hidden = hidden_of.predict(ids).reshape([-1, kernel.shape[1]])
            words = following.ravel()
            for first in range(0, len(words), _WORDS_AT_ONCE):
                chosen = slice(first, first + _WORDS_AT_ONCE)
                logits = hidden[chosen].dot(kernel.T) + bias
                logits -= logits.max(1, keepdims=True)
                right = logits[np.arange(len(logits)), words[chosen]]
                losses.append(np.log(np.exp(logits).sum(1)) - right)
    return float(np.exp(np.mean(np.concatenate(losses))))


def accuracy(work, weights, batches=4):
    """The share of samples whose class a model with one output, or one for each class, gets right.

    Args:
        work: a model of clicks, or of images.
        weights: as for `perplexity`.
        batches: as for `perplexity`.
    """
    with tf.Graph().as_default(), tf.Session().as_default():
        model, _ = work.build(models.Table, models.SampledSoftmax, HELD_OUT_RANK)
        model.set_weights(weights)
        right = []
        for inputs, targets in work.batches(HELD_OUT_RANK, batches):
            output = model.predict(inputs)
            if K.int_shape(model.output)[-1] == 1:
                right.append((output > 0.5) == (targets > 0.5))
            else:
                right.append(output.argmax(1) == targets.argmax(1))
    return float(np.mean(np.concatenate(right)))
