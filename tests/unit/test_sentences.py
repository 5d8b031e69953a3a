# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What the examples that translate and that read sentences in a row make of text."""

import os
import sys

import numpy as np
import pytest

sys.path.insert(
    0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, os.pardir, 'examples')
)

import corpus  # noqa: E402  (the examples are not a package)
import sentences  # noqa: E402
from bleu import bleu  # noqa: E402

END, BEGIN = 0, 9


def test_every_worker_makes_the_same_sentences():
    one, other = (sentences.make_pairs(100, (50, 5)) for _ in range(2))
    assert one[:3] == other[:3]
    assert [v.words for v in one.vocabularies] == [v.words for v in other.vocabularies]


@pytest.mark.parametrize('which', [0, 1])
def test_words_of_the_made_language_are_told_apart(which):
    letters = [('bdfgklmnprstvw', 'aeiou'), ('cfhjkmnqstvxyz', 'aeiou')][which]
    assert len({sentences._word(number, *letters) for number in range(5000)}) == 5000


def test_a_made_translation_has_a_word_for_each_word():
    pairs = sentences.make_pairs(300, (400, 40))
    translated = {}
    for read, written in zip(*pairs.train):
        assert len(read) == len(written)
        for word in read:
            translated[word] = translated.get(word, set(written)) & set(written)
    # Some word is in all translations of a word; of one that is there often, one alone.
    counts = [len(words) for words in translated.values()]
    assert counts and min(counts) == 1


@pytest.mark.parametrize(
    'kinds, order',
    [
        ((0, 1), [0, 1]),
        ((0, 1, 0), [0, 2, 1]),
        ((2, 0, 1, 0), [1, 0, 3, 2]),
        ((2, 0, 1, 2, 0), [1, 0, 4, 3, 2]),
    ],
)
def test_adjectives_come_after_their_nouns_and_verbs_at_the_end(kinds, order):
    assert sentences._translated_order(kinds) == order


def test_a_sentence_to_read_ends_with_its_last_word():
    found = sentences.padded_front([[1, 2], [1, 2, 3, 4], []], 3, END)
    np.testing.assert_array_equal(found, [[END, 1, 2], [1, 2, 3], [END] * 3])


def test_a_decoder_reads_begin_and_is_to_write_the_word_after_each():
    words, next_words = sentences.shifted([[1, 2], [1, 2, 3, 4]], 3, BEGIN, END)
    np.testing.assert_array_equal(words, [[BEGIN, 1, 2], [BEGIN, 1, 2]])
    np.testing.assert_array_equal(next_words, [[1, 2, END], [1, 2, 3]])


def write(folder, **texts):
    for name, text in texts.items():
        (folder / name.replace('_', '.')).write_bytes(text.encode('utf-8'))
    return sentences.read_pairs(str(folder), ('train', 'test'), ('en', 'de'), 20, (2, 9))


def test_files_of_two_languages_are_read_line_by_line(tmp_path):
    pairs = write(
        tmp_path,
        train_en='a dog\nthe cat\nleft out\n', train_de='ein Hund\ndie Katze\nweg\n',
        test_en='the dog\n', test_de='der schöne Hund\n',
    )  # fmt: skip
    assert pairs.train == ([['a', 'dog'], ['the', 'cat']], [['ein', 'Hund'], ['die', 'Katze']])
    assert pairs.held_out == ([['the', 'dog']], [['der', 'schöne', 'Hund']])
    assert 'schöne' not in pairs.vocabularies[1].ids and 'Hund' in pairs.vocabularies[1].ids
    assert '2 sentences, and 1 held out' in pairs.describe()


def test_a_line_without_a_translation_is_told(tmp_path):
    with pytest.raises(corpus.CorpusError, match='1 lines and .* has 2; each line must be'):
        write(tmp_path, train_en='a\n', train_de='b\nc\n', test_en='a\n', test_de='b\n')


def test_a_file_that_is_not_there_is_told(tmp_path):
    with pytest.raises(corpus.CorpusError, match='train.de cannot be read'):
        write(tmp_path, train_en='a\n')


def test_a_console_gets_no_sign_that_horovodrun_may_cut():
    assert sentences.shown(['der', 'schöne']) == 'der sch\\xf6ne'


# The examples of Papineni et al., sections 2.1 and 2.2.
def test_a_word_counts_as_often_as_the_reference_has_it():
    found = bleu(['the the the the the the the'.split()], ['the cat is on the mat'.split()], 1)
    assert found == pytest.approx(100 * 2 / 7)


def test_what_is_too_short_is_penalized():
    found = bleu(['of the'.split()], ['it is of the'.split()], 2)
    assert found == pytest.approx(100 * np.exp(1 - 4 / 2))


def test_right_translations_have_100_and_those_without_four_right_words_in_a_row_0():
    reference = 'one two three four five'.split()
    assert bleu([reference], [reference]) == pytest.approx(100)
    assert bleu([reference[::-1]], [reference]) == 0


def test_it_is_the_mean_over_lengths_of_a_whole_corpus():
    references = ['a b c d e'.split(), 'f g h i j'.split()]
    translations = ['a b c d x'.split(), 'f g h i j'.split()]
    right = [9 / 10, 7 / 8, 5 / 6, 3 / 4]
    assert bleu(translations, references) == pytest.approx(100 * np.prod(right) ** 0.25)
