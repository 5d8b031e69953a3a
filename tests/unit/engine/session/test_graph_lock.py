# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""One thread at a time changes a graph, and those that act for it do so, too."""

import threading

from frameworks import tf

from keras_parallax.engine.session.graph_lock import GraphLock, lock_of


def in_a_thread(act, seconds=None):
    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    thread.join(seconds)
    return thread


def test_a_graph_has_one_lock_and_another_graph_another():
    one, other = tf.Graph(), tf.Graph()
    assert lock_of(one) is lock_of(one)
    assert lock_of(one) is not lock_of(other)


def test_a_thread_waits_while_another_holds_the_lock_which_may_take_it_again():
    lock, order = GraphLock(), []

    def take():
        with lock.held():
            order.append('another')

    with lock.held():
        thread = in_a_thread(take, 0.2)
        with lock.held():
            order.append('inner')
        order.append('outer')
    thread.join(60)
    assert order == ['inner', 'outer', 'another']


def test_a_thread_that_acts_for_the_one_that_waits_for_it_needs_no_lock():
    lock, order = GraphLock(), []

    def act():
        with lock.lent():
            with lock.held():
                order.append('lent')

    with lock.held():
        assert not in_a_thread(act, 60).is_alive()
        order.append('after')
    assert order == ['lent', 'after']


def test_what_is_lent_is_lent_to_one_thread_and_given_back():
    lock, order = GraphLock(), []

    def take():
        with lock.lent():
            pass
        with lock.held():
            order.append('another')

    with lock.held(), lock.lent():
        thread = in_a_thread(take, 0.2)
        order.append('own')
    thread.join(60)
    assert order == ['own', 'another']
