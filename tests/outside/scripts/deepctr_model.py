# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Trains a model of DeepCTR on made clicks: a user's script, in plain tf.keras.

Usage: deepctr_model.py MODEL
"""

import sys

import deepctr.models
import numpy as np

try:
    from deepctr.feature_column import DenseFeat, SparseFeat, VarLenSparseFeat, get_feature_names

    LENGTH_NAME = 'seq_length'
except ImportError:  # DeepCTR 0.7.5, whose DIEN has an input of that name itself.
    from deepctr.inputs import DenseFeat, SparseFeat, VarLenSparseFeat, get_feature_names

    LENGTH_NAME = None

NAME = sys.argv[1]
SAMPLES, ITEMS, GENRES, LENGTH, WIDTH = 96, 30, 7, 4, 8
random = np.random.RandomState(5)


def ids(rows, *shape):
    """Ids from 1, small ones frequent; 0 stands for nothing."""
    return 1 + (random.zipf(1.4, (SAMPLES,) + shape) - 1) % (rows - 1)


def clicks():
    """Columns of a table of clicks with a list of genres in each."""
    columns = [SparseFeat('user', 40, WIDTH), SparseFeat('item', ITEMS, WIDTH)]
    columns += [SparseFeat('city', 5, WIDTH), DenseFeat('price', 1), DenseFeat('age', 1)]
    columns += [VarLenSparseFeat(SparseFeat('genres', GENRES, WIDTH), LENGTH, 'mean')]
    data = {'user': ids(40), 'item': ids(ITEMS), 'city': ids(5), 'genres': ids(GENRES, LENGTH)}
    data.update(price=random.uniform(size=SAMPLES), age=random.uniform(size=SAMPLES))
    return columns, data


def grouped():
    """Columns in groups, as FLEN wants them."""
    columns = [
        SparseFeat(name, rows, WIDTH, group_name=group)
        for name, rows, group in [('user', 40, 'a'), ('item', ITEMS, 'b'), ('city', 5, 'c')]
    ]
    return columns, {'user': ids(40), 'item': ids(ITEMS), 'city': ids(5)}


def histories(sessions=0, length_name=None):
    """Columns with what each user has looked at before, maybe in sessions."""
    columns = [SparseFeat('user', 40, WIDTH), SparseFeat('item', ITEMS, WIDTH)]
    columns += [DenseFeat('score', 1)]
    data = {'user': ids(40), 'item': ids(ITEMS), 'score': random.uniform(size=SAMPLES)}
    names = ['sess_%d_item' % number for number in range(sessions)] or ['hist_item']
    for name in names:
        seen = SparseFeat(name, ITEMS, WIDTH, embedding_name='item')
        columns.append(VarLenSparseFeat(seen, LENGTH, length_name=length_name))
        data[name] = ids(ITEMS, LENGTH)
    return columns, data


def both(columns, **arguments):
    """A model of features for its linear and for its deep part."""
    return getattr(deepctr.models, NAME)(columns, columns, **arguments)


def deep(columns, *others, **arguments):
    """A model of features for its deep part only."""
    return getattr(deepctr.models, NAME)(columns, *others, **arguments)


def build():
    """The model called NAME, and what it is trained on."""
    if NAME == 'FLEN':
        columns, data = grouped()
        return both(columns), columns, data
    if NAME == 'DIN':
        columns, data = histories()
        return deep(columns, ['item'], att_activation='relu'), columns, data
    if NAME in ('DIEN', 'BST'):
        columns, data = histories(length_name=LENGTH_NAME)
        data['seq_length'] = random.randint(1, LENGTH + 1, SAMPLES)
        more = {'att_head_num': 2} if NAME == 'BST' else {'att_activation': 'relu'}
        return deep(columns, ['item'], **more), columns, data
    if NAME == 'DSIN':
        columns, data = histories(sessions=2)
        data['sess_length'] = random.randint(1, 3, SAMPLES)
        model = deep(columns, ['item'], sess_max_count=2, att_embedding_size=1, att_head_num=WIDTH)
        return model, columns, data
    columns, data = clicks()
    if NAME in ('AFM', 'CCPM', 'EDCN'):
        columns = [column for column in columns if not isinstance(column, DenseFeat)]
    if NAME == 'FGCNN':
        shape = dict(conv_kernel_width=(3, 2), conv_filters=(2, 1), new_maps=(2, 2))
        return both(columns, pooling_width=(2, 2), **shape), columns, data
    if NAME in ('PNN', 'MLR'):
        return deep(columns), columns, data
    return both(columns), columns, data


model, columns, data = build()
names = get_feature_names(columns) + [name for name in data if name.endswith('_length')]
targets = random.randint(0, 2, SAMPLES)
model.compile('adagrad', 'binary_crossentropy', metrics=['binary_crossentropy'])
model.fit({name: data[name] for name in names}, targets, batch_size=24, epochs=2, verbose=0)
model.save_weights('weights.h5')
model.load_weights('weights.h5')
