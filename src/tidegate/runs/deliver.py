"""Feeding the further sinks of a pipeline, and saying how far each is.

Each sink gets the versions in order. A sink that fails stops at that version and stops no other; in this process it is
not tried again. Sinks without a JVM are fed here, those that need Spark by one driver for all of them.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, assert_never

from tidegate.core import storage
from tidegate.core.errors import TidegateError, TryAgainError
from tidegate.core.paths import PipelinePaths
from tidegate.core.process.machine import now_text
from tidegate.runs import errors
from tidegate.runs.opening import open_run, recover_run
from tidegate.runs.preflight.agreement import check_agreement
from tidegate.runs.preflight.files import check_files
from tidegate.runs.recovery.context import RunContext, Submit
from tidegate.runs.reports.report import FINAL_OUTCOMES, check_run_id, load_report
from tidegate.sinks.feed import Feeder, SinkFault, begin_sink, feed_sink, find_fed, list_pending_versions, raise_numbers
from tidegate.sinks.user_code import read_user_code
from tidegate.spark.driver.cluster import check_master, explain_end
from tidegate.spark.driver.order import DeliveryOrder, read_result, write_order
from tidegate.spark.driver.submit import Load, driver_died, plan_submit
from tidegate.spec.models import ConsoleSink, ForeachBatchSink, ForeachSink, KafkaSink, PipelineSpec
from tidegate.spec.project import Project
from tidegate.spec.sink_checks import explain_topic
from tidegate.spec.spark_settings import parse_master
from tidegate.table.log.state import TableState, read_table_state

if TYPE_CHECKING:
    from tidegate.core import outputs
    from tidegate.core.outputs import Sink


def deliver_run(project: Project, name: str, run_id: str, *, submit: Submit) -> outputs.RunReport:
    """The deliver step: every sink gets its pending versions, whichever run published them. Raises TryAgainError
    SINK_FAILED.

    The report of a run that is not over stays as it is; a run id that is new gets a report that says ``nothing_new``.
    """
    check_run_id(run_id)
    is_new = load_report(project.paths(name), run_id) is None
    with open_run(project, name, run_id, "deliver", note_failure=False) as context:
        if is_new:
            context.report.outcome, context.report.ended_at = "nothing_new", now_text()
        deliver(context, submit)
        return context.report.to_json()


def deliver(context: RunContext, submit: Submit, *, at_end: bool = True) -> None:
    """Feed the versions that the sinks are behind.

    ``at_end`` of a run: a report that is final gets how far they are, and why one is behind, which is raised then.
    """
    if not context.spec.sinks:
        return
    began = time.monotonic()
    if context.facts is None:
        check_agreement(recover_run(context), context.name)
    if read_user_code(context.project, context.spec):
        check_files(context.project, context.spec)  # with the faults of the other files
    feed_sinks(context, submit)
    error = sinks_error(context)
    if at_end and context.report.outcome in FINAL_OUTCOMES:
        context.note_step("deliver", began)
        context.report.error = None if error is None else error.to_dict()
        context.save()
    if at_end and error is not None:
        raise error


def feed_sinks(context: RunContext, submit: Submit) -> None:
    """Feed the versions that each sink is behind; ``context.sink_faults`` has those that failed, the report how far
    each is."""
    paths, run_id = context.paths, context.report.run_id
    table = read_table_state(paths.table)
    context.lease.check()
    for sink in context.spec.sinks:
        begin_sink(paths, sink.name, table, run_id)
    if table is not None:
        table = raise_numbers(paths, table)
        in_spark: list[tuple[ForeachBatchSink, int]] = []
        for sink in context.spec.sinks:
            if sink.name in context.sink_faults:
                continue
            try:
                if isinstance(sink, ForeachBatchSink):
                    pending = list_pending_versions(paths, sink, table)
                    if pending:
                        size = sum(file.size_bytes for delivery in pending for file in delivery.files)
                        in_spark.append((sink, size))
                    continue
                feed_sink(
                    paths,
                    sink,
                    table,
                    partial(_make_feeder, context, sink, table.schema_json),
                    run_id=run_id,
                    check_lease=context.lease.check,
                )
            except SinkFault as fault:
                context.sink_faults[sink.name] = fault
        if in_spark:
            _run_driver(context, in_spark, submit)
    report_sinks(context)


def _make_feeder(context: RunContext, sink: KafkaSink | ForeachSink | ConsoleSink, schema_json: str) -> Feeder:
    """The feeder of a sink; the modules load pyspark, confluent_kafka and pyarrow, and most runs need none of them."""
    if isinstance(sink, KafkaSink):
        from tidegate.sinks.kafka import KafkaFeeder

        explain = partial(explain_topic, spec=context.spec)
        return KafkaFeeder(sink, context.paths, schema_json, context.project.spec.kafka, explain)
    if isinstance(sink, ForeachSink):
        from tidegate.sinks.foreach import ForeachFeeder

        return ForeachFeeder(sink, context.paths, schema_json)
    if isinstance(sink, ConsoleSink):
        from tidegate.sinks.rows import ConsoleFeeder

        return ConsoleFeeder(context.paths, schema_json)
    assert_never(sink)


def _run_driver(context: RunContext, sinks: list[tuple[ForeachBatchSink, int]], submit: Submit) -> None:
    """One spark-submit for all versions that these sinks are behind."""
    paths, run_id = context.paths, context.report.run_id
    order_path, result_path = paths.delivery_order(run_id), paths.delivery_result(run_id)
    log_path = paths.delivery_log(run_id)
    storage.remove(result_path)
    names = [sink.name for sink, _ in sinks]
    project = context.project
    if paths.mirror is not None and parse_master(project.spec.spark.master).is_cluster:
        project = project.on_master("local[*]")  # executors do not see the files that sinks are given
    order = DeliveryOrder(
        str(project.root), context.name, run_id, context.lease.token, names, project.spec.spark.master
    )
    write_order(order_path, order)
    plan = plan_submit(
        project,
        order_path=order_path,
        log_path=log_path,
        pipeline_conf=context.spec.spark.conf,
        load=Load(max(size for _, size in sinks), 0),
        settings={},
    )
    check_master(plan.master, context.name)
    context.lease.check()
    exit_code = submit(plan)
    context.lease.check()
    result = read_result(result_path)
    if result is None:
        died = driver_died(context.name, exit_code, log_path)
        faults = {name: SinkFault(died.message, where=died.where, fix=died.fix or "read the log") for name in names}
    elif result["error"] is not None:
        raise explain_end(TidegateError.from_dict(result["error"]), log_path, plan.master, context.name)
    else:
        faults = {name: SinkFault.from_dict(value) for name, value in result["faults"].items()}
    context.sink_faults.update(faults)
    for path in (order_path, result_path, *(() if faults else (log_path,))):
        storage.remove(path)


def report_sinks(context: RunContext) -> None:
    """Put how far each sink is into the run's report."""
    context.report.sinks = describe_sinks(context.paths, context.spec, context.sink_faults)


def describe_sinks(
    paths: PipelinePaths, spec: PipelineSpec, faults: Mapping[str, SinkFault] | None = None
) -> list[Sink]:
    """How far each sink of the spec is."""
    table = read_table_state(paths.table)
    return [_describe_sink(paths, sink, table, (faults or {}).get(sink.name)) for sink in spec.sinks]


def _describe_sink(
    paths: PipelinePaths,
    sink: KafkaSink | ForeachBatchSink | ForeachSink | ConsoleSink,
    table: TableState | None,
    fault: SinkFault | None,
) -> Sink:
    """How far one sink is: ``version`` is the last one it had (None: none), ``behind`` how many it lacks (None:
    unknown), ``error`` why."""
    fed = None if table is None else find_fed(paths, sink.name, table)
    behind: int | None = 0
    if table is not None and fed is not None:
        try:
            behind = len(list_pending_versions(paths, sink, table))
        except SinkFault as gone:
            behind, fault = None, fault or gone
    return {
        "type": sink.type,
        "name": sink.name,
        "version": None if fed is None or fed.had < 0 else fed.had,
        "behind": behind,
        "error": None if fault is None else fault.message,
    }


def describe_behind(sinks: Sequence[Sink]) -> list[str]:
    """A line for each sink that is behind."""
    lines = []
    for sink in sinks:
        if sink["behind"] != 0:
            had = "none yet" if sink["version"] is None else f"up to {sink['version']}"
            lines.append(f"sink {sink['name']} is {_count(sink['behind'])} behind (it has had {had})")
    return lines


def _count(behind: int | None) -> str:
    return "an unknown number of versions" if behind is None else f"{behind} version{'' if behind == 1 else 's'}"


def sinks_error(context: RunContext) -> TryAgainError | None:
    """The error that the run ends with when sinks failed; None when every one was fed."""
    faults = context.sink_faults
    if not faults:
        return None
    behind = {sink["name"]: sink["behind"] for sink in context.report.sinks}
    sentences = [f"sink {name} ({_count(behind.get(name))} behind): {fault.message}" for name, fault in faults.items()]
    places = [fault.where for fault in faults.values() if fault.where]
    fixes = list(dict.fromkeys(fault.fix for fault in faults.values()))
    return errors.SINK_FAILED(
        where="; ".join(dict.fromkeys(places)) or f"pipeline {context.name}",
        failures="; ".join(sentences),
        fixes="; ".join(fixes),
        pipeline=context.name,
    )
