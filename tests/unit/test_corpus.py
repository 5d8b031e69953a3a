# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The corpus reader of the examples: vocabulary, sources, and shares of text."""

import collections
import os
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(
    0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, os.pardir, 'examples')
)

import corpus  # noqa: E402  (the examples are not a package)

COUNTS = st.dictionaries(
    st.text('abcdefgh', min_size=1, max_size=3), st.integers(1, 50), min_size=1, max_size=30
)
LAYOUTS = dict(
    size=st.integers(1, 5),
    batch=st.integers(1, 6),
    steps=st.integers(1, 7),
    extra=st.integers(0, 300),
)


def write(path, text, encoding='utf-8'):
    """Writes a file and the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode(encoding))


def words_of(text, part):
    return [text.vocabulary.words[i] for i in part]


def all_windows(ids, size, batch, steps):
    return [corpus.windows(ids, rank, size, batch, steps) for rank in range(size)]


def enough_ids(size, batch, steps, extra):
    """Distinct ids, at least what one batch on every worker takes."""
    return np.arange(size * (batch * steps + 1) + extra, dtype=np.int32)


# --- shares of the text ------------------------------------------------------


@given(**LAYOUTS)
def test_every_rank_gets_the_same_whole_number_of_batches(size, batch, steps, extra):
    shapes = {
        part.shape
        for parts in all_windows(enough_ids(size, batch, steps, extra), size, batch, steps)
        for part in parts
    }
    assert len(shapes) == 1
    rows, columns = shapes.pop()
    assert rows >= batch and rows % batch == 0 and columns == steps


@given(**LAYOUTS)
def test_targets_are_the_words_that_follow(size, batch, steps, extra):
    ids = enough_ids(size, batch, steps, extra)
    for words, next_words in all_windows(ids, size, batch, steps):
        # The ids count upwards, so the following word is the next number.
        np.testing.assert_array_equal(next_words, words + 1)


@given(**LAYOUTS)
def test_no_word_is_in_the_shares_of_two_ranks_or_twice_in_one(size, batch, steps, extra):
    shares = all_windows(enough_ids(size, batch, steps, extra), size, batch, steps)
    for part in (0, 1):
        words = np.concatenate([share[part].ravel() for share in shares])
        assert len(np.unique(words)) == len(words)
    read = [set(words.ravel()) | set(next_words.ravel()) for words, next_words in shares]
    assert len(set().union(*read)) == sum(len(one) for one in read)


@given(**LAYOUTS)
def test_less_than_a_batch_per_rank_is_dropped(size, batch, steps, extra):
    ids = enough_ids(size, batch, steps, extra)
    used = sum(words.size for words, _ in all_windows(ids, size, batch, steps))
    # Each worker also drops the word that only serves as its last target, and the
    # division among the workers drops fewer words than there are workers.
    assert len(ids) - used <= size * (batch * steps) + size - 1


def test_each_row_continues_the_same_row_of_the_batch_before():
    words, _ = corpus.windows(np.arange(25), 0, 1, batch=2, steps=3)
    batches = words.reshape(-1, 2, 3)
    assert len(batches) == 4
    np.testing.assert_array_equal(batches[1:, :, 0], batches[:-1, :, -1] + 1)


def test_a_limit_on_batches_still_spreads_over_the_whole_share():
    every, _ = corpus.windows(np.arange(1001), 0, 1, batch=10, steps=5)
    few, next_words = corpus.windows(np.arange(1001), 0, 1, batch=10, steps=5, max_batches=2)
    assert few.shape == next_words.shape == (20, 5)
    np.testing.assert_array_equal(few, every[:20])
    assert few.max() > 900


def test_a_limit_above_what_there_is_changes_nothing():
    limited = corpus.windows(np.arange(100), 0, 2, 2, 5, max_batches=1000)
    free = corpus.windows(np.arange(100), 0, 2, 2, 5)
    np.testing.assert_array_equal(limited, free)


@given(size=st.integers(1, 5), batch=st.integers(1, 6), steps=st.integers(1, 7))
def test_one_word_too_few_is_refused_on_every_rank_alike(size, batch, steps):
    ids = enough_ids(size, batch, steps, 0)[:-1]
    messages = set()
    for rank in range(size):
        with pytest.raises(corpus.CorpusError) as caught:
            corpus.windows(ids, rank, size, batch, steps)
        messages.add(str(caught.value))
    assert len(messages) == 1
    assert f'{len(ids) + 1:,}' in messages.pop()


def test_refusal_names_the_text_that_is_too_small():
    with pytest.raises(corpus.CorpusError, match='The held-out text has 7 words'):
        corpus.windows(np.arange(7), 0, 2, 4, 5, name='held-out text')


# --- the vocabulary ----------------------------------------------------------


@given(counts=COUNTS, size=st.integers(4, 40))
def test_vocabulary_is_most_frequent_first_and_within_its_limit(counts, size):
    vocabulary = corpus.Vocabulary.from_counts(counts, size)
    assert len(vocabulary) <= size
    assert set(corpus.MARKS) <= set(vocabulary.words)
    lost = sum(n for word, n in counts.items() if word not in vocabulary.ids)
    known = collections.defaultdict(int, counts)
    known[corpus.UNKNOWN] = lost
    frequencies = [known[word] for word in vocabulary.words]
    assert frequencies == sorted(frequencies, reverse=True)


@given(counts=COUNTS, size=st.integers(4, 40))
def test_no_lost_word_is_more_frequent_than_a_kept_one(counts, size):
    kept = corpus.Vocabulary.from_counts(counts, size).ids
    lost = [n for word, n in counts.items() if word not in kept]
    assert max(lost, default=0) <= min(n for word, n in counts.items() if word in kept)


def test_words_that_do_not_occur_get_no_place():
    vocabulary = corpus.Vocabulary.from_counts({'a': 2, 'b': 0}, 10)
    assert 'b' not in vocabulary.ids


def test_strangers_become_unknown():
    vocabulary = corpus.Vocabulary(['the', '<unk>', '<S>', '</S>'])
    ids = vocabulary.encode(['the', 'axolotl', '<unk>'])
    assert ids.tolist() == [0, 1, 1]
    assert ids.dtype == np.int32


def test_unknown_is_ranked_by_how_often_it_will_occur():
    vocabulary = corpus.Vocabulary.from_counts({'a': 5, 'b': 3, 'c': 3, 'd': 3, '<unk>': 1}, 4)
    assert vocabulary.words[:2] == ('<unk>', 'a')


def test_a_vocabulary_without_room_for_words_is_refused():
    with pytest.raises(corpus.CorpusError, match='ask for more'):
        corpus.Vocabulary.from_counts({'a': 1}, len(corpus.MARKS))


@pytest.mark.parametrize(
    'lines, size, expected',
    [
        ('the\n<S>\n</S>\n<UNK>\ncat\n', 9, ('the', '<S>', '</S>', '<unk>', 'cat')),
        ('the\ncat\nsat\n', 5, ('<S>', '</S>', '<unk>', 'the', 'cat')),
        ('cat 2\n</S> 9\n<S> 9\nthe 7\n\n', 9, ('<unk>', '</S>', '<S>', 'the', 'cat')),
        ('the\na\nan\ncat\n</S>\n<S>\n<UNK>\n', 4, ('<S>', '</S>', '<unk>', 'the')),
        ('the\nthe\ncat\n', 9, ('<S>', '</S>', '<unk>', 'the', 'cat')),
    ],
    ids=['marks in place', 'marks missing', 'counted', 'marks beyond the limit', 'repeated word'],
)
def test_vocabulary_file_is_read(tmp_path, lines, size, expected):
    path = tmp_path / 'vocabulary'
    write(path, lines)
    vocabulary = corpus.Vocabulary.from_file(str(path), size)
    assert vocabulary.words == expected


@given(
    listed=st.lists(
        st.sampled_from(list('abcdefgh') + ['<S>', '</S>', '<UNK>']), min_size=1, unique=True
    ),
    size=st.integers(4, 12),
)
@settings(max_examples=50)
def test_vocabulary_file_keeps_its_order_and_the_marks(tmp_path_factory, listed, size):
    path = tmp_path_factory.mktemp('vocabulary') / 'words'
    write(path, '\n'.join(listed))
    words = corpus.Vocabulary.from_file(str(path), size).words
    assert len(words) <= size and set(corpus.MARKS) <= set(words)
    plain = [word for word in words if word not in corpus.MARKS]
    assert plain == [word for word in listed if word in plain]


@pytest.mark.parametrize(
    'content, message',
    [
        ('', 'is empty'),
        ('the\nthe cat sat\n', 'Line 2 .* neither'),
        ('the many\n', 'Line 1 .* neither'),
        (None, 'cannot be read'),
    ],
)
def test_useless_vocabulary_file_is_refused(tmp_path, content, message):
    path = tmp_path / 'vocabulary'
    if content is not None:
        write(path, content)
    with pytest.raises(corpus.CorpusError, match=message):
        corpus.Vocabulary.from_file(str(path), 10)


def test_vocabulary_file_in_another_encoding_is_refused(tmp_path):
    write(tmp_path / 'vocabulary', 'caf\u00e9\n', 'latin-1')
    with pytest.raises(corpus.CorpusError, match='not UTF-8'):
        corpus.Vocabulary.from_file(str(tmp_path / 'vocabulary'), 10)


# --- the 1-Billion-Word layout -----------------------------------------------


@pytest.fixture
def billion_words(tmp_path):
    """A small folder in the layout of the benchmark."""
    root = tmp_path / 'benchmark'
    training = root / 'training-monolingual.tokenized.shuffled'
    held_out = root / 'heldout-monolingual.tokenized.shuffled'
    write(training / 'news.en-00002-of-00100', 'the dog ran .\n')
    write(training / 'news.en-00001-of-00100', 'The cat sat .\n\nthe end .\n')
    write(held_out / 'news.en.heldout-00000-of-00050', 'the axolotl sat .\n')
    return root


def test_billion_word_sentences_are_marked_and_in_shard_order(billion_words):
    text = corpus.read(str(billion_words))
    assert ' '.join(words_of(text, text.train)) == (
        '<S> The cat sat . </S> <S> the end . </S> <S> the dog ran . </S>'
    )
    assert text.train.dtype == text.held_out.dtype == np.int32
    assert text.files == 3 and text.skipped == []


def test_held_out_words_are_not_counted_into_the_vocabulary(billion_words):
    text = corpus.read(str(billion_words))
    assert 'axolotl' not in text.vocabulary.ids
    assert words_of(text, text.held_out) == ['<S>', 'the', '<unk>', 'sat', '.', '</S>']


def test_billion_word_folder_may_be_one_level_down(billion_words):
    above = corpus.read(str(billion_words.parent))
    np.testing.assert_array_equal(above.train, corpus.read(str(billion_words)).train)


def test_held_out_folder_is_the_training_folders_neighbour(billion_words):
    # Comes first by name, but belongs to other training text.
    write(billion_words.parent / 'another' / 'heldout-monolingual' / 'shard', 'wrong\n')
    text = corpus.read(str(billion_words.parent))
    assert len(text.held_out) == len('<S> the axolotl sat . </S>'.split())


def test_given_vocabulary_file_decides_the_ids(billion_words):
    write(billion_words / 'words', '</S>\n<S>\n<UNK>\n.\nthe\nsat\n')
    text = corpus.read(str(billion_words), vocabulary_file=str(billion_words / 'words'))
    assert text.held_out.tolist() == [1, 4, 2, 5, 3, 0]


def test_vocabulary_limit_turns_rare_words_into_unknown(billion_words):
    text = corpus.read(str(billion_words), vocabulary_size=5)
    assert len(text.vocabulary) == 5
    assert words_of(text, text.train)[:6] == ['<S>', '<unk>', '<unk>', '<unk>', '.', '</S>']


def test_limit_on_training_words_is_exact(billion_words):
    text = corpus.read(str(billion_words), max_tokens=10)
    assert len(text.train) == 10
    assert len(text.held_out) == 1


def test_training_folder_without_held_out_folder_is_refused(tmp_path):
    write(tmp_path / 'training-monolingual' / 'news.en-00001-of-00100', 'a b\n')
    with pytest.raises(corpus.CorpusError, match='begins with heldout'):
        corpus.read(str(tmp_path))


def test_empty_training_folder_is_refused(billion_words):
    for shard in (billion_words / 'training-monolingual.tokenized.shuffled').iterdir():
        shard.unlink()
    with pytest.raises(corpus.CorpusError, match='is empty; unpack'):
        corpus.read(str(billion_words))


# --- a folder of text files --------------------------------------------------


@pytest.fixture
def text_folder(tmp_path):
    """Sixty files, each with a word of its own, some in a folder below."""
    for i in range(60):
        name = '{}/{}.txt'.format('below' if i % 3 else '.', i)
        write(tmp_path / name, f'File number{i} says Hello\n')
    write(tmp_path / 'picture.png', 'not text')
    return tmp_path


def test_text_files_are_split_by_file(text_folder):
    text = corpus.read(str(text_folder), vocabulary_size=1000)
    assert text.files == 60
    per_file = 6
    assert len(text.train) == 57 * per_file
    assert len(text.held_out) == 3 * per_file
    # A file's own word is a stranger wherever the file is not in training.
    assert np.sum(text.held_out == text.vocabulary.unknown) == 3
    assert not np.any(text.train == text.vocabulary.unknown)


def test_case_is_kept(text_folder):
    text = corpus.read(str(text_folder))
    assert 'Hello' in text.vocabulary.ids
    assert 'hello' not in text.vocabulary.ids


def test_reading_twice_gives_the_same(text_folder):
    first, second = (corpus.read(str(text_folder)) for _ in range(2))
    assert first.vocabulary.words == second.vocabulary.words
    np.testing.assert_array_equal(first.train, second.train)
    np.testing.assert_array_equal(first.held_out, second.held_out)


def test_single_text_file_is_split_by_line(tmp_path):
    lines = [f'line{i}' for i in range(40)]
    write(tmp_path / 'one.txt', '\n'.join(lines))
    text = corpus.read(str(tmp_path))
    assert text.files == 1
    assert len(text.train) == 38 * 3 and len(text.held_out) == 2 * 3


def test_unreadable_text_is_skipped_whole_and_named(text_folder):
    # Long enough that some of it is read before the bad byte turns up.
    bad = 'good words first\n' * 2000 + 'caf\u00e9\n'
    write(text_folder / 'latin.txt', bad, 'latin-1')
    text = corpus.read(str(text_folder))
    assert [skipped.path for skipped in text.skipped] == ['latin.txt']
    assert 'good' not in text.vocabulary.ids
    description = text.describe()
    assert '60 files read, 1 skipped' in description
    assert 'latin.txt: UnicodeDecodeError' in description


def test_description_of_many_skipped_files_stays_short(text_folder):
    text = corpus.read(str(text_folder))
    skipped = [corpus.Skipped(f'{i}.txt', 'broken') for i in range(9)]
    description = text._replace(skipped=skipped).describe()
    assert '9 skipped' in description
    assert '4.txt' in description and '5.txt' not in description
    assert 'and 4 more' in description


def test_folder_that_does_not_exist_is_refused(tmp_path):
    with pytest.raises(corpus.CorpusError, match='does not exist'):
        corpus.read(str(tmp_path / 'nowhere'))


def test_file_in_place_of_a_folder_is_refused(tmp_path):
    write(tmp_path / 'one.txt', 'a b')
    with pytest.raises(corpus.CorpusError, match='name the folder'):
        corpus.read(str(tmp_path / 'one.txt'))


def test_folder_without_text_is_refused(tmp_path):
    with pytest.raises(corpus.CorpusError, match='holds neither .txt files'):
        corpus.read(str(tmp_path))


def test_text_files_without_words_are_refused(tmp_path):
    for i in range(3):
        write(tmp_path / f'{i}.txt', '\n')
    with pytest.raises(corpus.CorpusError, match='has no training words'):
        corpus.read(str(tmp_path))


def test_refusal_names_the_reason_when_every_file_was_skipped(tmp_path):
    for i in range(3):
        write(tmp_path / f'{i}.txt', '\u00e9\n', 'latin-1')
    with pytest.raises(corpus.CorpusError, match='UnicodeDecodeError'):
        corpus.read(str(tmp_path))


# --- Python source -----------------------------------------------------------


def python_words(tmp_path, source, encoding='utf-8'):
    """Returns the words of a Python file, as read from a folder of two."""
    for name in ('a.py', 'b.py'):
        write(tmp_path / name, source, encoding)
    text = corpus.read_standard_library(str(tmp_path))
    assert text.skipped == []
    return ' '.join(words_of(text, text.train))


def test_python_layout_is_words_of_its_own(tmp_path):
    assert python_words(tmp_path, 'if x:\n    y += 10\n\nz\n') == (
        '<S> if x : <newline> <indent> y += 10 <newline> <dedent> z <newline> </S>'
    )


def test_python_strings_and_comments_are_split_into_words(tmp_path):
    assert python_words(tmp_path, 'a = rb"it is\\n"  # a note, --- \n') == (
        '<S> a = rb" it is \\n " # a note , --- <newline> </S>'
    )


def test_python_files_are_read_in_the_encoding_they_declare(tmp_path):
    source = '# coding: latin-1\nx = "caf\u00e9"\n'
    assert 'caf\u00e9' in python_words(tmp_path, source, 'latin-1')


@pytest.mark.parametrize(
    'source, encoding',
    [
        ('x = (1,\n', 'utf-8'),
        ('print `x`\n', 'utf-8'),
        ('# coding: no-such-encoding\n', 'utf-8'),
        ('x = "\u00e9"\n', 'latin-1'),
        ('if x:\n        a\n    b\n', 'utf-8'),
    ],
    ids=['unfinished', 'python 2', 'unknown encoding', 'bad byte', 'indentation'],
)
def test_python_that_does_not_tokenise_is_skipped_and_counted(tmp_path, source, encoding):
    for i in range(40):
        write(tmp_path / f'good{i}.py', f'fine = {i}\n')
    write(tmp_path / 'bad.py', source, encoding)
    text = corpus.read_standard_library(str(tmp_path))
    assert [skipped.path for skipped in text.skipped] == ['bad.py']
    assert text.files == 40
    assert 'bad.py' in text.describe()


def test_tests_and_installed_packages_are_left_out(tmp_path):
    for name in ('a.py', 'b.py', 'test/c.py', 'site-packages/d/e.py'):
        write(tmp_path / name, 'x\n')
    assert corpus.read_standard_library(str(tmp_path)).files == 2


def test_folder_without_python_is_refused(tmp_path):
    with pytest.raises(corpus.CorpusError, match='no Python source'):
        corpus.read_standard_library(str(tmp_path))


def test_standard_library_is_read_by_default():
    text = corpus.read(max_tokens=20000, vocabulary_size=1000)
    assert len(text.train) == 20000
    assert len(text.held_out) == 2000
    assert len(text.vocabulary) == 1000
    assert text.train.min() >= 0 and text.train.max() < 1000
    # A long tail is what the example is about.
    assert np.mean(text.train < 100) > 0.5
