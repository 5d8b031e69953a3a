# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Films that people like, for `two_tower.py`: read from MovieLens's files, or made here.

MovieLens comes as ``ratings.csv`` and ``movies.csv``, or earlier as ``ratings.dat`` and
``movies.dat``. A rating of 4 and more of 5 counts as a like.

Everything here is deterministic: workers that read the same files, or make as many
likes, get the same ones without talking to each other.
"""

import csv
import os
from typing import List, NamedTuple

import numpy as np

#: Genres of a film that are kept, and the least rating that counts as a like.
GENRES, LIKED = 3, 4.0
_KINDS = ('Action', 'Comedy', 'Crime', 'Drama', 'Fantasy', 'Horror', 'Musical', 'Romance', 'War')


class FilmsError(ValueError):
    """The files are missing, or not in the layout."""


class Films(NamedTuple):
    """Films, and who likes them. The number 0 stands for none.

    Attributes:
        titles: A list of text, for each number of a film.
        genres: [films, GENRES], numbers of genres.
        genre_names: A list of text, for each number of a genre.
        likes: For each person a list of numbers of films, in the order of time.
    """

    titles: List[str]
    genres: np.ndarray
    genre_names: List[str]
    likes: List[List[int]]


class Samples(NamedTuple):
    """What people have liked, and what they liked next.

    Attributes:
        history: [samples, length], numbers of films.
        history_genres: [samples, length * GENRES], of those films.
        film: [samples, 1], that came next.
        film_genres: [samples, GENRES], of that film.
    """

    history: np.ndarray
    history_genres: np.ndarray
    film: np.ndarray
    film_genres: np.ndarray


def read(folder):
    """Returns the `Films` of MovieLens's files in a folder.

    Raises:
        FilmsError: They are not there, or not in the layout.
    """
    rows = {}
    for name in ('movies', 'ratings'):
        paths = [os.path.join(folder, name + ending) for ending in ('.csv', '.dat')]
        path = next(filter(os.path.exists, paths), None)
        if path is None:
            raise FilmsError(f'{folder} has neither {name}.csv nor {name}.dat.')
        rows[name] = _rows(path)
    titles, kinds, numbers = [''], [[]], {}
    for place, fields in rows['movies']:
        numbers[_field(fields, 0, int, place)] = len(titles)
        titles.append(_field(fields, 1, str, place))
        kinds.append(_field(fields, 2, str, place).split('|')[:GENRES])
    likes = {}
    for place, fields in rows['ratings']:
        person, film, time = (_field(fields, number, int, place) for number in (0, 1, 3))
        if _field(fields, 2, float, place) >= LIKED:
            if film not in numbers:
                raise FilmsError(f'{place} rates film {film}, which is not among the films.')
            likes.setdefault(person, []).append((time, numbers[film]))
    in_order = [[film for _, film in sorted(found)] for _, found in sorted(likes.items())]
    return _films(titles, kinds, in_order)


def _rows(path):
    """The fields of each line, and where it is."""
    is_csv = path.endswith('.csv')
    with open(path, encoding='utf-8' if is_csv else 'latin-1', newline='') as file:
        lines = csv.reader(file) if is_csv else (line.rstrip('\r\n').split('::') for line in file)
        for number, fields in enumerate(lines, 1):
            if number > 1 or not is_csv:  # The first line of the others has names.
                yield f'Line {number} of {path}', fields


def _field(fields, number, kind, place):
    try:
        return kind(fields[number])
    except (IndexError, ValueError):
        raise FilmsError(f'{place} is not one of MovieLens: {fields}.') from None


def _films(titles, kinds, likes):
    names = [''] + sorted(set().union(*kinds))
    genres = np.zeros((len(titles), GENRES), 'int32')
    for row, own in zip(genres, kinds):
        row[: len(own)] = [names.index(kind) for kind in own]
    return Films(titles, genres, names, likes)


def make(people=4000, films=1000, seed=0):
    """Makes `Films`: each person likes some genres, and some groups of films that no genre tells.

    Args:
        people: How many.
        films: How many.
        seed: Of the random numbers.
    """
    random = np.random.RandomState(seed)
    titles = [''] + [f'Film {number + 1}' for number in range(films)]
    kinds = [[]] + [
        sorted(random.choice(_KINDS, random.randint(1, GENRES + 1), replace=False))
        for _ in range(films)
    ]
    has = np.array([[kind in own for kind in _KINDS] for own in kinds[1:]])
    groups = random.randint(0, 20, films)
    popular = -0.7 * np.log(np.arange(1, films + 1))
    likes = []
    for _ in range(people):
        genres, liked = random.choice(len(_KINDS), 2, replace=False), random.randint(0, 20, 2)
        taste = popular + 1.5 * has[:, genres].sum(1) + 2.5 * np.isin(groups, liked)
        # So the first ones are drawn without repeats, by those odds.
        drawn = np.argsort(-taste - np.log(-np.log(random.uniform(size=films))))
        likes.append((1 + random.permutation(drawn[: random.randint(5, 25)])).tolist())
    return _films(titles, kinds, likes)


def split(films, length, most):
    """Returns `Samples` to train on, and those to judge by: the last like of each person.

    Args:
        films: The `Films`.
        length: Likes that are kept of what came before, the latest.
        most: Upper limits for both.
    """
    train, held_out = [], []
    for liked in films.likes:
        cuts = range(1, len(liked))
        train += [(liked[max(0, cut - length) : cut], liked[cut]) for cut in cuts[:-1]]
        held_out += [(liked[max(0, cut - length) : cut], liked[cut]) for cut in cuts[-1:]]
    return [_samples(films, length, pairs[:limit]) for pairs, limit in zip((train, held_out), most)]


def _samples(films, length, pairs):
    history = np.zeros((len(pairs), length), 'int32')
    film = np.zeros((len(pairs), 1), 'int32')
    for number, (liked, following) in enumerate(pairs):
        history[number, : len(liked)] = liked
        film[number] = following
    of_history = films.genres[history].reshape(len(pairs), length * GENRES)
    return Samples(history, of_history, film, films.genres[film[:, 0]])
