# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""BLEU, by which translations are judged."""

import collections
import math


def bleu(translations, references, longest=4):
    """Returns how much translations are like the right ones, from 0 to 100.

    This is the BLEU of a corpus with one reference for each sentence (Papineni et al.,
    "BLEU: a Method for Automatic Evaluation of Machine Translation", 2002): the geometric
    mean of the fractions of its 1-, 2-, 3- and 4-grams that the references have, times a
    penalty if it is shorter than they are.

    Args:
        translations: Lists of words.
        references: The right ones, lists of words, in the same order.
        longest: The longest n-grams to count.
    """
    right, all_of_them = collections.Counter(), collections.Counter()
    for translation, reference in zip(translations, references):
        for n in range(1, longest + 1):
            found, wanted = _n_grams(translation, n), _n_grams(reference, n)
            right[n] += sum((found & wanted).values())
            all_of_them[n] += sum(found.values())
    if not all(right[n] for n in range(1, longest + 1)):
        return 0.0
    precision = sum(math.log(right[n] / all_of_them[n]) for n in right) / longest
    words, wanted = (sum(map(len, sentences)) for sentences in (translations, references))
    return 100 * math.exp(precision + min(0, 1 - wanted / words))


def _n_grams(words, n):
    return collections.Counter(zip(*(words[start:] for start in range(n))))
