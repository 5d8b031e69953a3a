# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Made data for scripts of Keras 3 that would load it from the network.

`install` has each download by Keras, pandas or `urllib` find what `MAKERS` has for the name at the
end of its address, `tensorflow_datasets` have MovieLens and `datasets` have CoNLL. What is in no
list is not found.
"""

import io
import os
import sys
import tarfile
import types
import urllib.request
import zipfile

import numpy as np
import tensorflow as tf

#: Users and movies of MovieLens 100K, ratings, and samples of what else is made.
USERS, MOVIES, RATINGS, SAMPLES = 943, 1682, 6000, 1200
GENRES = 'Action', 'Comedy', 'Drama', 'Horror'
WORDS = ['the', 'cat', 'sees', 'a', 'dog', 'and', 'runs', 'home', 'today', 'again']


def install():
    """Has downloads and `tensorflow_datasets` give made data."""
    urllib.request.urlretrieve = _retrieve
    of_files = sys.modules['keras.src.utils.file_utils']
    of_files.urlretrieve = _retrieve
    of_files.validate_file = lambda *args, **kwargs: True
    tf.data.Dataset.skip = _skip
    sys.modules['tensorflow_datasets'] = types.SimpleNamespace(load=_load)
    sys.modules['datasets'] = types.SimpleNamespace(load_dataset=_load_dataset)
    # It only prints how good a model is.
    sys.modules['conlleval'] = types.SimpleNamespace(evaluate=lambda *args, **kwargs: None)
    try:
        import pandas
    except ImportError:
        return
    read_csv = pandas.read_csv

    def read(source, *args, **kwargs):
        made = isinstance(source, str) and source.startswith('http')
        return read_csv(io.BytesIO(_made(source)) if made else source, *args, **kwargs)

    pandas.read_csv = read


def write_texts(folder):
    """Writes the folder `aclImdb` of reviews, unless there is one, and vectors of words."""
    random = np.random.RandomState(0)
    with open(os.path.join(folder, 'glove.6B.100d.txt'), 'w') as file:
        for word in WORDS:
            file.write(' '.join([word] + ['%.4f' % number for number in random.randn(100)]) + '\n')
    for part in ('train/pos', 'train/neg', 'test/pos', 'test/neg'):
        of_part = os.path.join(folder, 'aclImdb', part)
        if not os.path.exists(of_part):
            os.makedirs(of_part)
            for number in range(150):
                with open(os.path.join(of_part, '%d_1.txt' % number), 'w') as file:
                    file.write(_sentence(random, 60))


def _retrieve(address, filename, *args, **kwargs):
    with open(filename, 'wb') as file:
        file.write(_made(address))
    # Scripts also look for the files beside the archive, where older Keras put them.
    made = _made_files(address)
    for name in () if isinstance(made, str) else made:
        path = os.path.join(os.path.dirname(filename), name)
        os.makedirs(os.path.dirname(path) or '.', exist_ok=True)
        with open(path, 'wb') as file:
            file.write(_bytes(made[name]))
    return filename, None


def _made_files(address):
    """The text of a made file, or from paths in an archive to what is there."""
    name = address.rsplit('/', 1)[-1]
    if name not in MAKERS:
        raise FileNotFoundError('no data is made for %s' % name)
    return MAKERS[name](np.random.RandomState(0))


def _made(address):
    made = _made_files(address)
    if isinstance(made, str):
        return made.encode()
    return (_tar if '.tar' in address else _zip)(made)


def _bytes(made):
    return made.encode() if isinstance(made, str) else made


def _zip(files):
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, 'w') as file:
        for path, made in files.items():
            file.writestr(path, made)
    return archive.getvalue()


def _tar(files):
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode='w:gz') as file:
        for path, made in files.items():
            member = tarfile.TarInfo(path)
            member.size = len(_bytes(made))
            file.addfile(member, io.BytesIO(_bytes(made)))
    return archive.getvalue()


_skip_all = tf.data.Dataset.skip


def _skip(self, count, name=None):
    """Leaves a fifth of the samples, though scripts skip as many as the real data has."""
    there = int(self.cardinality())
    return _skip_all(self, min(count, there * 4 // 5) if there > 0 else count)


def _lines(separator, *columns):
    return '\n'.join(separator.join(map(str, line)) for line in zip(*columns)) + '\n'


def _sentence(random, length):
    return ' '.join(WORDS[number] for number in random.randint(0, len(WORDS), length))


def _ratings(random):
    """Users, movies, ratings and times; all users and movies are there, some movies often."""
    users = np.arange(RATINGS) % USERS
    few = (random.zipf(1.2, RATINGS - MOVIES) - 1) % MOVIES
    movies = random.permutation(np.concatenate([np.arange(MOVIES), few]))
    times = random.permutation(RATINGS)
    return 1 + random.permutation(users), 1 + movies, random.randint(1, 6, RATINGS), times


def _small_movielens(random):
    titles = 'movieId,title,genres\n' + _lines(',', *_movies(random))
    ratings = 'userId,movieId,rating,timestamp\n' + _lines(',', *_ratings(random))
    return {'ml-latest-small/ratings.csv': ratings, 'ml-latest-small/movies.csv': titles}


def _movies(random):
    numbers = np.arange(1, MOVIES + 1)
    genres = ['|'.join(GENRES[: 1 + number % 4]) for number in numbers]
    return numbers, ['%s %d' % (_sentence(random, 3), number) for number in numbers], genres


def _movielens_1m(random):
    users = np.arange(1, USERS + 1)
    jobs, ages = random.randint(0, 21, USERS), random.randint(1, 57, USERS)
    of_users = users, ['FM'[number % 2] for number in users], ages // 7, jobs, users
    files = dict(users=of_users, ratings=_ratings(random), movies=_movies(random))
    return {'ml-1m/%s.dat' % name: _lines('::', *files[name]) for name in files}


def _pairs(random, end=''):
    sentences = [_sentence(random, random.randint(2, 8)) for _ in range(SAMPLES)]
    return ''.join('%s\t%s%s\n' % (one, one[::-1], end) for one in sentences)


def _forests(random):
    areas, soils = np.eye(4, dtype=int), np.eye(40, dtype=int)
    columns = [random.randint(0, 250, (SAMPLES, 10)), areas[random.randint(0, 4, SAMPLES)]]
    columns += [soils[np.arange(SAMPLES) % 40], random.randint(1, 8, (SAMPLES, 1))]
    return _lines(',', *np.concatenate(columns, 1).T)


def _hearts(random):
    names = 'sex cp fbs restecg exang ca age trestbps chol thalach oldpeak slope target'.split()
    most = dict(cp=5, restecg=3, ca=4, age=80, trestbps=200, chol=400, thalach=200, slope=4)
    columns = [random.randint(0, most.get(name, 2), SAMPLES) for name in names]
    thal = [('fixed', 'normal', 'reversible')[number % 3] for number in range(SAMPLES)]
    return ','.join(names + ['thal']) + '\n' + _lines(',', *columns, thal)


def _adults(random, end=''):
    """The income of adults; words that stand for numbers of a column."""
    kinds = dict.fromkeys((1, 3, 5, 6, 7, 8, 9, 13), 5)
    columns = [
        [' kind%d' % number for number in random.randint(0, kinds[column], SAMPLES)]
        if column in kinds
        else random.randint(1, 90, SAMPLES)
        for column in range(14)
    ]
    income = [(' <=50K', ' >50K')[number] + end for number in random.randint(0, 2, SAMPLES)]
    return _lines(',', *columns, income)


def _tested_adults(random):
    return ','.join(['a header'] * 15) + '\n' + _adults(random, '.')


def _incomes(random):
    """The census's incomes: 40 columns of words and numbers, a weight and the income."""
    numbers = {0, 5, 16, 17, 18, 30, 39}
    columns = [
        random.randint(1, 90, SAMPLES)
        if column in numbers
        else [' kind%d' % number for number in random.randint(0, 5, SAMPLES)]
        for column in range(41)
    ]
    columns[24] = np.round(random.uniform(100, 2000, SAMPLES), 2)
    incomes = [(' - 50000.', ' 50000+.')[number % 2] for number in columns[0]]
    return _lines(',', *columns, incomes)


def _banks(random):
    # Each column has the word that the script looks up at its end.
    words = dict(job='blue-collar', marital='married', education='basic.9y', default='no')
    words.update(housing='yes', loan='no', contact='cellular', month='may', day_of_week='fri')
    words.update(poutcome='nonexistent')
    numbers = 'age duration campaign previous emp.var.rate cons.price.idx cons.conf.idx'
    columns = {}
    for name, word in words.items():
        columns[name] = [(word, 'a', 'b')[kind] for kind in random.randint(0, 3, SAMPLES)]
    columns.update({name: random.randint(0, 60, SAMPLES) for name in numbers.split()})
    columns.update({name: random.uniform(0, 5, SAMPLES) for name in ('euribor3m', 'nr.employed')})
    columns['pdays'] = np.where(random.rand(SAMPLES) < 0.5, 999, 3)
    columns['y'] = [('no', 'yes')[number] for number in random.randint(0, 2, SAMPLES)]
    text = ';'.join(columns) + '\n' + _lines(';', *columns.values())
    return {'bank-additional.zip': _zip({'bank-additional/bank-additional.csv': text})}


def _news(random):
    """Twenty groups of news; each starts with ten lines of a header."""
    groups = ['comp.graphics'] + ['group%d' % number for number in range(19)]
    # The script looks these words up.
    texts, text = {}, '\n' * 10 + 'the cat sat on the mat '
    for group in groups:
        for number in range(38987, 38987 + SAMPLES // 20):
            texts['20_newsgroup/%s/%d' % (group, number)] = text + _sentence(random, 44)
    return texts


def _papers(random):
    terms = [['a'], ['a', 'b'], ['c']]
    columns = ['paper %d' % number for number in range(2 * SAMPLES)], [], []
    for _ in range(2 * SAMPLES):
        columns[1].append(_sentence(random, 40))
        columns[2].append('"%s"' % terms[random.randint(3)])
    return 'titles,summaries,terms\n' + _lines(',', *columns)


def _load_dataset(name):
    """CoNLL 2003 as `datasets` has it."""
    if name != 'conll2003':
        raise FileNotFoundError('no data is made for %s' % name)
    random = np.random.RandomState(0)
    return {part: _Records(random) for part in ('train', 'validation')}


class _Records(list):
    """Sentences of any length with a tag for each word; also found by the name of a column."""

    def __init__(self, random):
        super().__init__()
        for _ in range(SAMPLES):
            tokens = _sentence(random, random.randint(2, 12)).split()
            self.append({'tokens': tokens, 'ner_tags': list(random.randint(0, 9, len(tokens)))})

    def __getitem__(self, key):
        return [one[key] for one in self] if isinstance(key, str) else super().__getitem__(key)


def _load(name, split=None, **kwargs):
    """MovieLens 100K as `tensorflow_datasets` has it."""
    random = np.random.RandomState(0)
    numbers, titles, _ = _movies(random)
    genres = tf.ragged.constant([list(range(1 + number % 4)) for number in numbers])
    movies = {'movie_id': numbers.astype(str), 'movie_title': titles, 'movie_genres': genres}
    if name == 'movielens/100k-ratings':
        users, of_movies, ratings, times = _ratings(random)
        movies = {key: tf.gather(movies[key], of_movies - 1) for key in movies}
        movies.update(
            user_id=users.astype(str),
            user_rating=ratings.astype(np.float32),
            timestamp=times,
            user_gender=users % 2 == 0,
            raw_user_age=(users % 60 + 7).astype(np.float32),
            bucketized_user_age=(users % 7 * 7).astype(np.float32),
            user_occupation_label=users % 21,
            user_occupation_text=np.char.add('job', (users % 21).astype(str)),
            user_zip_code=(10000 + users % 500).astype(str),
        )
    elif name != 'movielens/100k-movies':
        raise FileNotFoundError('no data is made for %s' % name)
    data = tf.data.Dataset.from_tensor_slices(movies)
    # A number of genres for each movie is a list of any length there, no ragged tensor.
    return data.map(lambda one: {**one, 'movie_genres': tf.convert_to_tensor(one['movie_genres'])})


#: From the ends of addresses to functions that make the file, or the files of the archive.
MAKERS = {
    'ml-latest-small.zip': _small_movielens,
    'ml-1m.zip': _movielens_1m,
    'spa-eng.zip': lambda random: {'spa-eng/spa.txt': _pairs(random)},
    'fra-eng.zip': lambda random: {'fra.txt': _pairs(random, '\tits source')},
    'covtype.data.gz': _forests,
    'heart.csv': _hearts,
    'adult.data': _adults,
    'adult.test': _tested_adults,
    'census+income.zip': lambda random: {
        name: _incomes(random) for name in ('adult.data', 'adult.test')
    },
    'bank+marketing.zip': _banks,
    'news20.tar.gz': _news,
    'arxiv_data.csv': _papers,
    'nietzsche.txt': lambda random: _sentence(random, 1000),
}
