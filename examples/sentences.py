# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Sentences as arrays of word ids, and pairs of them in two languages.

Pairs come from text files of two languages, in which a line translates the same
line of the other, as in WMT's data. Where there are none they are made: random
sentences of frequent and rare words in one language; in the other each word has
another, verbs are at the end, and adjectives follow their nouns.

Everything here is deterministic: workers that read the same files, or make as
many sentences, get the same ones without talking to each other.
"""

import collections
import itertools
import os

import numpy as np
from corpus import END, CorpusError, Vocabulary

#: Of what a sentence of the made language is, in turn: words of one of three kinds.
_NOUN, _VERB, _ADJECTIVE = range(3)
_SENTENCES = (
    (_NOUN, _VERB),
    (_NOUN, _VERB, _NOUN),
    (_ADJECTIVE, _NOUN, _VERB, _NOUN),
    (_NOUN, _VERB, _ADJECTIVE, _NOUN),
    (_ADJECTIVE, _NOUN, _VERB, _ADJECTIVE, _NOUN),
    (_NOUN, _VERB, _NOUN, _NOUN, _VERB, _NOUN),
)


class Pairs(collections.namedtuple('Pairs', 'name train held_out vocabularies')):
    """Sentences of two languages.

    Attributes:
        name: What was read, for people.
        train: The sentences to train on, a tuple of two lists: the first one's and the
            second one's. A sentence is a list of words.
        held_out: Other ones, to judge by.
        vocabularies: A `corpus.Vocabulary` for each of the two.
    """

    __slots__ = ()

    def describe(self):
        """Returns a few lines for the console."""
        sizes = ' and '.join(f'{len(vocabulary):,}' for vocabulary in self.vocabularies)
        return (
            f'{self.name}: {len(self.train[0]):,} sentences, '
            f'and {len(self.held_out[0]):,} held out\nvocabularies of {sizes} words'
        )


def read_pairs(folder, files, languages, vocabulary_size, most):
    """Reads sentences from files of two languages, one a line, with spaces between words.

    Args:
        folder: Folder with the files, such as ``train.en`` and ``train.de``.
        files: The names, without the languages, of those to train on and of those to judge by.
        languages: The endings of the names: of the language to read, and of the one to write.
        vocabulary_size: Upper limit for each vocabulary.
        most: Upper limits for the sentences to train on, and for those to judge by.

    Raises:
        CorpusError: A file cannot be read, or a line has none in the other language.
    """
    parts = []
    for name, limit in zip(files, most):
        paths = [os.path.join(folder, f'{name}.{language}') for language in languages]
        parts.append(tuple(_read_lines(path, limit) for path in paths))
        lengths = [len(sentences) for sentences in parts[-1]]
        if lengths[0] != lengths[1] or not lengths[0]:
            raise CorpusError(
                f'{paths[0]} has {lengths[0]} lines and {paths[1]} has {lengths[1]}; each line '
                'must be a sentence and have its translation.'
            )
    return _pairs(f'Sentences of {folder}', parts, vocabulary_size)


def _read_lines(path, limit):
    try:
        with open(path, encoding='utf-8') as lines:
            return [line.split() for line in itertools.islice(lines, limit)]
    except (OSError, UnicodeDecodeError) as error:
        raise CorpusError(f'{path} cannot be read: {error}.') from None


def make_pairs(vocabulary_size, most, seed=0):
    """Makes sentences of two languages; arguments are as above, and a seed."""
    random = np.random.RandomState(seed)
    kinds = vocabulary_size // 3
    frequency = 1 / np.arange(1, kinds + 1)  # Zipf's law, of each kind of words.
    frequency /= frequency.sum()
    parts = []
    for count in most:
        read, written = [], []
        numbers = iter(random.choice(kinds, 6 * count, p=frequency).tolist())
        for which in random.randint(0, len(_SENTENCES), count):
            kinds_of_words = _SENTENCES[which]
            words = [3 * next(numbers) + kind for kind in kinds_of_words]
            read.append([_word(word, 'bdfgklmnprstvw', 'aeiou') for word in words])
            order = _translated_order(kinds_of_words)
            written.append([_word(words[place], 'cfhjkmnqstvxyz', 'aeiou') for place in order])
        parts.append((read, written))
    return _pairs('A language made here', parts, vocabulary_size)


def _translated_order(kinds):
    """Where the words of the other language are: adjectives after nouns, verbs at the end."""
    others, verbs = [], []
    for place, kind in enumerate(kinds):
        if kind == _VERB:
            verbs.append(place)
        elif place and kinds[place - 1] == _ADJECTIVE:
            others.insert(-1, place)
        else:
            others.append(place)
    return others + verbs


def _word(number, consonants, vowels):
    """A word that no other number has."""
    syllables = ''
    while number or not syllables:
        number, vowel = divmod(number, len(vowels))
        number, consonant = divmod(number, len(consonants))
        syllables += consonants[consonant] + vowels[vowel]
    return syllables


def _pairs(name, parts, vocabulary_size):
    vocabularies = []
    for sentences in parts[0]:
        counts = collections.Counter(itertools.chain.from_iterable(sentences))
        counts[END] = len(sentences)
        vocabularies.append(Vocabulary.from_counts(counts, vocabulary_size))
    return Pairs(name, parts[0], parts[1], tuple(vocabularies))


def padded_front(sentences, steps, end):
    """Returns sentences as an array of ids, with `end` before those that are shorter.

    So a recurrent layer ends with the last word.

    Args:
        sentences: Arrays of ids.
        steps: Words to keep of each, the width of the array.
        end: The id of END.
    """
    padded = np.full((len(sentences), steps), end, np.int32)
    for row, ids in zip(padded, sentences):
        row[max(0, steps - len(ids)) :] = ids[:steps]
    return padded


def shifted(sentences, steps, begin, end):
    """Returns what a decoder reads, BEGIN and then the words, and the next words, which END ends.

    Both are arrays of ids, filled up with `end`. Where a decoder reads that, there is nothing to
    learn. Arguments are as above, and the id of BEGIN.
    """
    words, next_words = np.full((2, len(sentences), steps), end, np.int32)
    words[:, 0] = begin
    for row, next_row, ids in zip(words, next_words, sentences):
        next_row[: len(ids)] = ids[:steps]
        row[1 : len(ids) + 1] = ids[: steps - 1]
    return words, next_words


def shown(words):
    """Joins words for the console."""
    # horovodrun 0.19.5 may cut other signs in two, and stops there.
    return ' '.join(words).encode('ascii', 'backslashreplace').decode()
