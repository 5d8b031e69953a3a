# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Every place at which Keras, TensorFlow or the process is changed, and why.

`PATCHES` is the list; what is not in it cannot be patched by the functions below, and
tests/unit/compat/test_patches.py looks for what goes round them. Programs of our own, such as the
watchdog and `keras-parallax server`, do with their processes what they like.
"""

import contextlib
import functools
import inspect
from typing import Any, Callable, Iterator, NamedTuple, Optional, Sequence, Set, Tuple

from keras_parallax.compat.patched_keras3 import ON_KERAS_3, ON_OBJECTS_OF_KERAS_3
from keras_parallax.compat.patched_objects import ON_OBJECTS

#: Kinds of patches: a method that is replaced for good, or while a step is built; the class of an
#: object of theirs; an attribute that only we set on one; one of its own that gets another value
#: (`patched_objects`); a hook that the process has once.
METHOD, WHILE_OPEN, CLASS, ATTRIBUTE, PROCESS = 'method', 'while open', 'class', 'attribute', 'hook'
INSTANCE = 'instance'
#: A method of Keras 3 that is replaced for good.
OF_KERAS_3 = 'method of Keras 3'

_KERAS = 'Keras 2.2.4, TF 1.11'
_TENSORFLOW = 'TF 1.11'
_LATER_KERAS = 'Keras 2.3, 2.15, 2.21, tf.keras of TensorFlow 1.15'
_HOROVOD = 'Horovod 0.19.5'


class Patch(NamedTuple):
    """Something of others that is changed.

    Attributes:
        kind: `METHOD`, `WHILE_OPEN`, `CLASS`, `ATTRIBUTE`, `INSTANCE`,
            `OF_KERAS_3` or `PROCESS`.
        target: what is changed. Methods are those of both Keras packages, unless they are `tf`'s.
        why: what there is no other way to do.
        version: the versions that have no other way.
        test: the test that fails without.
    """

    kind: str
    target: str
    why: str
    version: str
    test: str


PATCHES = (
    Patch(
        METHOD,
        'Layer.add_weight',
        'no variable leads to its regularizer, whose penalty must be told from the loss',
        _KERAS,
        'tests/parallel/test_equality.py::test_workers_equal_plain_keras_on_the_joined_batch',
    ),
    Patch(
        METHOD,
        'Network.save',
        'Keras would take whole tables into memory, and has no place to plug a format in',
        _KERAS,
        'tests/parallel/test_saving.py::test_every_way_to_save_writes_the_same_file',
    ),
    Patch(
        METHOD,
        'Network.save_weights',
        'as Network.save',
        _KERAS,
        'tests/parallel/test_saving.py::test_weights_alone_are_those_of_the_model',
    ),
    Patch(
        METHOD,
        'Network.load_weights',
        'as Network.save',
        _KERAS,
        'tests/parallel/test_saving.py::test_one_rank_alone_loads_weights_by_name',
    ),
    Patch(
        METHOD,
        'Model.compile',
        'the optimizer is wrapped although the script gives a plain one',
        _KERAS,
        'tests/parallel/test_compiling.py::'
        'test_a_script_with_no_line_of_ours_but_the_scope_equals_plain_keras',
    ),
    Patch(
        METHOD,
        'Model.train_on_batch',
        'a batch without samples on one of several workers is refused',
        _KERAS,
        'tests/parallel/test_failures.py::test_a_failed_job_ends_and_says_why',
    ),
    Patch(
        METHOD,
        'Model._make_train_function',
        'a model that would train on each worker alone is refused before its first step',
        _KERAS,
        'tests/parallel/test_compiling.py::'
        'test_a_model_of_the_scope_that_is_compiled_after_it_is_refused_before_its_first_step',
    ),
    Patch(
        METHOD,
        'Optimizer.get_gradients',
        'updates that a script builds of a plain optimizer are refused',
        _KERAS,
        'tests/parallel/test_compiling.py::'
        'test_updates_of_an_optimizer_that_is_not_wrapped_are_refused_where_they_are_built',
    ),
    Patch(
        METHOD,
        'tf.train.Optimizer.apply_gradients',
        'a step by hand that exchanges nothing is refused',
        _TENSORFLOW,
        'tests/parallel/test_compiling.py::'
        'test_a_step_by_hand_that_exchanges_nothing_is_refused_and_one_that_does_is_not',
    ),
    Patch(
        METHOD,
        'Model.fit',
        'there is no list of callbacks for every fit, in which workers compare and average',
        _KERAS,
        'tests/parallel/test_training.py::test_fit_gives_the_numbers_and_decisions_of_plain_keras',
    ),
    Patch(
        METHOD,
        'Model.fit_generator',
        'as Model.fit; tf.keras calls callbacks before it has built a step',
        _KERAS,
        'tests/parallel/test_training.py::'
        'test_generators_arguments_by_place_and_a_second_fit_are_no_different',
    ),
    Patch(
        METHOD,
        'Model.evaluate',
        'its progress bar is not printed once for each worker',
        _KERAS,
        'tests/parallel/test_training.py::test_only_rank_0_prints_unless_asked',
    ),
    Patch(
        METHOD,
        'Model.evaluate_generator',
        'a metric of kp.metrics is of the samples of all workers',
        _KERAS,
        'tests/parallel/test_metrics.py::test_metrics_are_of_all_samples_on_every_rank',
    ),
    Patch(
        METHOD,
        'Model.train_on_batch',
        'workers exchange what sample weights sum up to once a script gives some',
        _KERAS,
        'tests/parallel/test_equality.py::'
        'test_workers_equal_plain_keras_where_masks_and_weights_divide_a_loss',
    ),
    Patch(
        METHOD,
        'training.weighted_masked_objective',
        'no tensor leads to the mask and the weights that a loss is divided by',
        _KERAS,
        'tests/parallel/test_equality.py::'
        'test_workers_equal_plain_keras_where_masks_and_weights_divide_a_loss',
    ),
    Patch(
        WHILE_OPEN,
        'metrics.safe_div',
        'as training.weighted_masked_objective, of tf.keras',
        _TENSORFLOW,
        'tests/parallel/test_equality.py::'
        'test_workers_equal_plain_keras_where_masks_and_weights_divide_a_loss',
    ),
    Patch(
        METHOD,
        'Model._prepare_total_loss',
        'as training.weighted_masked_objective, of models that are graphs',
        _LATER_KERAS,
        'tests/parallel/test_equality.py::'
        'test_workers_equal_plain_keras_where_masks_and_weights_divide_a_loss',
    ),
    Patch(
        WHILE_OPEN,
        'losses_utils.apply_valid_mask',
        'as Model._prepare_total_loss, which calls it with the mask of each output',
        'Keras 2.15, 2.21',
        'tests/parallel/test_equality.py::'
        'test_workers_equal_plain_keras_where_masks_and_weights_divide_a_loss',
    ),
    Patch(
        WHILE_OPEN,
        'losses_utils.compute_weighted_loss',
        'as Model._prepare_total_loss, which calls it with what each loss returns',
        _LATER_KERAS,
        'tests/parallel/test_random_models.py::test_what_was_wrong_once_equals_plain_keras',
    ),
    Patch(
        WHILE_OPEN,
        'losses_utils.reduce_weighted_loss',
        'as Model._prepare_total_loss, which calls it for the loss of each output',
        _LATER_KERAS,
        'tests/parallel/test_random_models.py::test_what_was_wrong_once_equals_plain_keras',
    ),
    Patch(
        METHOD,
        'CallbackList.__init__',
        "averages come before Keras's own progress bar, and rank 0 writes for all",
        _KERAS,
        'tests/parallel/test_training.py::'
        'test_what_all_ranks_would_write_rank_0_writes_once_with_the_numbers_of_plain_keras',
    ),
    Patch(
        METHOD,
        'SessionLocal.__init__',
        'Keras has a session for each thread, with variables of its own; on shards there is one',
        'Keras 2.15, 2.21',
        'tests/parallel/test_sessions.py::'
        'test_threads_read_and_predict_while_another_builds_and_runs_steps',
    ),
    Patch(
        METHOD,
        'Function.__call__',
        'a lookup within a function counts as one; once it is a call, only its readers can change',
        'TF 1.15, 2.15, 2.21',
        'tests/unit/compat/test_function_calls.py::test_a_lookup_within_a_function_is_sparse',
    ),
    Patch(
        WHILE_OPEN,
        'tf_should_use._add_should_use_warning',
        'an assertion of a function whose Python is run is not one that is never used',
        'TF 1.15, 2.15, 2.21',
        'tests/unit/compat/test_function_calls.py::'
        'test_what_a_function_with_a_loop_writes_and_asserts_happens',
    ),
    Patch(
        WHILE_OPEN,
        'Optimizer.get_gradients',
        "a user's optimizer asks for gradients itself, and gets the exchanged ones",
        _KERAS,
        'tests/unit/engine/updates/test_requested_gradients.py::'
        'test_an_own_optimizer_gives_the_numbers_of_plain_keras',
    ),
    Patch(
        WHILE_OPEN,
        'tf.gradients',
        'as Optimizer.get_gradients; several modules have it, and callers look it up in any',
        _TENSORFLOW,
        'tests/unit/engine/updates/test_requested_gradients.py::'
        'test_an_own_optimizer_gives_the_numbers_of_plain_keras',
    ),
    Patch(
        METHOD,
        'graph_util.convert_variables_to_constants',
        'it reads variables by name, and a sharded table is no variable of the definition',
        _TENSORFLOW,
        'tests/parallel/test_sessions.py::'
        'test_a_frozen_graph_holds_the_whole_table_and_predicts_as_the_model',
    ),
    Patch(
        METHOD,
        'tf.Session.run',
        "a script's own session that is entered in the scope goes on with the scope's session",
        _TENSORFLOW,
        'tests/parallel/test_sessions.py::'
        'test_what_a_session_holds_and_any_way_to_run_a_step_give_the_numbers_of_plain_keras',
    ),
    Patch(
        METHOD,
        'tf.Session._make_callable_from_options',
        "as tf.Session.run; Keras's functions run by it",
        _TENSORFLOW,
        'tests/parallel/test_sessions.py::'
        'test_what_a_session_holds_and_any_way_to_run_a_step_give_the_numbers_of_plain_keras',
    ),
    Patch(
        CLASS,
        'tf.Session',
        'a session of before the scope goes on, with what it holds, as a ParallaxSession',
        _TENSORFLOW,
        'tests/parallel/test_sessions.py::test_one_process_goes_on_with_the_session_that_keras_had',
    ),
    Patch(
        CLASS,
        'tf.Variable',
        'layers and callbacks go on with the variable of a table when its rows lie in shards',
        _TENSORFLOW,
        'tests/parallel/test_tables.py::'
        'test_every_way_to_read_or_write_a_table_gives_plain_kerass_values',
    ),
    Patch(
        CLASS,
        'tf.Variable.name',
        "a user's formula may go by the name of a variable, and gets the table's for a shard",
        _TENSORFLOW,
        'tests/parallel/test_equality.py::test_workers_with_a_users_optimizer_equal_plain_keras',
    ),
    Patch(
        ATTRIBUTE,
        '_parallax_scope',
        'of a graph: its GraphScope, which lives as long as the graph',
        _TENSORFLOW,
        'tests/unit/test_single_process.py::test_a_model_built_after_clear_session_starts_anew',
    ),
    Patch(
        ATTRIBUTE,
        '_parallax_losses',
        'of a graph: the losses and metrics that Keras has divided, and by what',
        _TENSORFLOW,
        'tests/parallel/test_equality.py::'
        'test_workers_equal_plain_keras_where_masks_and_weights_divide_a_loss',
    ),
    Patch(
        ATTRIBUTE,
        '_parallax_bags',
        'of a graph: the ids of fields that several EmbeddingBags look up, which so are the same',
        _TENSORFLOW,
        'tests/unit/layers/test_embedding_bag.py::'
        'test_tables_of_one_field_are_looked_up_with_the_same_ids',
    ),
    Patch(
        ATTRIBUTE,
        '_parallax_lock',
        'of a graph: its GraphLock, which lives as long as the graph',
        _TENSORFLOW,
        'tests/parallel/test_sessions.py::'
        'test_threads_read_and_predict_while_another_builds_and_runs_steps',
    ),
    Patch(
        ATTRIBUTE,
        '_parallax',
        'of a variable whose rows lie in shards: its storage and its Table',
        _TENSORFLOW,
        'tests/parallel/test_tables.py::'
        'test_what_was_made_of_a_table_follows_it_to_other_shards_and_back',
    ),
    Patch(
        ATTRIBUTE,
        '_parallax_rows',
        'of a large weight: by what a file is filled block by block, made once',
        _TENSORFLOW,
        'tests/parallel/test_saving.py::'
        'test_tables_larger_than_a_block_take_less_than_a_block_of_memory',
    ),
    Patch(
        ATTRIBUTE,
        '_parallax_index',
        'of the table of a DynamicEmbedding, and of what says its ids: the IdIndex',
        _TENSORFLOW,
        'tests/unit/layers/test_dynamic_embedding.py::test_weights_that_are_set_bring_their_ids',
    ),
    Patch(
        ATTRIBUTE,
        '_parallax_iterator',
        'of a one-shot iterator: the one that has taken its place',
        _TENSORFLOW,
        'tests/parallel/test_sessions.py::'
        'test_what_a_session_holds_and_any_way_to_run_a_step_give_the_numbers_of_plain_keras',
    ),
    Patch(
        PROCESS,
        'sys.meta_path',
        'a Keras package that the script imports after the strategy is patched, too',
        'Python 3.6',
        'tests/unit/keras2/test_compiling.py::'
        'test_what_is_to_be_done_is_done_once_when_the_package_is_complete',
    ),
    Patch(
        PROCESS,
        'sys.excepthook',
        'the other workers are told what a worker has failed with',
        'Python 3.6',
        'tests/parallel/test_failures.py::test_a_failed_job_ends_and_says_why',
    ),
    Patch(
        PROCESS,
        'sys.exit',
        'the other workers are told with what a worker has ended',
        'Python 3.6',
        'tests/unit/engine/job/test_last_words.py::test_what_ends_a_process_is_noted',
    ),
    Patch(
        PROCESS,
        'stderr.write',
        'the other workers are told the text of a SystemExit, which Python itself writes',
        'Python 3.6',
        'tests/unit/compat/test_exit_texts.py::test_the_text_of_an_exit_is_noted_and_shown',
    ),
    Patch(
        PROCESS,
        'threading.excepthook',
        'the other workers are told of a thread that an exception has ended; before Python 3.8 it '
        'is `threading._format_exc`',
        'Python 3.6',
        'tests/unit/engine/job/test_last_words.py::test_what_ends_a_process_is_noted',
    ),
    Patch(
        PROCESS,
        'atexit.register',
        'a worker that has ended is told from one that is lost; locks of files go',
        'Python 3.6',
        'tests/parallel/test_failures.py::test_a_job_ends_well',
    ),
    Patch(
        PROCESS,
        'set_terminate',
        'Horovod ends the process where a connection breaks, before a reason is told',
        _HOROVOD,
        'tests/parallel/test_failures.py::test_a_failed_job_ends_and_says_why',
    ),
    Patch(
        PROCESS,
        'jemalloc',
        'pages that a step frees are kept for the next step',
        _TENSORFLOW,
        'tests/unit/compat/test_jemalloc.py::'
        'test_a_step_does_not_wait_for_pages_that_the_step_before_it_had',
    ),
    *(Patch(INSTANCE, *of_object) for of_object in (*ON_OBJECTS, *ON_OBJECTS_OF_KERAS_3)),
    *(Patch(OF_KERAS_3, *of_method) for of_method in ON_KERAS_3),
)

_LISTED = {(patch.kind, patch.target) for patch in PATCHES}

#: Pairs of class and name of method of what is replaced for good.
_replaced: Set[Tuple[Any, str]] = set()


def replace_method(
    target: str, owner: Any, make: Callable[[Callable[..., Any]], Callable[..., Any]]
) -> None:
    """Puts another method in the place of a class's own, once in a process.

    Args:
        target: which one, as `PATCHES` has it.
        owner: the class.
        make: function from the original to the method that takes its place.
    """
    require_listed(METHOD, target)
    name = target.rsplit('.', 1)[1]
    if (owner, name) in _replaced:
        return
    original = getattr(owner, name)
    method: Any = functools.wraps(original)(make(original))
    # For those who ask which arguments there are without following `__wrapped__`.
    method.__signature__ = inspect.signature(original)
    setattr(owner, name, method)
    _replaced.add((owner, name))


@contextlib.contextmanager
def replaced(
    target: str,
    owners: Sequence[Any],
    function: Optional[Callable[..., Any]],
    name: Optional[str] = None,
) -> Iterator[None]:
    """While open, another function is in the place of one that classes or modules have in common.

    Args:
        target: which one, as `PATCHES` has it.
        owners: a list of the classes or modules.
        function: what takes its place.
        name: the name that it has there, if not that of `target`.
    """
    require_listed(WHILE_OPEN, target)
    name = name or target.rsplit('.', 1)[1]
    originals = [getattr(owner, name) for owner in owners]
    for owner in owners:
        setattr(owner, name, function)
    try:
        yield
    finally:
        for owner, original in zip(owners, originals):
            setattr(owner, name, original)


def change_class(target: str, thing: Any, cls: Any) -> Any:
    """Makes an object one of another class, whose methods find the attributes that it has.

    Args:
        target: what it is, as `PATCHES` has it.
        thing: the object.
        cls: the class.

    Returns:
        The object.
    """
    require_listed(CLASS, target)
    thing.__class__ = cls
    return thing


def require_listed(kind: str, target: str) -> None:
    """Raises `KeyError` if `PATCHES` has no patch of a kind and target."""
    if (kind, target) not in _LISTED:
        raise KeyError('%s %s is not in PATCHES.' % (kind, target))
