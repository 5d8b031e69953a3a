# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The attributes of objects of Keras and TensorFlow that get other values than theirs, and why.

`patches.PATCHES` has them, too. Attributes that only we set are listed there.
"""

from typing import Tuple

_KERAS = 'Keras 2.2.4, 2.3, 2.15, 2.21, TF 1.11'

_FIT = 'tests/unit/callbacks/test_fit_progress.py::'
_GOES_ON = _FIT + 'test_a_run_that_goes_on_within_an_epoch_ends_as_an_unbroken_one'
_BAR = _FIT + 'test_the_progress_bar_goes_on_with_the_averages_of_the_epoch'
_TABLES = (
    'tests/parallel/test_tables.py::'
    'test_every_way_to_read_or_write_a_table_gives_plain_kerass_values'
)
_OF_TABLES = (
    'tests/unit/engine/updates/test_table_optimizers.py::'
    'test_each_variable_follows_its_own_optimizer'
)
_STEP_METRICS = (
    'tests/unit/callbacks/test_step_metrics.py::'
    'test_keras_progress_bar_shows_the_numbers_as_they_are'
)
_LATER_BARS = 'Keras 2.15, 2.21'
_FEW = 'tests/unit/callbacks/test_step_metrics.py::test_keras_progress_bar_has_a_short_line'
_KERNELS = (
    'tests/unit/engine/updates/test_fused_kernels.py::'
    'test_a_model_resumes_in_plain_keras_from_the_state_of_a_kernel'
)
_ENDED = 'tests/parallel/test_failures.py::test_a_failed_job_ends_and_says_why'

#: For each its class and name, why it is changed, the versions, and a test that fails without it.
#: Of `_keras_initialized`, `_keras_shape`, `Graph._lock` and those of a session, it is a test that
#: runs the code and was not seen to fail without.
ON_OBJECTS: Tuple[Tuple[str, str, str, str], ...] = (
    (
        'Model.train_function',
        'Keras calls nothing before the first step, nor instead of a step that is over',
        _KERAS,
        _GOES_ON,
    ),
    (
        'Model.stop_training',
        'all workers stop after the same batch',
        _KERAS,
        'tests/parallel/test_training.py::test_all_ranks_stop_where_one_does',
    ),
    (
        'Model.metrics',
        'Keras writes the metrics of kp.metrics to files as the script has given them',
        'Keras 2.2.4, 2.3, TF 1.11; _compile_metrics of 2.15, 2.21',
        'tests/unit/metrics/test_auc.py::test_a_file_of_a_model_has_its_name',
    ),
    (
        'CallbackList.callbacks',
        'callbacks do not hear of batches that were over before a resume',
        _KERAS,
        _GOES_ON,
    ),
    (
        'Callback.verbose',
        'callbacks that would print the same on all workers print on rank 0',
        _KERAS,
        'tests/parallel/test_training.py::'
        'test_callbacks_that_would_print_the_same_on_all_ranks_print_on_rank_0',
    ),
    (
        'ProgbarLogger.stateful_metrics',
        'the progress bar shows what workers have averaged, and does not average it again',
        _KERAS,
        _STEP_METRICS,
    ),
    (
        'ProgbarLogger.on_batch_end',
        'the bar shows two of the metrics of steps, and Keras 2.15 has it show all logs',
        _LATER_BARS,
        _FEW,
    ),
    ('ProgbarLogger.on_train_batch_end', 'the same', _LATER_BARS, _FEW),
    ('ProgbarLogger.on_epoch_end', 'the same', _LATER_BARS, _FEW),
    ('ProgbarLogger.seen', 'the bar goes on within an epoch', _KERAS, _BAR),
    ('ProgbarLogger.log_values', 'the bar goes on within an epoch', _KERAS, _BAR),
    ('BaseLogger.seen', 'the averages of an epoch go on after a resume', _KERAS, _BAR),
    ('BaseLogger.totals', 'the averages of an epoch go on after a resume', _KERAS, _BAR),
    (
        'History.epoch',
        'the history goes on after a resume',
        _KERAS,
        _FIT + 'test_history_and_callbacks_go_on_between_epochs_too',
    ),
    (
        'History.history',
        'the history goes on after a resume',
        _KERAS,
        _FIT + 'test_history_and_callbacks_go_on_between_epochs_too',
    ),
    (
        'Metric._call_result',
        'a step returns the value of a metric of kp.metrics',
        'Keras 2.15, 2.21, tf.keras of TensorFlow 1.15',
        'tests/unit/metrics/test_auc.py::'
        'test_training_and_validation_have_sums_of_their_own_and_every_epoch_begins_anew',
    ),
    (
        'Optimizer.weights',
        'a file has the slots of kernels as it has those of get_updates',
        'Keras 2.2.4, TF 1.11',
        _KERNELS,
    ),
    ('Optimizer.iterations', 'optimizers of tables count one number of steps', _KERAS, _OF_TABLES),
    (
        'Optimizer._iterations',
        'an OptimizerV2 lets its number of steps be set once',
        'Keras 2.15, 2.21, tf.keras of TensorFlow 1.15',
        _OF_TABLES,
    ),
    (
        'Variable.assign_add',
        'while updates of an OptimizerV2 for some tables are built, it does not count a step',
        'Keras 2.15, 2.21, tf.keras of TensorFlow 1.15',
        _OF_TABLES,
    ),
    (
        'Optimizer._learning_rate',
        'while its config is read: Keras reads the variable of a rate eagerly',
        'Keras 2.15, 2.21',
        'tests/unit/compat/test_tensorflow_2.py::'
        'test_an_optimizer_for_eager_execution_is_turned_into_its_twin',
    ),
    ('Variable._assign_op', 'set_value writes a table by shards, in blocks', _KERAS, _TABLES),
    ('Variable._assign_placeholder', 'as Variable._assign_op', _KERAS, _TABLES),
    (
        'Variable._keras_initialized',
        'Keras would initialize what the owners of shards have initialized',
        _KERAS,
        _TABLES,
    ),
    (
        'Variable._keras_shape',
        'int_shape of Keras reads it off a variable that no backend has made',
        'Keras 2.2.4, TF 1.11',
        _TABLES,
    ),
    (
        'Variable._constraint',
        "a shard has its table's constraint, which an optimizer reads off the variable",
        _KERAS,
        'tests/parallel/test_equality.py::test_workers_equal_plain_keras_on_the_joined_batch',
    ),
    (
        'Graph._lock',
        'whoever holds the lock of a graph may ask the graph',
        'TF 1.6',
        'tests/parallel/test_sessions.py::'
        'test_threads_read_and_predict_while_another_builds_and_runs_steps',
    ),
    ('Session._closed', 'to close the session of a lost job may never end', 'TF 1.11', _ENDED),
    ('Session._session', 'as Session._closed', 'TF 1.11', _ENDED),
)
