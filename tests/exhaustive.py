# Copyright 2026 The keras-parallax authors.
# Licensed under the Apache License, Version 2.0; see the file LICENSE.
"""What `make test` leaves to `make test-all`, and what runs with `--every` alone."""

import re

from frameworks import KERAS_PACKAGES, TF2

#: Files whose tests run with one of the packages each, in turn: both train with one engine. Where
#: they differ, all run with both: how they compile (`test_compiling.py`), what they save
#: (`test_saving.py`), what we ask of them (`unit/compat/`).
IN_TURN = (
    'tests/parallel/test_behaviour.py',
    'tests/parallel/test_life_cycles.py',
    'tests/unit/keras2/test_training_loop.py',
    'tests/unit/callbacks/test_tensor_board.py',
    'tests/unit/layers/test_dynamic_embedding.py',
    'tests/unit/layers/test_embedding_bag.py',
    'tests/unit/metrics/test_auc.py',
    'tests/unit/metrics/test_group_auc.py',
    'tests/unit/metrics/test_log_loss.py',
    'tests/unit/metrics/test_top_k.py',
    'tests/unit/optimizers/test_by_row.py',
    'tests/unit/engine/step/test_accumulation.py',
    'tests/unit/test_single_process.py',
    'tests/unit/engine/updates/test_requested_gradients.py',
    'tests/unit/engine/updates/test_fused_kernels.py',
    'tests/unit/engine/updates/optimizers/test_formulas.py',
    'tests/unit/engine/updates/test_table_optimizers.py',
)

_OTHER_PACKAGE = 'both packages train with one engine; each file is run with one of them'

#: From files to triples: a regular expression of tests, one of the parameters with which
#: `make test` runs them (`None` if it does not run them at all), and why the others may wait.
#: Where there is one package, there is no other.
SAMPLED = {
    'tests/cluster/test_bytes.py': [
        ('test_a_step.*', '1024', 'one number of ids is sent'),
        ('test_the_bytes_of_a_step.*', None, 'a step of the other test sends less than a table'),
        ('test_four_hosts.*', None, 'two hosts send what they must, and no more'),
    ],
    'tests/cluster/test_emulated_cluster.py': [
        ('test_a_signal.*', '.*SIGKILL', 'the others end Python in an orderly way'),
        ('test_shaping_does_not.*', '200', 'one bandwidth is set'),
        ('test_the_share_of_a_host.*', None, 'benchmarks alone change it'),
        ('test_training_on_two_hosts.*', None, 'test_local_aggregation.py trains on them'),
    ],
    'tests/cluster/test_failures_on_hosts.py': [
        ('test_a_rank_that_never_starts.*', '0-True', 'a way of each kind is tried'),
        ('test_one_sentence.*', None, 'tests/parallel/test_failures.py has one of each kind'),
    ],
    'tests/cluster/test_local_aggregation.py': [
        (
            'test_(a_bad_id|a_leader_and).*',
            None,
            'tests/parallel/ has bad ids, and workers that predict alone, on one host',
        ),
        ('test_raw_ids.*', None, 'test_dynamic.py trains them on one host'),
        (
            '.*(_send_|_sent_|_sends_|_session_|_fewer_).*',
            None,
            'test_bytes.py counts bytes; the numbers show that rows are shared',
        ),
    ],
    'tests/cluster/test_host_names.py': [
        ('.*', None, 'tests/unit/engine/job/ has what decides it; hosts that train have names'),
    ],
    'tests/cluster/test_resources_on_hosts.py': [
        ('.*', None, 'tests/parallel/test_resources.py has them, on one host'),
    ],
    'tests/cluster/test_saving_on_hosts.py': [
        ('.*', None, 'tests/parallel/test_saving.py and test_resuming.py save, on one host'),
    ],
    'tests/cluster/test_servers.py': [
        (
            '.*',
            None,
            'tests/parallel/test_servers.py has them, test_local_aggregation.py has hosts',
        ),
    ],
    'tests/parallel/test_async.py': [
        (
            '.*',
            r'tf\.keras-(hybrid|bound)',
            'test_servers.py has dedicated servers, too; one bound is tried',
        )
    ],
    'tests/parallel/test_barrier.py': [('.*', 'tensorflow', 'all three wait by one queue')],
    'tests/parallel/test_behaviour.py': [
        (
            'test_(a_profile|of_a_profile|tensorboard|the_projector|each_rank_exports).*',
            None,
            'tests/unit/callbacks/ has what these callbacks write, of one process',
        ),
        (
            'test_(a_lookup_made|a_model_that|a_tower|a_table_that_two|a_regularizer|hot_tables|'
            'after_a_summary|files_with_slots|the_session_is_local|weights_are_whole).*',
            None,
            'what few scripts do; the others train through the same engine',
        ),
        (
            'test_(a_server_is_sent|rows_that|a_formula_that|an_optimizer_whose|a_sum_moves|'
            'a_table_follows).*',
            None,
            'tests/unit/engine/step/ and tests/unit/engine/updates/ have what decides it',
        ),
        ('test_horovods_own.*', '.*_callback:adagrad', 'one optimizer starts so'),
        ('test_without_a_strategy.*', '.*:adam', 'one optimizer goes without'),
    ],
    'tests/parallel/test_compiling.py': [
        ('.*', 'keras.*', _OTHER_PACKAGE),
        (
            'test_a_script.*',
            '.*-(?!(shared_instance|built_before_twice|subclassed_that_predicts_first|'
            'generator_and_critic|text_classifier|of_tensorflow|of_scikit_learn|'
            'sequential_without_shape|built_before_with_a_penalty)$).*',
            'another script is written so, but for one line',
        ),
    ],
    'tests/parallel/test_equality.py': [
        (
            'test_workers_equal.*',
            '2-.*'
            if TF2
            else '2-.*-(sgd|adagrad|adam|tf_adam|clipnorm|regularized_adam|shared|masked_adam|'
            'sampled_softmax|few_rows|tied|stateful|our_LazyAdam)',
            'a model of each kind is compared on two workers, with a package each',
        ),
        (
            'test_every_archi.*',
            '2-%s-(hybrid|ps|auto|allreduce|search_ps|fp16_hybrid|many_in_loop|moved_reg|accu).*'
            % re.escape(KERAS_PACKAGES[0]),
            'of the engine, every fourth case',
        ),
        (
            '.*_a_users_.*',
            '2-%s-own_(by_slices|layerwise)' % re.escape(KERAS_PACKAGES[0]),
            'tests/unit/engine/updates/test_requested_gradients.py has the others in one process',
        ),
        ('test_every_job.*', '2-.*', 'jobs of two workers are started'),
    ],
    'tests/parallel/test_example.py': [
        ('.*', '(?!async).*', 'test_async.py trains without waiting, on less'),
        ('test_without_servers.*', None, 'a screen of the same form is read with servers'),
        ('test_a_projected.*', None, 'test_resuming.py goes on from checkpoints'),
    ],
    'tests/parallel/test_increments.py': [
        (
            'test_(a_killed_job|tables_that_move|rows_that_any).*',
            None,
            'all bits of a base are there after a kill; test_resuming.py goes on to the end',
        ),
    ],
    'tests/parallel/test_sessions.py': [
        (
            '.*',
            'keras-sparse_input|tf.keras-(iterator_before|own_session|session_run|'
            'traced|threads_that_read)',
            'a way of each kind is tried',
        ),
    ],
    'tests/parallel/test_servers.py': [
        (
            'test_(ranks_that_are_given|one_worker_with|a_job_does_not_go_on).*',
            None,
            'tests/unit/engine/job/ has what decides it',
        ),
    ],
    'tests/parallel/test_schedulers.py': [
        ('test_workers.*', 'slurm', 'ranks find each other in one way'),
        ('test_a_killed.*', 'kubernetes', 'ranks find each other in one way'),
    ],
    'tests/parallel/test_criteo.py': [
        ('.*', None, 'test_example.py trains an example; test_metrics.py judges by all samples'),
    ],
    'tests/parallel/test_failures.py': [
        (
            'test_a_failed_job_ends_and_says_why',
            'bad_id|exception|killed|unequal_fit',
            'a way of each kind is tried',
        ),
        ('test_a_job_ends_well', 'ends_well', 'a way of each kind is tried'),
        ('test_a_job_ends_with_its_launcher', '.*SIGTERM.*TRAINS', 'a signal of three is sent'),
    ],
    'tests/parallel/test_former_files.py': [
        ('.*', None, 'tests/unit/checkpoint/ reads the same files, in one process'),
    ],
    'tests/parallel/test_restart.py': [
        (
            '.*',
            None,
            'test_resuming.py goes on from where it broke off; tests/unit/commands/test_run.py '
            'starts commands anew',
        ),
    ],
    'tests/parallel/test_mnist.py': [
        ('.*', None, 'test_example.py trains an example, whose screen has the same form'),
    ],
    'tests/parallel/test_nmt.py': [
        ('.*', None, 'test_example.py trains an example, with tables and a sampled softmax'),
    ],
    'tests/parallel/test_dynamic.py': [
        ('.*', 'tf.*', 'two workers train, save and resume; ' + _OTHER_PACKAGE),
    ],
    'tests/parallel/test_dynamic_async.py': [
        ('.*', None, 'test_async.py applies gradients as they come, test_dynamic.py gives rows'),
    ],
    'tests/parallel/test_resnet50.py': [
        ('.*', None, 'test_example.py trains an example; without tables test_equality.py trains'),
    ],
    'tests/parallel/test_resuming.py': [
        (
            '.*',
            'two ranks-ps|keras True|keras shares single',
            'test_saving.py goes on from each form with other numbers of workers',
        ),
    ],
    'tests/parallel/test_metrics.py': [('.*', '(.*-)?tf.keras.*', _OTHER_PACKAGE)],
    'tests/parallel/test_names.py': [
        ('.*', None, 'test_saving.py goes on with other numbers of workers, by names'),
    ],
    'tests/parallel/test_saving.py': [
        (
            '.*',
            re.escape(KERAS_PACKAGES[0]) + '(-(adam|momentum|adagrad|1-adam-parts|3-momentum-h5|'
            '3-adam-.*|[a-z]+.(h5|parts)|optimizer|no model).*)?',
            'a form of each kind, other numbers of workers and one package are tried',
        ),
        ('test_tables_larger.*', None, 'one process moves blocks, too: test_model_checkpoint.py'),
    ],
    'tests/parallel/test_saving_by_all.py': [
        ('.*', None, 'test_saving.py saves on all workers, test_training.py by callbacks of Keras'),
    ],
    'tests/parallel/test_start_values.py': [
        ('.*', None, 'test_behaviour.py starts from plain start values, with shards on workers'),
    ],
    'tests/parallel/test_tables.py': [
        ('test_every_way.*', '.*-writes', 'it also reads what was written'),
        ('test_what_was_made.*', None, 'test_equality.py moves tables'),
        (
            'test_(what_a_rank|of_different|one_rank|an_id).*',
            None,
            'what few scripts do; the others write through the same operations',
        ),
    ],
    'tests/parallel/test_training.py': [
        ('test_fit_gives.*', 'tf.keras-(shortest:everywhere|explicit)', 'one way differs little'),
        (
            'test_(a_metric_that_a_callback|generators|callbacks_|models_of|what_rank_0|all_ranks|'
            'each_rank|only_rank|wrappers|ranks_that|explicit|moving_|a_metric_that_reads).*|'
            'test_shares_of_a_.*',
            None,
            'what few scripts do; the others train by the same `fit`',
        ),
    ],
    'tests/parallel/test_search.py': [
        ('.*', None, 'test_equality.py searches while it trains, on fewer steps'),
    ],
    'tests/parallel/test_skip_thoughts.py': [
        ('.*', None, 'test_nmt.py trains an encoder, a decoder and a sampled softmax'),
    ],
    'tests/parallel/test_threads.py': [
        ('.*', None, 'test_sessions.py asks for threads, and is given them'),
    ],
    'tests/parallel/test_turnover.py': [
        (
            '.*',
            None,
            'tests/unit/engine/tables/ decides the same; test_dynamic.py trains on two workers',
        ),
    ],
    'tests/parallel/test_two_tower.py': [
        ('.*', None, 'test_example.py trains an example; bags are compared in one process'),
    ],
    'tests/unit/keras2/test_training_loop.py': [
        ('test_an_epoch_that.*', None, 'an epoch ends in one way'),
    ],
    'tests/unit/callbacks/test_fit_progress.py': [
        (
            'test_a_run_that_goes_on.*',
            '.*-(shares-20-5|own-20-5|batchwise-26-13)',
            'each kind of arrays, each end of an epoch and each package is tried',
        ),
        (
            'test_batches_of_other.*',
            '.*-(Sequence of kp.data|generator|Dataset)',
            'each kind is tried, with kp.data or without',
        ),
    ],
    'tests/unit/callbacks/test_step_metrics.py': [
        ('test_keras_tensorboard.*', 'True-.*', 'one order of the two callbacks is tried'),
    ],
    'tests/unit/checkpoint/test_saved_model.py': [
        ('test_an_export_predicts.*', 'tf.*', _OTHER_PACKAGE),
    ],
    'tests/unit/compat/test_jemalloc.py': [
        ('test_what_the_user.*', None, 'a process of its own, which shows that nothing is set'),
    ],
    'tests/unit/checkpoint/test_increments.py': [
        (
            'test_(a_model_that_is_compiled|where_no_link).*',
            None,
            'a base is written for the same reason as after a failed save',
        ),
    ],
    'tests/unit/layers/test_dynamic_embedding.py': [
        (
            'test_it_trains.*',
            'True-RandomNormal.*|False-RandomUniform.*',
            'each optimizer is tried, with a strategy or without',
        ),
        ('test_bags_of_ids.*', '.*-mean', 'each form of bags is tried, with one combiner'),
    ],
    'tests/unit/engine/updates/optimizers/test_tensorflow.py': [
        ('test_(rows|the_plan).*', 'tf_.*', 'it takes seconds to import `tf.contrib`'),
        ('test_(every|nadam).*', None, 'it takes seconds to import `tf.contrib`'),
    ],
    'tests/unit/engine/step/test_accumulation.py': [
        (
            'test_(a_users_optimizer|a_model_that|a_profile).*',
            None,
            'test_equality.py compares other formulas',
        ),
    ],
    'tests/unit/test_single_process.py': [
        ('test_two_runs.*', '.*-Adam', 'one optimizer shows that nothing is drawn anew'),
        ('test_a_saved_model_trains.*', '.*-(Adam|SGD)', 'with slots and without'),
        (
            'test_the_optimizers_weights_.*',
            '.*-(Adadelta|Adagrad|Adam-lazy|Nadam-exact)',
            'slots of each kind are tried',
        ),
    ],
    'tests/unit/test_notebook.py': [
        ('test_(the|numbers).*', None, 'what it calls has tests of its own; it takes ten seconds'),
    ],
}


#: From files to triples: a regular expression of tests, one of the parameters with which they run
#: with `--every` alone (`None`: all of them), and what covers them.
COVERED = {
    'tests/cluster/test_bytes.py': [
        ('test_a_step.*', '16', 'more ids are sent, and fewer than a table has rows'),
        ('test_the_bytes_of_a_step.*', None, 'a step of the other test sends less than a table'),
    ],
    'tests/cluster/test_emulated_cluster.py': [
        ('test_training_on_two_hosts.*', None, 'test_local_aggregation.py trains on them'),
    ],
    'tests/cluster/test_failures_on_hosts.py': [
        ('test_one_sentence_tells_that_the_launcher.*', '.*SIGTERM', 'another signal does so'),
    ],
    'tests/cluster/test_local_aggregation.py': [
        ('test_a_bad_id.*', 'worker', 'a leader is told of one in the same way'),
        ('test_steps_that_a_session.*', None, 'test_sessions.py runs steps so; others share rows'),
    ],
    'tests/cluster/test_servers.py': [
        ('test_one_server_a_host.*', None, 'test_resuming.py has one, and here there are others'),
    ],
    'tests/outside/test_scripts.py': [
        (
            'test_two_ranks.*',
            'deepctr_model_(?!(DeepFM|NFFM|ONN|DIN)$).*',
            'models of one package: the others have the same tables below other layers',
        ),
    ],
    'tests/parallel/test_async.py': [
        (
            '.*',
            'keras on .*-(ps|bound|lockstep|accumulated)',
            'ranks that have the shards themselves wait so',
        ),
    ],
    'tests/parallel/test_behaviour.py': [
        (
            'test_(each_rank_exports|after_a_summary|the_projector).*',
            None,
            'tests/unit/callbacks/ and tests/unit/checkpoint/ have what is written',
        ),
        (
            'test_(hot_tables|a_table_that_two|a_model_that_is_compiled_after|the_session).*',
            r".*-(measured:tf_adam|shared_trainers:\{'architecture.*|joined_later:allreduce|"
            'tables_later:in_blocks)',
            'a table moves so in another case',
        ),
    ],
    'tests/parallel/test_compiling.py': [
        (
            'test_a_script.*',
            'alias-(?!(instance|own_step|subclassed)$).*',
            'nothing in it depends on the package, and `keras` has it',
        ),
        ('test_(?!a_script|the_job).*', 'alias-.*', 'nothing in it depends on the package'),
    ],
    'tests/parallel/test_criteo.py': [
        ('.*', 'deepfm.*', 'test_dynamic.py trains tables that grow; here is another model'),
    ],
    'tests/parallel/test_dynamic.py': [
        ('.*', '.*-fp16-auto-search', 'test_equality.py does; here tables are moved otherwise'),
        ('.*', '.*-3-adam', 'test_local_aggregation.py trains raw ids on four workers'),
    ],
    'tests/parallel/test_example.py': [
        ('.*', 'async', 'test_async.py trains without waiting'),
        ('test_without_servers.*', None, 'a screen of the same form is read with servers'),
        ('test_a_projected.*', None, 'test_resuming.py goes on from checkpoints'),
    ],
    'tests/parallel/test_dynamic_async.py': [
        ('.*', None, 'test_async.py applies gradients as they come, test_dynamic.py gives rows'),
    ],
    'tests/parallel/test_failures.py': [
        (
            'test_a_failed_job.*',
            'killed_together|killed_before_it_serves|caught_(in|after)_fit|'
            '(caught|exception)_without_tables|'
            'other_name|saves_while_others_train|ends_before_training',
            'another worker fails so, at another place or beside a table',
        ),
        ('test_a_job_ends_well', 'nan_loss', 'test_training.py stops all at such a loss'),
        ('test_a_job_ends_with_its_launcher', '.*SIGINT-never_meets.*', 'it ends so by SIGTERM'),
    ],
    'tests/parallel/test_former_files.py': [
        ('.*', None, 'tests/unit/checkpoint/ loads all kinds; test_saving.py loads on workers'),
    ],
    'tests/parallel/test_mnist.py': [
        ('test_after_an_epoch.*', None, 'examples with tables are compared so'),
    ],
    'tests/parallel/test_names.py': [
        ('.*', None, 'test_saving.py goes on with other numbers of workers, by names'),
    ],
    'tests/parallel/test_resuming.py': [
        (
            '.*',
            'two ranks-(tf_(adagrad|momentum)|hybrid_3|ps_3)|three ranks-(hybrid to ps|'
            'ps to hybrid|auto to auto|tf_(?!adam to se).*)|a server a host-tf.*|'
            'dedicated servers-tf.*|'
            'one process-(hybrid|host|tf_adam) alone|.* (shuffled|Sequence) parts',
            'of what is saved and where it goes on, each is there in another pair',
        ),
    ],
    'tests/parallel/test_restart.py': [
        ('test_a_worker_killed.*', None, 'tests/unit/test_atomic_files.py kills one process so'),
        ('test_a_job_killed_within.*', None, 'test_resuming.py goes on within an epoch'),
    ],
    'tests/parallel/test_saving.py': [
        (
            '.*',
            r'tf\.keras-(momentum|adagrad|nadam|few_rows|shared_adam|[13]-(?!adam).*)',
            _OTHER_PACKAGE,
        ),
    ],
    'tests/parallel/test_sessions.py': [
        (
            '.*',
            'keras-(session_run|stateful_session_run|own_session)|tf.keras-(iterator_after|one_shot_inside|'
            'fed_before|traced_dataset|stateful_session_run)',
            'another case differs in one of two things',
        ),
    ],
    'tests/parallel/test_skip_thoughts.py': [
        ('.*', None, 'test_nmt.py trains an encoder, a decoder and a sampled softmax'),
    ],
    'tests/parallel/test_tables.py': [
        ('test_what_was_made.*', '.*-moved:search_adam', 'another change of shards is tried'),
    ],
    'tests/parallel/test_threads.py': [
        ('.*', None, 'test_sessions.py asks for threads, and is given them'),
    ],
    'tests/parallel/test_training.py': [
        (
            'test_(shares_of_a_(sequence|generator)|wrappers|models_of_one_scope).*',
            None,
            'arrays and data sets are shared; test_compiling.py and one process have the others',
        ),
    ],
    'tests/parallel/test_turnover.py': [
        ('.*', '3.*', 'two workers, with as many shards'),
        ('test_with_as_many_shards.*', None, 'two workers, with as many shards'),
    ],
    'tests/unit/test_single_process.py': [
        ('test_two_runs.*', '.*-(SGD|Adagrad|RMSprop)', 'nothing in it depends on the optimizer'),
    ],
}


def is_covered(file, name):
    """Whether a test runs with `--every` alone; arguments as `is_exhaustive`."""
    test, _, parameters = name.partition('[')
    return any(
        covered is None or re.fullmatch(covered, parameters[:-1])
        for pattern, covered, reason in COVERED.get(file, ())
        if re.fullmatch(pattern, test) and _holds(reason)
    )


def is_exhaustive(file, name):
    """Whether only `make test-all` runs a test.

    Args:
        file: its file, from the project's folder.
        name: its name, with its parameters in brackets.
    """
    test, _, parameters = name.partition('[')
    return file.startswith('tests/outside/') or any(
        kept is None or (parameters and not re.fullmatch(kept, parameters[:-1]))
        for pattern, kept, reason in SAMPLED.get(file, ())
        if re.fullmatch(pattern, test) and _holds(reason)
    )


def _holds(reason):
    return reason != _OTHER_PACKAGE or len(KERAS_PACKAGES) > 1


def left_out(file, names):
    """Which tests of a file run with `--every` alone, because they run with the other package.

    Args:
        file: its file, from the project's folder.
        names: names of its tests, with their parameters in brackets, in order. A test that is
            asked for with one package only stays.
    """
    alike = {}
    for name in names if file in IN_TURN else ():
        parts = [part for part in re.split(r'[][-]', name) if part not in KERAS_PACKAGES]
        alike.setdefault(tuple(parts), []).append(name)
    found = set()
    for number, of_packages in enumerate(of for of in alike.values() if len(of) > 1):
        kept = KERAS_PACKAGES[number % len(KERAS_PACKAGES)]
        found.update(name for name in of_packages if kept not in re.split(r'[][-]', name))
    return found
