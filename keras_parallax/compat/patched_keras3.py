# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""The methods of Keras 3 that are replaced, and why. `patches.PATCHES` has them, too."""

from typing import Tuple

_VERSION = 'Keras 3.15'
_EQUAL = 'tests/parallel/test_keras3.py::test_two_workers_equal_plain_keras_3_with_tensorflow'
_FAILURE = 'tests/parallel/test_keras3_behaviour.py::test_a_failure_is_told_on_each_rank'
_REFUSED = 'tests/parallel/test_keras3_behaviour.py::test_what_would_train_otherwise_is_refused'
_LIVES = (
    'tests/parallel/test_keras3_lives.py::'
    'test_a_life_of_a_model_is_that_of_plain_keras_3_or_is_refused'
)
_QUANTIZED = (
    'tests/parallel/test_keras3_behaviour.py::'
    'test_a_step_of_a_table_that_was_quantized_since_is_refused'
)
_SAVED = (
    'tests/parallel/test_keras3_behaviour.py::'
    'test_plain_keras_loads_a_saved_model_and_weights_can_be_set'
)
_EXPORTED = 'tests/parallel/test_keras3_behaviour.py::test_an_exported_model_predicts_the_same'
_ARCHIVE = (
    'tests/parallel/test_keras3_behaviour.py::test_an_archive_that_could_not_be_served_is_refused'
)
_PLAN = (
    'tests/parallel/test_keras3_behaviour.py::'
    'test_the_plan_says_which_tables_have_shards_and_why_others_have_not'
)
_BLOCKS = (
    'tests/parallel/test_keras3_memory.py::'
    'test_a_table_larger_than_the_memory_of_a_worker_is_trained_and_exported'
)
_BACKED_UP = (
    'tests/parallel/test_keras3_saving.py::'
    'test_a_fit_that_was_broken_off_goes_on_from_what_keras_has_backed_up'
)
_PARTS = (
    'tests/parallel/test_keras3_saving.py::'
    'test_a_job_goes_on_from_the_parts_that_each_worker_has_saved'
)
_ONE_CALL = (
    'tests/parallel/test_keras3_behaviour.py::test_a_step_pulls_the_rows_of_all_tables_by_one_call'
)

#: The attributes of objects of Keras 3 that get other values than theirs.
ON_OBJECTS_OF_KERAS_3: Tuple[Tuple[str, str, str, str], ...] = (
    (
        'Model.jit_compile',
        'XLA compiles no call of Python, and Keras chooses it by itself',
        _VERSION,
        _EQUAL,
    ),
    (
        'Variable.trainable',
        'a table whose layer is frozen when it is built is frozen',
        _VERSION,
        _EQUAL,
    ),
    (
        'Embedding.embeddings_initializer',
        'the tables of a copy that is exported lie in files from the start',
        _VERSION,
        _BLOCKS,
    ),
    (
        'backend._SESSION',
        "the Keras that TensorFlow keeps for itself opens a session for each thread",
        'TF 2.21',
        'tests/parallel/test_keras3.py::test_keras_2_is_not_needed',
    ),
    (
        'MultiOptimizer._optimizer_map',
        'the engine keeps the slots of tables, also those of an optimizer within',
        _VERSION,
        _EQUAL,
    ),
    ('MultiOptimizer._inner_optimizers', 'the same', _VERSION, _EQUAL),
    (
        'Layer._loss_ids',
        'losses that layers add leave what XLA compiles as other tensors',
        _VERSION,
        _EQUAL,
    ),
)

#: For each its class and name, why it is replaced, the version, and a test that fails without it.
ON_KERAS_3: Tuple[Tuple[str, str, str, str], ...] = (
    (
        'Embedding.__init__',
        'a layer that is made in a scope may be built outside of it, by its first batch',
        _VERSION,
        _EQUAL,
    ),
    ('Embedding.build', 'Keras would make the whole table on every worker', _VERSION, _PLAN),
    ('Embedding.call', 'rows are looked up in the shards', _VERSION, _EQUAL),
    ('Embedding.embeddings', 'a table that a layer reads whole must be dense', _VERSION, _EQUAL),
    ('Embedding.enable_lora', 'it reads the table whole', _VERSION, _LIVES),
    ('Embedding.quantize', 'steps that were traced before are stale', _VERSION, _QUANTIZED),
    ('ReversibleEmbedding.quantize', 'it does not call that of `Embedding`', _VERSION, _QUANTIZED),
    (
        'Embedding._get_embeddings_with_merged_lora',
        'a file has the whole table',
        _VERSION,
        _SAVED,
    ),
    ('Embedding.save_own_variables', 'a table is written in blocks', _VERSION, _BLOCKS),
    ('Embedding.load_own_variables', 'a table is read in blocks', _VERSION, _BLOCKS),
    (
        'saving_lib.is_memory_sufficient',
        'a file with a table would be made in memory',
        _VERSION,
        _BLOCKS,
    ),
    (
        'saving_lib.safe_get_h5_dataset',
        'the rows of a table lie in other files',
        _VERSION,
        _PARTS,
    ),
    (
        'Function._run_through_graph',
        'the rows of all tables are pulled by one call',
        _VERSION,
        _ONE_CALL,
    ),
    ('Trainer.compile', 'the optimizer is to be wrapped', _VERSION, _EQUAL),
    ('Trainer._compute_loss', 'it alone knows the size of a batch', _VERSION, _FAILURE),
    (
        'Trainer._get_metrics_result_or_logs',
        'metrics of an epoch are those of all workers',
        _VERSION,
        _EQUAL,
    ),
    ('backend Trainer.fit', 'workers compare their numbers of batches', _VERSION, _FAILURE),
    ('backend Trainer.evaluate', 'workers validate together', _VERSION, _EQUAL),
    ('backend Trainer.predict', 'errors of lookups come out as they are', _VERSION, _FAILURE),
    (
        'backend Trainer.make_train_function',
        'Keras calls nothing before the first step',
        _VERSION,
        _EQUAL,
    ),
    (
        'backend Trainer._maybe_symbolic_build',
        'Keras would build the optimizer within the first step',
        _VERSION,
        _EQUAL,
    ),
    ('Model.save', 'workers would write one file at a time', _VERSION, _SAVED),
    ('Model.save_weights', 'workers would write one file at a time', _VERSION, _SAVED),
    ('Model.export', 'what is exported has no workers to ask for rows', _VERSION, _EXPORTED),
    ('ExportArchive.track', 'it would be written with calls of Python', _VERSION, _ARCHIVE),
    (
        'BackupAndRestore._save_model',
        'workers would write one file at a time',
        _VERSION,
        _BACKED_UP,
    ),
    ('BackupAndRestore.on_train_end', 'workers would remove one folder', _VERSION, _BACKED_UP),
    (
        'losses.reduce_weighted_values',
        'it alone knows what a loss is divided by',
        _VERSION,
        _EQUAL,
    ),
    ('Loss.__call__', 'a loss may be called within another one', _VERSION, _EQUAL),
    (
        'tf_keras Layer.add_weight',
        'a model of Keras 2 that executes eagerly would train alone',
        'Keras 2.21',
        _REFUSED,
    ),
)
