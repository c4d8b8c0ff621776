"""Tests that `make sweep` runs and `make test` leaves out; the aim is a gate of 20 minutes on two quiet cores.

A name is the beginning of a test's id below ``tests/``. Behind each group stands what remains of it in `make test`.
A test that is named on pytest's command line (``file.py::test``) always runs, and so does everything with
``TIDEGATE_SWEEP``.
"""

LEFT_TO_SWEEP = (
    # Faults of a cluster: a run on one, with and without a shared folder, and workers with another Python, remain.
    "cluster/test_nothing_shared.py::test_a_killed_run",
    "cluster/test_nothing_shared.py::test_what_cannot_run",
    "cluster/test_airflow_on_cluster.py",
    "cluster/test_full_volume.py",
    "cluster/test_sinks_on_cluster.py",
    "cluster/test_state_on_cluster.py",
    "cluster/test_unfit_workers.py::test_a_worker_without_the_storage",
    "cluster/test_unfit_workers.py::test_a_file_that_only_the_worker",
    "cluster/test_unfit_workers.py::test_a_source_that_only_the_driver_sees",
    "cluster/test_unfit_workers.py::test_doctor_asks_every_executor",  # unit/views/test_doctor_executors.py
    "cluster/test_unfit_workers.py::test_no_python_and_missing_modules",
    "cluster/test_cluster_runs.py::test_without_any_executor",
    "cluster/test_cluster_runs.py::test_a_frozen_executor",
    "cluster/test_cluster_runs.py::test_executors_end_with_a_driver",
    "cluster/test_cluster_runs.py::test_the_master_may_restart",
    "cluster/test_cluster_runs.py::test_an_executor_that_dies",
    "cluster/test_cluster_runs.py::test_a_worker_that_dies",
    # Every operator in every output mode: the refusals, one by one, remain in the same file.
    "spark/test_operations.py::test_the_page_of_operators_and_modes_is_what_happens",
    # Spark's Delta as second writer: between the last move and the commit, with four acts, and one feature remain.
    "spark/test_delta_second_writer.py::test_it_writes_between_two_of_our_steps[between",
    "spark/test_delta_second_writer.py::test_it_writes_between_two_of_our_steps[check_files",
    "spark/test_delta_second_writer.py::test_it_writes_between_two_of_our_steps[_move_files",
    "spark/test_delta_second_writer.py::test_it_writes_between_two_of_our_steps[before",
    "spark/test_delta_second_writer.py::test_checkpoints_",
    "spark/test_delta_second_writer.py::test_the_change_feed",
    "spark/test_delta_second_writer.py::test_a_feature_is_refused_and_the_fix_takes_it_back[de",
    "spark/test_delta_second_writer.py::test_a_feature_is_refused_and_the_fix_takes_it_back[ro",
    "spark/test_delta_second_writer.py::test_a_feature_is_refused_and_the_fix_takes_it_back[col",
    "spark/test_delta_second_writer.py::test_a_feature_is_refused_and_the_fix_takes_it_back[commit",
    # The example pipelines: tests/streams/test_examples.py has students and the silent topic; `make run` has them all.
    "spark/test_streaming_examples.py::test_device_sessions_by_delivery",
    "spark/test_streaming_examples.py::test_ad_clicks_by_delivery",
    "spark/test_streaming_examples.py::test_bitcoin_prices_by_delivery",
    "spark/test_streaming_examples.py::test_plain_spark_forgets_where_a_silent_topic_stood",
    "streams/test_examples.py::test_run_by_run[ad_clicks]",
    "streams/test_examples.py::test_run_by_run[device_sessions]",
    "streams/test_examples.py::test_run_by_run[word_count]",
    "streams/test_examples.py::test_run_by_run[bitcoin_prices]",
    # Every storage call of a refresh that begins a new query: a part of those from its intent on remains.
    "model/test_hand_over.py::test_killed_at_every_storage_call",
    "model/test_hand_over.py::test_frozen_at_every_storage_call",
    # Errors of the file system at every call of run, maintain, backfill and replay: a sample remains in the same file.
    "model/test_storage_errors.py::test_each_call_fails",
    # Older copies of state, table or quarantine after each kind of work: a sample of each remains in the same file.
    "model/test_restored.py::test_each_record_is_somewhere_once",
    # Random kills: the ones of an update pipeline remain, and every named point.
    "recovery/test_random_kills.py",
    # Kills and freezes at named points of every kind of pipeline: windows and update remain for the driver's points,
    # and the sweeps over every storage call of a publish (test_publish_points.py, test_merge_points.py).
    "recovery/test_flows.py::test_killed_at_a_step[join-",
    "recovery/test_flows.py::test_killed_at_a_step[pandas-",
    "recovery/test_flows.py::test_killed_at_a_step[complete-",
    "recovery/test_flows.py::test_killed_at_a_step[update-some new files in]",
    "recovery/test_flows.py::test_frozen",
    "recovery/test_flows.py::test_two_at_once",  # recovery/test_two_at_once.py
    "recovery/test_kill_steps.py::test_audit",
    "recovery/test_kill_steps.py::test_publish",
    *(
        f"recovery/test_kill_points.py::test_killed_when_it_appears[{point}]"
        for point in (
            "second manifest",
            "driver's answer",
            "first move",
            "last move",
            "quarantine intent",
            "quarantine commit",
            "log commit",
            "intent",
            "verdict",
            "link",
            "order",
        )
    ),
    *(
        f"recovery/test_kill_points.py::test_killed_when_spark_wrote_it[{point}]"
        for point in ("rows committed", "quarantine write", "second offset log", "offset log")
    ),
    # A refresh with other columns and a held backfill, at every storage call with Spark; remain, without Spark:
    "recovery/test_rework.py",  # model/test_changed_columns.py, model/test_backfill_days.py
    "recovery/test_zombies.py::test_audit",  # test_ingest and test_publish
    # Storage calls of a publish: killed before and after each, and frozen at each, with and without a fence, remain.
    "recovery/test_publish_points.py::test_killed_at_every_call_and_run_again[copied]",
    "recovery/test_publish_points.py::test_killed_at_every_call_and_run_again[stored, after]",
    "recovery/test_publish_points.py::test_replacing_killed_at_every_call[stored, after]",
    "recovery/test_publish_points.py::test_frozen_at_every_call_while_others_go_on[stored]",  # [stored, replacing]
    "recovery/test_merge_points.py::test_killed_at_every_call_and_run_again[stored, after]",
    "recovery/test_merge_points.py::test_killed_at_every_call_and_run_again[stored, complete]",
    "recovery/test_publish_points.py::test_replacing_killed_at_every_call[after]",
    "recovery/test_retire.py::test_replacing_a_query_is_killed_anywhere[before]",
    "recovery/test_retire.py::test_a_sleeping_publish[update given up]",
    "recovery/test_retire.py::test_a_sleeping_publish[append given up]",
    "recovery/test_retire.py::test_a_sleeping_first_publish[given up]",
    "recovery/test_merge_points.py::test_frozen_at_every_call_while_others_go_on[unfenced]",
    "recovery/test_merge_points.py::test_killed_at_every_call_and_run_again[copied]",
    "recovery/test_publish_points.py::test_frozen_at_every_call_while_others_go_on[copied]",
    "recovery/test_publish_points.py::test_frozen_at_every_call_while_others_go_on[unfenced]",
    "recovery/test_disk_full.py::test_quarantine",
    "recovery/test_disk_full.py::test_table",
    "recovery/test_disk_full.py::test_state_while_publishing",
    "recovery/test_sinks.py::test_killed_while_it_delivers",
    "recovery/test_disagreements.py::test_repair_killed[table deleted while owed]",
    "recovery/test_disagreements.py::test_everything_of_an_older_backup",
    "recovery/test_disagreements.py::test_repaired[table of an older backup]",
    "recovery/test_disagreements.py::test_repaired[table replaced by another]",
    # What makes `make unit` long; the same with smaller numbers, or of another kind, remains in each file.
    "unit/quality/test_audit_pandas_engine.py::test_nothing_is_left_in_the_temporary_folder",
    # Remains:
    "unit/runs/gate/test_decisions.py::test_a_decision_that_is_frozen_anywhere_and_thawed_after_the_next_run_changes_nothing[dis",
    "unit/runs/gate/test_decisions.py::test_a_decision_that_is_killed_anywhere_is_carried_out_by_the_next_run[discard]",
    "unit/sources/test_files.py::test_ten_thousand_known_files_cost_little",
    "unit/sources/test_ledger.py::test_names_are_looked_up_without_reading_the_whole_ledger",
    "unit/tools/test_benchmark_meter.py",
    "unit/tools/test_guard.py::test_nothing_is_left[starter gone]",
    "unit/tools/test_guard.py::test_nothing_is_left[terminated]",
    "unit/tools/test_jars.py::test_a_registry_that_is_away",  # driver/test_packages.py
    # Random trials: one seed remains, and of each kind of fate one.
    "unit/sources/test_spool.py::test_one_run_makes_a_million_rows",  # streams/test_trial_sources.py
    "unit/runs/gate/test_merge.py::test_random_increments_against_a_dict[1",
    "unit/runs/gate/test_merge.py::test_random_increments_against_a_dict[2",
    "model/test_reread.py::test_stopped_anywhere[files-frozen]",
    "model/test_reread.py::test_stopped_anywhere[kafka-killed]",
    "model/test_reread.py::test_stopped_anywhere_with_a_whole_file[frozen]",
    # Twice the same through another door: one format, one SQL spelling, one kind of join, one process remains.
    # Needs the package index, and downloads a gigabyte for each extra: the ranges remain in
    # unit/views/test_doctor_packages.py.
    "e2e/test_extras.py",
    # A JVM of its own, with Delta's jars: unit/rework/adopt/test_old_job_once_more.py has a log written by hand.
    "streams/test_adopt_delta.py",
    "e2e/test_kafka_runs.py::test_runs_kills_losses_and_repairs",  # kafka/
    "e2e/test_files_names.py",  # streams/test_encodings.py, unit/sources
    "e2e/test_sinks.py::test_sinks_are_fed_and_a_broken_one",  # test_a_topic_is_fed, recovery/test_sinks.py
    "streams/test_backfill_windows.py::test_days_of_a_join",  # test_days_of_tumbling_windows
    "streams/test_backfill_windows.py::test_sliding_windows_over_midnight",
    "streams/test_refresh.py::test_a_table_whose_rows_replace_others[complete]",
    "streams/test_many_files.py::test_more_batches_than_one_checkpoint",
    # The driver of a run reads them; the commands, and other runs, remain in unit/sources/test_objects.py.
    "stores/test_sources.py::test_a_look_before_the_first_run",
    "stores/test_sources.py::test_a_run_lists_only_what_is_new",
    "stores/test_sources.py::test_objects_are_read_again_for_a_refresh",
    "e2e/test_files_infer.py::test_columnar_over_three_runs[orc]",
    "e2e/test_files_infer.py::test_columnar_files_that_contradict[orc]",
    "e2e/test_files_columnar.py::test_columns_types_and_broken_files[orc]",
    "e2e/test_files_transforms.py::test_a_row_that_python_fails_on",  # streams/test_failing_rows.py
    "e2e/test_files_vanishing.py::test_paths_with_values_in_folders_and_changes_of_the_schema",
    "e2e/test_side_by_side.py",  # recovery/test_two_at_once.py
    "e2e/test_trial_sources.py::test_rate",  # streams/test_trial_sources.py
    "e2e/test_stream.py::test_a_stream_without_a_rhythm",
    "spark/test_plan.py::test_what_the_metrics_hold_is_bounded",  # streams/test_large_values.py
    "e2e/test_commands.py::test_a_wrong_schema_on_the_first_day",  # gate/test_mostly_wrong.py, model/test_reread.py
    "e2e/test_sinks.py::test_a_driver_that_dies_and_an_increment_that_is_released",  # recovery/test_sinks.py
    "e2e/test_files_vanishing.py::test_removed_before_it_was_read",  # test_changed_while_it_was_read
    "kafka/test_row_errors.py::test_seven_of_two_thousand",  # streams/test_row_errors.py
    "kafka/test_source_port.py::test_a_run_that_is_killed_is_finished_by_the_next[after",
    "kafka/test_capabilities.py::test_a_topic_is_used_twice",  # streams/test_twice.py
    "kafka/test_capabilities.py::test_a_transform_that_fails_until_it_is_corrected",  # streams/test_row_errors.py
    "kafka/test_capabilities.py::test_where_to_read_and_from_where[pattern]",
    "kafka/test_capabilities.py::test_where_to_read_and_from_where[assign]",
    "kafka/test_capabilities.py::test_where_to_read_and_from_where[timestamp]",
    "kafka/test_capabilities.py::test_a_topic_created_again_before_spark_reads[without state]",
    "streams/test_windows.py::test_many_late_records",
    "streams/test_windows.py::test_a_record_that_one_of_two_uses_dropped_is_partly_late[a longer window]",
    "streams/test_windows.py::test_late_records_of_a_source_united_with_itself",
    "streams/test_joins.py::test_each_kind_of_join[left",
    "streams/test_joins.py::test_each_kind_of_join[right",
    "streams/test_joins.py::test_each_kind_of_join[full",
    "streams/test_twice.py::test_a_join_with_itself",  # test_two_sources_each_used_twice
    "streams/test_state.py::test_state_of_rocksdb_that_cannot_be_read",  # test_state_that_cannot_be_read
    "streams/test_state.py::test_state_that_a_task_wrote_elsewhere_is_missed[rocksdb]",
    "streams/test_state.py::test_state_that_a_task_wrote_elsewhere_is_missed[join]",
    "streams/test_state.py::test_timers_fire_across_runs",  # test_state_by_pandas_in_update_mode
    "streams/test_trial_sources.py::test_windows_over_rate",
    "streams/test_windows.py::test_its_input_stays_when_it_is_published_without_spark",
    "streams/test_row_errors.py::test_equal_records_and_a_second_batch",
    "streams/test_changes.py::test_another_side_of_a_union",
    "streams/test_changes.py::test_another_meaning_of_the_state_is_refused[words.groupBy('word').agg(F.sum(F.col",
    "streams/test_changes.py::test_another_meaning_of_the_state_is_refused[words.groupBy('word').agg(F.max",
    "streams/test_changes.py::test_another_meaning_of_the_state_is_refused[words.groupBy(F.upper",
    "streams/test_row_errors.py::test_killed_between_the_search_and_the_manifest",
    "streams/test_row_errors.py::test_too_many_end_the_run",
    "streams/test_row_errors.py::test_parquet",
    # The same through the Airflow of airflow/live; behind each what remains.
    "airflow/live/test_pool.py::test_never_more_drivers",  # test_the_pool_is_made, airflow/test_pool.py
    "airflow/live/test_runs.py::test_a_missing_connection",  # airflow/test_connection.py
    "airflow/test_driver_hook.py::test_settings_reach_the_driver",  # e2e/test_secrets.py
    "airflow/live/test_runs.py::test_a_killed_supervisor",  # airflow/test_driver_hook.py::test_a_killed_supervisor
    "airflow/test_driver_hook.py::test_a_killed_task_process",
    "airflow/live/test_runs.py::test_a_busy_pipeline_is_tried_again",  # recovery/test_two_at_once.py
    "airflow/live/test_runs.py::test_no_secret",  # e2e/test_secrets.py::test_nowhere
    "airflow/live/test_pool.py::test_a_pool_that_was_deleted",  # test_the_pool_is_made_before_the_first_run
    "airflow/live/test_runs.py::test_a_sink_that_is_away_fails_its_own_task",
    "airflow/live/test_runs.py::test_mark_failed_ends_the_driver",
    "airflow/test_driver_hook.py::test_a_kill_ends_the_whole_tree_within_four_seconds[obedient]",
    # The same through another door, or with another kind of source; behind each what remains.
    "streams/test_examples.py::test_a_silent_topic",  # streams/test_joins.py::test_the_watermark_of_two_sources
    "streams/test_windows.py::test_sql_gives_the_same",  # streams/test_twice.py::test_a_union_with_itself[sql]
    "streams/test_windows.py::test_late_records_behind_a_union",  # test_late_records_are_told_apart
    "streams/test_rollback.py::test_a_query_with_state[complete]",
    "streams/test_twice.py::test_a_union_with_itself[python]",
    "streams/test_twice.py::test_one_use_becomes_two_and_one_again",
    "streams/test_joins.py::test_a_static_source_is_read_afresh[left",
    "streams/test_changes.py::test_another_meaning_of_the_state_is_refused[words.union",
    "streams/test_changes.py::test_another_meaning_of_the_state_is_refused[words.dropDuplicates",
    # test_airflows_own_backfill and test_a_held_increment_asks_a_person do the same by the API.
    "airflow/live/test_browser.py::test_a_backfill_and_an_answer_with_airflows_own_buttons",
    "airflow/live/test_pages.py::test_a_held_run_is_decided_on",  # live/test_browser.py::test_a_decision_on_the_page
    "airflow/live/test_held.py::test_where_later_runs_go_on",  # model/test_beside_scenes.py
    "airflow/live/test_held.py::test_read_again_is_done",  # test_a_held_increment_asks_a_person
    "airflow/live/test_held.py::test_a_discarded_increment",  # test_a_held_increment_asks_a_person
    "recovery/test_zombies.py::test_publish",  # recovery/test_publish_points.py
    "recovery/test_kill_points.py::test_killed_when_spark_wrote_it[data write]",
    "recovery/test_flows.py::test_killed_at_a_moment",  # test_killed_at_a_step, test_random_kills
    "recovery/test_retire.py::test_a_sleeping_repair",  # model/test_repair_scenes.py, test_replacing_a_query
    "recovery/test_retire.py::test_a_sleeping_publish[append]",
    "recovery/test_disagreements.py::test_repaired_while_owed[manifests deleted]",
    "recovery/test_disagreements.py::test_repaired_while_owed[table deleted",
    "recovery/test_disagreements.py::test_project_moved",  # test_source_path_changed
    "kafka/test_source_port.py::test_a_run_that_is_killed_is_finished_by_the_next[before-Rate]",
    "spark/test_row_rules_parity.py::test_spark_engine",  # spark/test_audit_engines.py, and pandas in the same file
    "e2e/test_wheel.py::test_a_kafka_pipeline_needs_no_jars",  # test_a_project_far_from_the_repository_runs
    "e2e/test_files_infer.py::test_columnar_files_that_contradict[parquet]",
    # Every storage call of a rollback, of a reread, of an increment that waits: the model has them as rules too.
    "unit/runs/restart/test_rollback.py::test_frozen_at_every_storage_call",
    "unit/runs/gate/test_waiting.py::test_killed_anywhere_while_it_goes_to_wait",
    "unit/runs/gate/test_waiting.py::test_a_decision_killed_anywhere[discard]",
    "unit/rework/replay/test_replay.py::test_frozen_at_every_storage_call[others_quarantine]",
    "model/test_rollback.py::test_stopped_anywhere_and_the_next_run_goes_on[frozen-leave-out-kafka]",
    "model/test_rollback.py::test_stopped_anywhere_and_the_next_run_goes_on[frozen-reread-kafka]",
    "model/test_rollback.py::test_stopped_anywhere_and_the_next_run_goes_on[killed-leave-out-files]",
    "model/test_rollback.py::test_stopped_anywhere_and_the_next_run_goes_on[killed-reread-files]",
    "model/test_rollback.py::test_stopped_anywhere_and_the_same_command_again_completes_it[leave-out-files]",
    "model/test_rollback.py::test_stopped_anywhere_and_the_same_command_again_completes_it[reread-kafka]",
    # A backfill and a refresh with Spark, of which the model has every kind (tests/model/test_backfill_reads_all.py:
    # a file that changes while the driver starts, a record out of quarantine and a backfill of its day); one of each
    # remains here, and of the joins the one that has the rows of the other too.
    "streams/test_backfill_reads_all.py::test_a_file_that_changes_while_the_jvm_starts[deleted-backfill",
    "streams/test_backfill_reads_all.py::test_a_file_that_changes_while_the_jvm_starts[rewritten-",
    "streams/test_backfill_reads_all.py::test_a_file_that_changes_while_the_jvm_starts[shrunk-refresh",
    # Remains:
    "streams/test_backfill_reads_all.py::test_a_record_that_a_refresh_took_out_of_quarantine_and_a_backfill_of_its_day[malf",
    "streams/test_backfill_reads_all.py::test_rows_of_a_sound_file_after_a_backfill_that_did_not_come_to_its_end[the n",
    "streams/test_backfill_windows.py::test_days_of_a_join_of_two_streams[inner",
    # Since the pages are tested in a browser with real runs: what costs most and others do too, which are named.
    "cluster/test_unfit_workers.py::test_executors_that_end_as_soon",  # cluster/test_cluster_runs.py::test_without_any
    "streams/test_backfill_windows.py::test_a_run_that_was_killed_before",  # test_sliding_windows_over_midnight_killed
    "streams/test_backfill_windows.py::test_what_is_closed_at_the_end",  # test_days_of_tumbling_windows
    "streams/test_refresh.py::test_a_join_goes_on",  # test_windows_go_on_with_their_state, model/test_hand_over.py
    "streams/test_refresh.py::test_late_records_and_batches",  # test_windows_go_on_with_their_state
    "streams/test_duplicates.py::test_with_the_event_time",  # test_within_the_watermark
    "kafka/test_backfill.py::test_windows_over_a_topic",  # streams/test_backfill_windows.py
    "recovery/test_flows.py::test_random_kills",  # test_killed_at_a_step, and every storage call of a publish
    "recovery/test_kill_steps.py::test_ingest",  # recovery/test_kill_points.py, test_zombies.py::test_ingest
    "e2e/test_pages.py::test_a_page_that_is_followed_word_by_word[docs/how-to/move-from",  # streams/test_adopt.py
    "e2e/test_sinks.py::test_a_jar_of_the_project",  # test_sinks_are_fed
    "spark/test_streaming_examples.py::test_a_session_that_ends",  # streams/test_windows.py::test_session_windows
    # Remains: model/test_rollback.py::test_stopped_anywhere
    "unit/runs/restart/test_rollback.py::test_killed_at_every_storage_call",
    # Remains: killed at every call, both ways
    "unit/rework/replay/test_replay.py::test_frozen_at_every_storage_call[others_replay",
    # Readers: large files and damage at every byte; one kind of each remains in the same file.
    "unit/sources/readers/test_xml_file.py::test_a_large_file_is_not_held",  # test_a_tag_without_an_end_is_not_held
    "unit/sources/readers/test_json_documents.py::test_a_large_file_is_not_held[records",
    "unit/sources/readers/test_json_documents.py::test_a_large_file_is_not_held[nothing",
    "unit/sources/readers/test_json_documents.py::test_a_large_file_is_not_held[broken",
    "unit/sources/readers/test_json_documents.py::test_a_large_file_is_not_held[quotes",
    "unit/sources/readers/test_json_documents.py::test_a_large_file_is_not_held[backslashes",
    "unit/sources/readers/test_parse.py::test_a_record_of_too_many_values",  # test_long_records.py
    "unit/sources/readers/test_avro_records.py::test_damage_anywhere_is_a_fault_of_the_file[deflate",
    "unit/sources/readers/test_parquet_file.py::test_a_value_that_is_too_large_is_refused_alone",  # test_value_sizes.py
    "unit/sources/readers/test_calendars.py::test_every_julian_day_since_year_1",  # test_parquet_file.py
    "unit/sources/readers/test_orc_file.py::test_damage_behind_the_data_loses_no_record[uncompressed",  # with zlib
    # A record of five times the largest size: a document of JSON, a gzip of CSV and XML remain.
    "unit/sources/readers/test_long_records.py::test_a_long_record_between_two_others[form0",
    "unit/sources/readers/test_long_records.py::test_a_long_record_between_two_others[form1",
    "unit/sources/readers/test_long_records.py::test_a_long_record_between_two_others[form2",
    "unit/sources/readers/test_long_records.py::test_a_long_record_between_two_others[form4",
    "unit/sources/readers/test_long_records.py::test_a_long_record_between_two_others[form6",
)
