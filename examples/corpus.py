# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Real text as word ids, for the language-model examples.

Three sources of text, one result (:class:`Corpus`):

* the source code of the running interpreter's standard library, which every
  machine has, needs no download and has the long-tailed vocabulary that makes
  embedding tables sparse (:func:`read_standard_library`);
* a folder in the layout of the 1-Billion-Word benchmark
  (:func:`read_billion_words`);
* a folder of ``.txt`` files (:func:`read_text_folder`).

:func:`read` picks the source. :func:`windows` cuts one worker's share of the
ids into training windows, the same number of batches for every worker.

Everything here is deterministic: workers that read the same files get the same
vocabulary and the same ids without talking to each other.
"""

import array
import collections
import os
import re
import sys
import sysconfig
import tokenize
import zlib

import numpy as np

BEGIN = '<S>'
END = '</S>'
UNKNOWN = '<unk>'
MARKS = (BEGIN, END, UNKNOWN)

# One file in this many is held out where the source has no held-out part.
HOLD_OUT_EVERY = 20
# Held-out text is only ever sampled, so it need not grow with the training text.
HELD_OUT_FRACTION = 0.1

# Tests hold files that are broken on purpose and `encodings` holds character
# tables; neither reads like the rest of the library.
LIBRARY_FOLDERS_LEFT_OUT = frozenset(
    ['__pycache__', 'site-packages', 'dist-packages', 'test', 'tests', 'idle_test', 'encodings']
)

_TRAINING_FOLDER = 'training-monolingual'
_HELD_OUT_FOLDER = 'heldout-monolingual'

_LAYOUT_TOKENS = {
    tokenize.NEWLINE: '<newline>',
    tokenize.INDENT: '<indent>',
    tokenize.DEDENT: '<dedent>',
}
_PLAIN_TOKENS = frozenset([tokenize.NAME, tokenize.NUMBER, tokenize.OP])
# A row of the same sign, as in a ruler, is one word; so is an escaped character.
_PROSE = re.compile(r'\\.|\w+|-+|=+|\*+|#+|[^\w\s]')
_LITERAL = re.compile(r'(\w*)(\'\'\'|"""|\'|")(.*)\2\Z', re.DOTALL)


class CorpusError(ValueError):
    """The text cannot be used; the message tells the user what to change."""


Skipped = collections.namedtuple('Skipped', 'path reason')
Skipped.__doc__ = 'A file that was left out, and why.'


class Corpus(collections.namedtuple('Corpus', 'name vocabulary train held_out files skipped')):
    """Text as ids.

    Attributes:
        name: What was read, for people.
        vocabulary: The :class:`Vocabulary` behind the ids.
        train: One-dimensional int32 array of training ids.
        held_out: One-dimensional int32 array of ids from other text.
        files: How many files were read.
        skipped: List of :class:`Skipped`, the files that could not be read.
    """

    __slots__ = ()

    def describe(self):
        """Returns a few lines for the console, skipped files included."""
        unknown = np.mean(self.train == self.vocabulary.unknown)
        lines = [
            f'{self.name}: {self.files:,} files read, {len(self.skipped)} skipped',
            f'{len(self.train):,} training words, {len(self.held_out):,} held-out words',
            f'vocabulary of {len(self.vocabulary):,}, '
            f'{unknown:.1%} of the training words outside it',
        ]
        shown = self.skipped[:5]
        lines += [f'  skipped {s.path}: {s.reason}' for s in shown]
        if len(self.skipped) > len(shown):
            lines.append(f'  ... and {len(self.skipped) - len(shown)} more')
        return '\n'.join(lines)


class Vocabulary:
    """Words and their ids, most frequent word first.

    The order matters: log-uniform candidate samplers assume that a small id is
    a frequent word.

    Args:
        words: The words in id order; must hold the three :data:`MARKS`.
    """

    def __init__(self, words):
        self.words = tuple(words)
        self.ids = {word: i for i, word in enumerate(self.words)}
        self.unknown = self.ids[UNKNOWN]

    def __len__(self):
        return len(self.words)

    def encode(self, words):
        """Returns the ids of `words` as int32; strangers become ``<unk>``."""
        return np.array([self.ids.get(word, self.unknown) for word in words], dtype=np.int32)

    @classmethod
    def from_counts(cls, counts, size):
        """Keeps the `size` most frequent words.

        The sentence marks and ``<unk>`` always have a place. ``<unk>`` is
        counted as often as it will occur in the encoded text, that is, once for
        every word that found no place.

        Args:
            counts: Mapping of word to number of occurrences; among equally
                frequent words the one met first comes first.
            size: Upper limit for the number of entries.
        """
        _check_size(size)
        occurring = [word for word, count in counts.items() if count and word not in MARKS]
        occurring.sort(key=lambda word: -counts[word])
        kept = occurring[: size - len(MARKS)]
        lost = occurring[len(kept) :]
        final = {word: counts[word] for word in kept}
        for mark in (BEGIN, END):
            final[mark] = counts.get(mark, 0)
        final[UNKNOWN] = counts.get(UNKNOWN, 0) + sum(counts[word] for word in lost)
        return cls(sorted(final, key=lambda word: -final[word]))

    @classmethod
    def from_file(cls, path, size):
        """Reads a vocabulary file: ``word`` or ``word count`` on each line.

        Without counts the file's own order is taken as most frequent first.
        Marks that the file lacks are put in front, where frequent words are.
        """
        _check_size(size)
        entries = collections.OrderedDict()
        try:
            with open(path, encoding='utf-8') as lines:
                for number, line in enumerate(lines, 1):
                    fields = line.split()
                    if not fields:
                        continue
                    word, count = _vocabulary_entry(fields, path, number)
                    entries.setdefault(word, count)
        except OSError as error:
            raise CorpusError(
                f'The vocabulary file {path} cannot be read: {error.strerror or error}.'
            ) from None
        except UnicodeDecodeError:
            raise CorpusError(f'The vocabulary file {path} is not UTF-8 text.') from None
        if not entries:
            raise CorpusError(f'The vocabulary file {path} is empty.')
        words = list(entries)
        if all(count is not None for count in entries.values()):
            words.sort(key=lambda word: -entries[word])
        # A mark listed beyond the limit must not fall victim to the limit.
        missing = [mark for mark in MARKS if mark not in words[: size - len(MARKS)]]
        words = [word for word in words if word not in missing]
        return cls((missing + words)[:size])


def _check_size(size):
    if size <= len(MARKS):
        raise CorpusError(
            'A vocabulary of {} words leaves no room for words next to {}; ask for more.'.format(
                size, ', '.join(MARKS)
            )
        )


def _vocabulary_entry(fields, path, number):
    """Returns (word, count or None) for one line of a vocabulary file."""
    if len(fields) > 2 or (len(fields) == 2 and not fields[1].isdecimal()):
        raise CorpusError(
            f'Line {number} of the vocabulary file {path} is neither "word" nor "word count".'
        )
    word = UNKNOWN if fields[0].lower() == UNKNOWN else fields[0]
    return word, int(fields[1]) if len(fields) == 2 else None


def read(data=None, vocabulary_size=20000, max_tokens=2000000, vocabulary_file=None):
    """Reads a corpus from the source that `data` stands for.

    Args:
        data: Folder in the 1-Billion-Word layout or with ``.txt`` files in it;
            None for the Python standard library.
        vocabulary_size: Upper limit for the vocabulary.
        max_tokens: Upper limit for the number of training words.
        vocabulary_file: File with the vocabulary; None to count words.

    Returns:
        A :class:`Corpus`.

    Raises:
        CorpusError: The folder or the vocabulary file is of no use.
    """
    options = dict(
        vocabulary_size=vocabulary_size, max_tokens=max_tokens, vocabulary_file=vocabulary_file
    )
    if data is None:
        return read_standard_library(**options)
    if not os.path.exists(data):
        raise CorpusError(f'The data folder {data} does not exist.')
    if not os.path.isdir(data):
        raise CorpusError(f'{data} is a file; name the folder that holds it.')
    if _training_folder(data):
        return read_billion_words(data, **options)
    return read_text_folder(data, **options)


def read_standard_library(root=None, **options):
    """Reads Python source, by default that of the running interpreter's library.

    Names, operators and numbers are words, and so are the ends of lines and the
    changes of indentation. Strings and comments are split into words and
    punctuation, since most of their text is prose. Each file counts as one
    sentence.

    Args:
        root: Folder with the source; None for the standard library.
        **options: As for :func:`read`.
    """
    name = f'Python source in {root}'
    if root is None:
        name = 'Python {}.{} standard library'.format(*sys.version_info)
        root = sysconfig.get_paths()['stdlib']
    paths = _files_below(root, '.py', LIBRARY_FOLDERS_LEFT_OUT)
    if not paths:
        raise CorpusError(f'{root} has no Python source files; give a text folder instead.')
    train, held_out = _split_by_file(paths, root)
    return _build(name, root, train, held_out, _python_sentences, **options)


def read_billion_words(folder, **options):
    """Reads shards of sentences, one tokenised sentence per line.

    Args:
        folder: Folder with a ``training-monolingual...`` and a
            ``heldout-monolingual...`` folder in it (or one level further down).
        **options: As for :func:`read`.
    """
    training_folder = _training_folder(folder)
    if training_folder is None:
        raise CorpusError(f'{folder} has no folder whose name begins with {_TRAINING_FOLDER}.')
    parent = os.path.dirname(training_folder)
    held_out_folder = _folder_with_prefix(parent, _HELD_OUT_FOLDER)
    if held_out_folder is None:
        raise CorpusError(f'{parent} has no folder whose name begins with {_HELD_OUT_FOLDER}.')
    shards = []
    for found in (training_folder, held_out_folder):
        paths = _files_below(found, '')
        if not paths:
            raise CorpusError(f'The folder {found} is empty; unpack the shards of text into it.')
        shards.append(paths)
    return _build(
        f'1-Billion-Word text in {folder}', folder, shards[0], shards[1], _line_sentences, **options
    )


def read_text_folder(folder, **options):
    """Reads ``.txt`` files of words with spaces between, a sentence per line.

    A folder with a single file is split at a line, any other by file.

    Args:
        folder: Folder with the files; folders in it are searched too.
        **options: As for :func:`read`.
    """
    paths = _files_below(folder, '.txt')
    if not paths:
        raise CorpusError(
            f'{folder} holds neither .txt files nor a folder whose name begins with '
            f'{_TRAINING_FOLDER}; put text files there or name another folder.'
        )
    name = f'Text in {folder}'
    if len(paths) > 1:
        train, held_out = _split_by_file(paths, folder)
        return _build(name, folder, train, held_out, _line_sentences, **options)

    def sentences(path, held_out):
        for number, sentence in enumerate(_line_sentences(path)):
            if (number % HOLD_OUT_EVERY == HOLD_OUT_EVERY - 1) == held_out:
                yield sentence

    return _build(
        name,
        folder,
        paths,
        paths,
        lambda path: sentences(path, False),
        held_out_reader=lambda path: sentences(path, True),
        **options,
    )


def windows(ids, rank, size, batch, steps, max_batches=None, name='text'):
    """Cuts one worker's share of `ids` into windows and their next words.

    The ids are divided into `size` stretches of equal length. A stretch is laid
    out as `batch` streams of consecutive text and the streams are cut every
    `steps` words, so row i of a batch continues row i of the batch before it.
    What does not fill a batch is dropped. The result has the same shape on every
    worker: collective operations hang when workers run unequal numbers of
    batches.

    Args:
        ids: One-dimensional array of ids, the same on every worker.
        rank: This worker's number, from 0.
        size: Number of workers.
        batch: Windows per batch on one worker.
        steps: Words per window.
        max_batches: Upper limit for the number of batches; None for no limit.
        name: What the ids are, for the error message.

    Returns:
        Two arrays of shape [batches * batch, steps]: words, and the word that
        follows each of them.

    Raises:
        CorpusError: The ids do not fill a single batch on every worker.
    """
    share = len(ids) // size
    # The last word of a share is a target only: nothing of the share follows it.
    batches = (share - 1) // (batch * steps)
    if batches < 1:
        raise CorpusError(
            f'The {name} has {len(ids):,} words, but {size} worker(s) with batches of '
            f'{batch} x {steps} words need {size * (batch * steps + 1):,}. Give more text or '
            'make the batch, the window or the number of workers smaller.'
        )
    first = rank * share
    length = batches * batch * steps
    if max_batches is None:
        max_batches = batches

    def cut(start):
        streams = ids[start : start + length].reshape(batch, batches, steps)
        # The limit shortens the streams but leaves them where they are, so that
        # a few batches still look at the whole of the share.
        kept = streams.swapaxes(0, 1)[:max_batches]
        return kept.reshape(-1, steps)

    return cut(first), cut(first + 1)


def _build(
    name,
    root,
    train,
    held_out,
    reader,
    vocabulary_size=20000,
    max_tokens=2000000,
    vocabulary_file=None,
    held_out_reader=None,
):
    """Reads files into a :class:`Corpus`.

    The vocabulary can only be chosen after the text has been read, so words get
    provisional ids at first, in order of appearance, and the final ones at the
    end. That holds one integer per word of text where a list of strings would
    hold many times as much. Dictionaries keep their order here, as they do from
    CPython 3.6 on.
    """
    seen = {mark: i for i, mark in enumerate(MARKS)}
    train_ids, train_files, skipped = _provisional_ids(train, reader, max_tokens, seen, root)
    occurrences = np.bincount(train_ids, minlength=len(seen))
    counts = dict(zip(seen, occurrences.tolist()))
    held_out_ids, held_out_files, more = _provisional_ids(
        held_out, held_out_reader or reader, int(max_tokens * HELD_OUT_FRACTION), seen, root
    )
    # A single file is read twice, once for each part, but counts once.
    skipped += [entry for entry in more if entry not in skipped]
    files = train_files if train is held_out else train_files + held_out_files
    why = f', the first because of {skipped[0].reason}' if skipped else ''
    for part, ids in (('training', train_ids), ('held-out', held_out_ids)):
        if not len(ids):
            raise CorpusError(
                f'{name} has no {part} words ({files} files read, {len(skipped)} skipped{why}). '
                f'Give more text or raise the limit of {max_tokens:,} words.'
            )
    if vocabulary_file is None:
        vocabulary = Vocabulary.from_counts(counts, vocabulary_size)
    else:
        vocabulary = Vocabulary.from_file(vocabulary_file, vocabulary_size)
    final = vocabulary.encode(seen)
    return Corpus(name, vocabulary, final[train_ids], final[held_out_ids], files, skipped)


def _provisional_ids(paths, reader, limit, seen, root):
    """Reads files until `limit` words.

    Args:
        paths: The files, in order.
        reader: Function from a path to an iterable of sentences (word lists).
        limit: Number of words to stop at.
        seen: Mapping of word to provisional id; new words are added.
        root: Folder that paths are shown relative to.

    Returns:
        Tuple of the ids (int32 array), the number of files read and the list of
        :class:`Skipped` files.
    """
    ids = array.array('i')
    files, skipped = 0, []
    begin, end = seen[BEGIN], seen[END]
    for path in paths:
        if len(ids) >= limit:
            break
        before = len(ids)
        try:
            for words in reader(path):
                ids.append(begin)
                ids.extend([seen.setdefault(word, len(seen)) for word in words])
                ids.append(end)
                if len(ids) >= limit:
                    break
        except (OSError, SyntaxError, UnicodeError, tokenize.TokenError) as error:
            # Half a file is not a text: take back what was read of it.
            del ids[before:]
            skipped.append(
                Skipped(
                    os.path.relpath(path, root),
                    '{}: {}'.format(type(error).__name__, str(error).split('\n')[0]),
                )
            )
        else:
            files += 1
    return np.array(ids[:limit], dtype=np.int32), files, skipped


def _line_sentences(path):
    """Yields the words of each line that has any."""
    with open(path, encoding='utf-8') as lines:
        for line in lines:
            words = line.split()
            if words:
                yield words


def _python_sentences(path):
    """Yields the words of a whole Python file as one sentence."""
    words = []
    # Binary, so that tokenize honours the encoding the file declares.
    with open(path, 'rb') as source:
        for token in tokenize.tokenize(source.readline):
            if token.type in _PLAIN_TOKENS:
                words.append(token.string)
            elif token.type in _LAYOUT_TOKENS:
                words.append(_LAYOUT_TOKENS[token.type])
            elif token.type == tokenize.STRING:
                words.extend(_string_words(token.string))
            elif token.type == tokenize.COMMENT:
                words.extend(_PROSE.findall(token.string))
            elif token.type == tokenize.ERRORTOKEN:
                raise SyntaxError(f'line {token.start[0]} is not Python {sys.version_info[0]}')
    yield words


def _string_words(literal):
    """Splits a string literal into opening quote, words and closing quote.

    The quotes stay whole, so that three quotes are one word and a prefix such
    as ``rb`` stays with the quote it belongs to.
    """
    match = _LITERAL.match(literal)
    if not match:
        return _PROSE.findall(literal)
    prefix, quote, text = match.groups()
    return [prefix + quote] + _PROSE.findall(text) + [quote]


def _files_below(root, ending, folders_left_out=()):
    """Returns the sorted paths of the visible files below `root`."""
    paths = []
    for folder, inner, names in os.walk(root):
        inner[:] = [name for name in inner if name not in folders_left_out and name[0] != '.']
        paths += [
            os.path.join(folder, name) for name in names if name.endswith(ending) and name[0] != '.'
        ]
    return sorted(paths)


def _split_by_file(paths, root):
    """Returns (training files, held-out files) in a fixed, mixed order.

    Neighbours in a folder resemble each other. Ordering by a checksum of the
    name mixes the folders, so that the held-out text is of the same kind as the
    training text and a limit on the number of words does not cut off the end of
    the alphabet. Unlike a seeded shuffle the order of two files does not depend
    on what other files there are.
    """

    def key(path):
        relative = os.path.relpath(path, root).replace(os.sep, '/')
        return zlib.crc32(relative.encode('utf-8', 'surrogateescape')), relative

    mixed = sorted(paths, key=key)
    held_out = mixed[::HOLD_OUT_EVERY]
    train = [path for i, path in enumerate(mixed) if i % HOLD_OUT_EVERY]
    return train, held_out


def _training_folder(root):
    """Returns the first training folder in `root` or in a folder of it, or None."""
    for parent in [root] + _folders(root):
        found = _folder_with_prefix(parent, _TRAINING_FOLDER)
        if found is not None:
            return found
    return None


def _folder_with_prefix(parent, prefix):
    """Returns the first folder in `parent` whose name begins so, or None."""
    for folder in _folders(parent):
        if os.path.basename(folder).startswith(prefix):
            return folder
    return None


def _folders(root):
    return sorted(entry.path for entry in os.scandir(root) if entry.is_dir())
