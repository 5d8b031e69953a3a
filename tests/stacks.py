# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""Which tests a stack runs: on TensorFlow 1.11 all, on the others those seen to pass."""

from frameworks import TF1_6, TF1_15, TF2

#: Files and folders below the project's: all but `parallel/test_mpi.py`, which needs a Horovod that
#: has MPI.
ON_TENSORFLOW_2 = (
    'benchmarks/tests/',
    'tests/cluster/test_bytes.py',
    'tests/cluster/test_doctor.py',
    'tests/cluster/test_emulated_cluster.py',
    'tests/cluster/test_failures_on_hosts.py',
    'tests/cluster/test_full_disk.py',
    'tests/cluster/test_guide.py',
    'tests/cluster/test_host_names.py',
    'tests/cluster/test_keras3_on_hosts.py',
    'tests/cluster/test_local_aggregation.py',
    'tests/cluster/test_out_of_memory.py',
    'tests/cluster/test_resources_on_hosts.py',
    'tests/cluster/test_saving_on_hosts.py',
    'tests/cluster/test_servers.py',
    'tests/cluster/test_who_may_talk.py',
    'tests/outside/',
    'tests/parallel/test_async.py',
    'tests/parallel/test_barrier.py',
    'tests/parallel/test_behaviour.py',
    'tests/parallel/test_cards.py',
    'tests/parallel/test_compiling.py',
    'tests/parallel/test_criteo.py',
    'tests/parallel/test_dynamic.py',
    'tests/parallel/test_dynamic_async.py',
    'tests/parallel/test_equality.py',
    'tests/parallel/test_example.py',
    'tests/parallel/test_failures.py',
    'tests/parallel/test_former_files.py',
    'tests/parallel/test_gate.py',
    'tests/parallel/test_gather.py',
    'tests/parallel/test_increments.py',
    'tests/parallel/test_keras3.py',
    'tests/parallel/test_keras3_behaviour.py',
    'tests/parallel/test_keras3_examples.py',
    'tests/parallel/test_keras3_former.py',
    'tests/parallel/test_keras3_lives.py',
    'tests/parallel/test_keras3_memory.py',
    'tests/parallel/test_keras3_saving.py',
    'tests/parallel/test_life_cycles.py',
    'tests/parallel/test_metrics.py',
    'tests/parallel/test_mnist.py',
    'tests/parallel/test_names.py',
    'tests/parallel/test_nmt.py',
    'tests/parallel/test_patched.py',
    'tests/parallel/test_random_models.py',
    'tests/parallel/test_resnet50.py',
    'tests/parallel/test_resources.py',
    'tests/parallel/test_restart.py',
    'tests/parallel/test_resuming.py',
    'tests/parallel/test_saving.py',
    'tests/parallel/test_saving_by_all.py',
    'tests/parallel/test_schedulers.py',
    'tests/parallel/test_screen.py',
    'tests/parallel/test_search.py',
    'tests/parallel/test_servers.py',
    'tests/parallel/test_sessions.py',
    'tests/parallel/test_skip_thoughts.py',
    'tests/parallel/test_start_values.py',
    'tests/parallel/test_tables.py',
    'tests/parallel/test_threads.py',
    'tests/parallel/test_training.py',
    'tests/parallel/test_turnover.py',
    'tests/parallel/test_two_tower.py',
    'tests/unit/',
)

#: From a reason to tests that TensorFlow 2 cannot pass for it, and cases of a worker that it cannot
#: run: beginnings of their names, each after its file's. Tests of them are skipped, and
#: docs/tensorflow2.md says how many there are.
NOT_ON_TENSORFLOW_2 = {
    'the page of changes names tests as TensorFlow 1.11 has them': (
        'tests/unit/test_mutations.py::test_the_page_has_what_the_list_has',
    ),
    "Horovod 0.28.1's own callback asks `keras.backend` for a session, which it has not": (
        'tests/parallel/test_behaviour.py::test_horovods_own_broadcast_callback',
    ),
    "Keras's optimizers have kernels and sparse updates of their own, by which they move rows": (
        'tests/unit/engine/updates/test_fused_kernels.py::',
        'tests/unit/engine/updates/test_optimizer_adapter.py::test_a_wrapped_optimizer_has_the_rule',
        'tests/unit/engine/updates/test_optimizer_adapter.py::test_every_optimizer_class_of_keras_has_a',
        'tests/unit/engine/updates/optimizers/test_formulas.py::test_a_rule_keeps',
        'tests/unit/engine/updates/optimizers/test_formulas.py::test_rows_alone_are_exact',
        'tests/unit/engine/updates/test_keras_slots.py::test_a_slot_that_the_formula',
        'tests/unit/engine/updates/test_keras_slots.py::test_each_variable_has_its_first_slot',
        'tests/unit/engine/updates/test_table_updates.py::test_rows_alone_are_updated',
    ),
    "every worker holds all variables of a user's optimizer, and no worker waits for an owner": (
        'tests/parallel/test_barrier.py::test_no_rank_pulls_rows_that_their_owner_has_yet_to_update['
        'counting',
    ),
    'Keras takes no notice of a momentum that is switched on later': (
        'tests/unit/engine/updates/optimizers/test_formulas.py::test_momentum_switched_on',
    ),
    'Keras refuses a constraint on a table': (
        'tests/unit/optimizers/test_by_row.py::test_what_concerns_every_row_is_as_in_plain_keras['
        'constraint',
        'tests/unit/engine/updates/optimizers/test_formulas.py::test_lazy_heeds_regularizer_and_constraint['
        'non neg',
        'tests/unit/engine/updates/optimizers/test_formulas.py::test_lazy_heeds_regularizer_and_constraint['
        'row norm',
        'tests/parallel/test_behaviour.py::test_a_server_is_sent_tensors_and_no_messages_that_only_'
        'tell_it_to_go_on[tf.keras-told:columns]',
    ),
    'the gradient of a table with a penalty is a tensor there, which no worker counts twice': (
        'tests/parallel/test_behaviour.py::test_a_formula_that_takes_rows_as_they_come_is_refused',
    ),
    'Keras warns of `fit_generator`': (
        'tests/unit/callbacks/test_epoch_reports.py::test_number_of_batches_is_what_keras_runs['
        'fit_generator',
        'tests/unit/test_single_process.py::test_fit_generator_gives',
        'tests/unit/test_single_process.py::test_a_sequence_gives',
    ),
    'Keras has no wrappers for scikit-learn any more': (
        'tests/parallel/compiling_worker.py::of_scikit_learn',
        'tests/parallel/training_worker.py::wrapped',
    ),
    'Keras does not warn that it saves no slots of a `tf.train.Optimizer`': (
        'tests/unit/callbacks/test_model_checkpoint.py::test_the_file_of_a_model_with_tensorflows',
    ),
    'metrics of validation differ in their last bit from one run to the next': (
        'tests/parallel/test_training.py::test_explicit_callbacks_change_nothing',
    ),
    'TensorFlow 2 does not allocate with jemalloc': (
        'tests/unit/compat/test_jemalloc.py::test_a_step_does_not_wait',
        'tests/unit/compat/test_jemalloc.py::test_free_pages',
        'tests/unit/compat/test_jemalloc.py::test_before_rows_are_moved',
        'tests/unit/compat/test_jemalloc.py::test_what_the_user_sets',
    ),
    'there is one Keras package, and nothing asks for another one called `keras`': (
        'tests/unit/compat/test_installed_frameworks.py::test_another_keras_is_named',
        'tests/unit/compat/test_installed_frameworks.py::test_a_missing_keras_is_named',
    ),
    'Keras computes the penalty of `l2(0.0)` as any other, and its gradient is of all rows': (
        'tests/unit/engine/updates/test_inferred_formula.py::test_a_regularizer_without_a_penalty_changes_nothing['
        'tf.keras-l2 of 0',
    ),
    'a metric is written in a function that Keras calls before it reads what it returns': (
        'tests/unit/engine/session/test_session_runs.py::test_a_metric_is_written_after',
    ),
    'no formula is tried with a copy of an optimizer, for Keras moves rows itself': (
        'tests/unit/engine/updates/test_optimizer_copies.py::test_what_an_optimizer_holds',
        'tests/unit/engine/updates/test_optimizer_copies.py::test_an_optimizer_that_holds_a_table',
    ),
    'Horovod 0.28.1 has `initial_lr` first, and `local_variables`; ours are those of 0.19.5': (
        'tests/unit/test_public_names.py::test_callbacks_take_the_arguments_of_horovods['
        'callbacks.BroadcastGlobalVariablesCallback',
        'tests/unit/test_public_names.py::test_callbacks_take_the_arguments_of_horovods['
        'callbacks.LearningRate',
    ),
    "the packages beside us, which the doctor imports, cannot be read by a Python as old as 3.6": (
        'tests/unit/compat/test_installed_frameworks.py::test_every_other_python_of_this_machine_is_named_when_it_'
        'imports_or_runs_us[command1',
    ),
    "DeepCTR 0.9.4's DIEN does not build there, in plain Keras either": (
        'tests/outside/test_scripts.py::test_two_ranks_train_as_the_plain_script_does['
        'deepctr_model_DIEN',
    ),
    'some weights have a gradient of 0, and rounding is all that moves them, by other bits': (
        'tests/outside/test_scripts.py::test_two_ranks_train_as_the_plain_script_does['
        'deepctr_model_DSIN',
        'tests/outside/test_scripts.py::test_two_ranks_train_as_the_plain_script_does['
        'deepctr_model_BST',
    ),
    'their optimizers are for Keras 2.2.4': (
        'tests/outside/test_scripts.py::test_two_ranks_train_as_the_plain_script_does[optimizer_',
    ),
    'these are tests of Keras 2.2.4 itself': ('tests/outside/test_keras_tests.py::',),
}

#: The same for TensorFlow 1.15, which also leaves out what TensorFlow 2 does.
ON_TENSORFLOW_1_15 = (
    'tests/parallel/test_equality.py',
    'tests/parallel/test_failures.py',
    'tests/parallel/test_resuming.py',
    'tests/parallel/test_saving.py',
    'tests/unit/callbacks/test_a',
    'tests/unit/callbacks/test_callback_code.py',
    'tests/unit/callbacks/test_epoch_reports.py',
    'tests/unit/callbacks/test_fit_',
    'tests/unit/callbacks/test_graph_export.py',
    'tests/unit/callbacks/test_learning_rate.py',
    'tests/unit/callbacks/test_p',
    'tests/unit/callbacks/test_replicas.py',
    'tests/unit/callbacks/test_s',
    'tests/unit/callbacks/test_tensor_board.py',
    'tests/unit/checkpoint/',
    'tests/unit/compat/test_datasets.py',
    'tests/unit/compat/test_function_calls.py',
    'tests/unit/compat/test_graph_queries.py',
    'tests/unit/compat/test_keras_optimizers.py',
    'tests/unit/compat/test_loss_scaling.py',
    'tests/unit/compat/test_optimizer_v2_rows.py',
    'tests/unit/compat/test_segment_sums.py',
    'tests/unit/compat/test_session_hooks.py',
    'tests/unit/compat/test_tensorflow_',
    'tests/unit/compat/test_supported_versions.py',
    'tests/unit/data/',
    'tests/unit/layers/',
    'tests/unit/metrics/',
    'tests/unit/optimizers/',
    'tests/unit/planning/',
    'tests/unit/engine/session/',
    'tests/unit/engine/step/',
    'tests/unit/engine/tables/',
    'tests/unit/keras2/test_compiling.py',
    'tests/unit/test_single_process.py',
    'tests/unit/engine/updates/',
)

NOT_ON_TENSORFLOW_1_15 = {
    'its optimizers know no such argument': (
        'tests/unit/compat/test_keras_optimizers.py::test_a_bound_beside_a_regularizer_of_a_table_'
        'is_refused[global_clipnorm',
        'tests/unit/compat/test_keras_optimizers.py::test_a_bound_that_binds_clips_as_keras_clips['
        'Adam-global_clipnorm',
        'tests/unit/compat/test_keras_optimizers.py::test_a_bound_that_binds_clips_as_keras_clips['
        'SGD-global_clipnorm',
        'tests/unit/compat/test_keras_optimizers.py::test_a_method_of_an_objects_own_makes_it_a_'
        'users[_transform',
        'tests/unit/compat/test_keras_optimizers.py::test_an_optimizer_of_a_users_is_given_every_'
        'variable_and_rows_as_they_come[aggregating',
        'tests/unit/compat/test_keras_optimizers.py::test_an_optimizer_of_a_users_is_given_every_'
        'variable_and_rows_as_they_come[transforming',
        'tests/unit/engine/updates/test_requested_gradients.py::test_an_own_optimizer_gives_the_numbers_of_'
        'plain_keras[tf.keras-aggregating',
        'tests/unit/engine/updates/test_requested_gradients.py::test_an_own_optimizer_gives_the_numbers_of_'
        'plain_keras[tf.keras-transforming',
    ),
    'they clip when they compute gradients, not when they apply them': (
        'tests/unit/compat/test_optimizer_v2_rows.py::test_gradients_that_are_clipped_are_not',
    ),
    'Keras shows the loss of the batches after the break, where a metric goes on': (
        'tests/unit/callbacks/test_fit_progress.py::test_the_progress_bar_goes_on',
    ),
    'Keras asks what a generator gives for its shape': (
        'tests/unit/callbacks/test_fit_progress.py::test_a_generator_that_ends',
    ),
    'repeated rows are summed in an order that differs from one run to the next': (
        'tests/unit/checkpoint/test_increments.py::test_training_goes_on_from_a_delta',
    ),
    'Keras wants all inputs from a data set to have one size': (
        'tests/unit/layers/test_embedding_bag.py::test_row_splits_of_an_input_pipeline',
    ),
    'a message of TensorFlow has many lines, and the test looks for ours in one': (
        'tests/unit/checkpoint/test_saved_model.py::test_inputs_that_cannot_be_made',
    ),
}


#: The same for TensorFlow 1.6, on whose own Keras and `DynamicEmbedding` nothing is trained.
ON_TENSORFLOW_1_6 = (
    'tests/parallel/test_equality.py',
    'tests/parallel/test_failures.py',
    'tests/parallel/test_resuming.py',
    'tests/parallel/test_saving.py',
    'tests/parallel/test_start_values.py',
    'tests/unit/compat/',
    'tests/unit/layers/test_embedding_bag.py',
    'tests/unit/engine/session/',
    'tests/unit/engine/step/',
    'tests/unit/engine/tables/test_initializer_graphs.py',
    'tests/unit/test_choose_stack.py',
    'tests/unit/test_single_process.py',
    'tests/unit/engine/updates/',
)

NOT_ON_TENSORFLOW_1_6 = {
    'without a `keras` that fits nothing of ours can be imported': (
        'tests/unit/compat/test_installed_frameworks.py::test_another_keras_is_named',
        'tests/unit/compat/test_installed_frameworks.py::test_a_missing_keras_is_named',
    ),
    'its `tf.keras` is not served': (
        'tests/unit/compat/test_installed_frameworks.py::test_tf_keras_is_served',
    ),
    'a session that simplifies arithmetic is not gone on with': (
        'tests/unit/engine/session/test_graph_sessions.py::test_a_session_that_the_script_has_opened',
    ),
    'it has no kernel for Adamax': (
        'tests/unit/engine/updates/test_fused_kernels.py::test_every_dense_variable_has_one_kernel_and_no_'
        'other_update[adamax',
    ),
    'a worker that loads takes more memory than a block, whatever the size of the table': (
        'tests/parallel/test_saving.py::test_tables_larger_than_a_block',
    ),
    'it makes no variable of a shape that is computed': (
        'tests/unit/engine/tables/test_initializer_graphs.py::test_a_shape_that_is_computed',
    ),
}


def is_run(path):
    """Whether this stack runs the tests of a file.

    Args:
        path: its path from the project's folder.
    """
    if TF1_6:
        return path.startswith(ON_TENSORFLOW_1_6)
    return not TF2 or path.startswith(ON_TENSORFLOW_1_15 if TF1_15 else ON_TENSORFLOW_2)


def reason_against(name):
    """Why this stack cannot pass a test, or run a case of a worker, or `None`.

    Args:
        name: its name, after its file's, as in `FILE::NAME[PARAMETERS]`.
    """
    tables = [NOT_ON_TENSORFLOW_2] * TF2 + [NOT_ON_TENSORFLOW_1_15] * TF1_15
    tables += [NOT_ON_TENSORFLOW_1_6] * TF1_6
    for table in tables:
        for reason, names in table.items():
            if name.startswith(names):
                return reason
    return None
