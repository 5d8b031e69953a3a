# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Films that people like, for `examples/`: read from files in MovieLens's layouts, or made."""

import example_runs
import numpy as np
import pytest

movielens, two_tower = map(example_runs.module, ('films', 'two_tower'))
FILMS = movielens.make(people=30, films=40)


def test_made_likes_are_the_same_each_time_and_nobody_likes_a_film_twice():
    again = movielens.make(people=30, films=40)
    assert again.likes == FILMS.likes and again.titles == FILMS.titles
    assert all(len(set(liked)) == len(liked) and 0 not in liked for liked in FILMS.likes)
    assert FILMS.genres.shape == (41, movielens.GENRES)
    assert not FILMS.genres[0].any() and FILMS.genres[1:, 0].all()


@pytest.mark.parametrize('ending', ['.csv', '.dat'])
def test_both_layouts_are_read_in_the_order_of_time(ending, tmp_path):
    example_runs.write_movielens(FILMS, tmp_path, ending)
    found = movielens.read(str(tmp_path))
    assert found.titles == [''] + [title + ', The' for title in FILMS.titles[1:]]
    assert found.genre_names == FILMS.genre_names and found.likes == FILMS.likes
    np.testing.assert_array_equal(found.genres, FILMS.genres)


def test_the_last_like_of_each_person_is_held_out():
    films = FILMS._replace(likes=[[3, 1, 2, 4], [5], [6, 7]])
    train, held_out = movielens.split(films, 2, (100, 100))
    assert train.history.tolist() == [[3, 0], [3, 1]] and train.film.tolist() == [[1], [2]]
    assert held_out.history.tolist() == [[1, 2], [6, 0]] and held_out.film.tolist() == [[4], [7]]
    np.testing.assert_array_equal(held_out.film_genres, FILMS.genres[[4, 7]])
    np.testing.assert_array_equal(held_out.history_genres[0], np.ravel(FILMS.genres[[1, 2]]))
    limited, _ = movielens.split(films, 2, (1, 1))
    assert len(limited.film) == 1


def test_films_are_ranked_among_those_that_were_not_liked_before():
    samples = movielens.Samples(np.array([[1, 0], [2, 3]]), None, np.array([[2], [1]]), None)
    vectors = np.array([[9.0], [4.0], [3.0], [5.0], [2.0]])
    assert two_tower.ranks_of(np.ones([2, 1]), vectors, samples).tolist() == [1, 0]


@pytest.mark.parametrize(
    'file, line, says',
    [
        ('ratings.csv', '1,10', "Line 2 of .*ratings.csv is not one of MovieLens: .*'1', '10'"),
        ('ratings.csv', '1,10,x,9', "Line 2 of .*ratings.csv is not one of MovieLens: .*'x'"),
        ('ratings.csv', '1,77,5.0,9', 'rates film 77, which is not among the films'),
        ('movies.csv', 'x,Title,War', "Line 2 of .*movies.csv is not one of MovieLens: .*'x'"),
    ],
)
def test_a_line_of_another_layout_is_told_with_its_place(file, line, says, tmp_path):
    example_runs.write_movielens(FILMS, tmp_path)
    path = tmp_path.joinpath(file)
    head = path.read_text().splitlines()[0]
    path.write_text(head + '\n' + line + '\n')
    with pytest.raises(movielens.FilmsError, match=says):
        movielens.read(str(tmp_path))


def test_missing_files_are_told(tmp_path):
    with pytest.raises(movielens.FilmsError, match='neither movies.csv nor movies.dat'):
        movielens.read(str(tmp_path))
