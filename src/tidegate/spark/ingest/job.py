"""The spark-submit application: drains what the ingest step ordered into staging, and answers with a result file."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from tidegate.core.paths import PipelinePaths
from tidegate.core.words import count_of, list_first
from tidegate.sources import errors as sources_errors
from tidegate.sources.files.intake import renew_links
from tidegate.sources.files.unreadable import find_unreadable, quarantine_whole
from tidegate.sources.kafka.offsets import watch_topics
from tidegate.sources.registry import open_sources
from tidegate.spark import errors
from tidegate.spark.catalyst.carry import PROVENANCE
from tidegate.spark.catalyst.fingerprint import describe_state
from tidegate.spark.catalyst.operations import keeps_one_of_equals, makes_several
from tidegate.spark.catalyst.plans import with_settings
from tidegate.spark.catalyst.private_api import SPARK_ERRORS
from tidegate.spark.catalyst.state import NO_CLOSING_BATCHES, set_state_conf
from tidegate.spark.driver.failures import (
    RowFailed,
    answer,
    explain,
    is_object_fault,
    is_read_fault,
    is_row_fault,
)
from tidegate.spark.driver.order import IngestOrder, emit, read_order
from tidegate.spark.ingest.batch_checks import Ranges
from tidegate.spark.ingest.failing_record import find_failing_record, find_failing_records
from tidegate.spark.ingest.infer import infer_missing
from tidegate.spark.ingest.judge import judge_if_large
from tidegate.spark.ingest.look import BatchLook
from tidegate.spark.ingest.pace import ReadingProgress, ReportListener, TaskProgress, count_pending
from tidegate.spark.ingest.progress_log import ProgressLog
from tidegate.spark.ingest.query import PreparedQuery, prepare_query
from tidegate.spark.ingest.read import FailingRecord, SourceReader
from tidegate.spark.ingest.stage import BatchStager, ReadAgain
from tidegate.spark.session.executors import ComputedTwice, Executors
from tidegate.spec.as_read import as_texts
from tidegate.spec.models import PipelineSpec
from tidegate.spec.pipeline import load_pipeline
from tidegate.spec.project import Project, load_project
from tidegate.spec.spark_settings import parse_master
from tidegate.state.birth import as_read, keep_state
from tidegate.state.checkpoint import plan_closing_batch, read_checkpoint, read_watermark
from tidegate.state.lease import check_token
from tidegate.state.open_state import closing_watermark, note_drained, read_open_state

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


_READ_AGAIN_AT_MOST = 3
_POLL_SECONDS = 2.0
_TO_QUARANTINE = "or `on_row_error: quarantine` in pipeline.yaml sends such records to quarantine"


def drain_order(order_path: Path) -> int:
    """Carry out one order, in this process's Spark session or a new one; the exit code is the error's, or 0."""
    order = read_order(order_path)
    project = load_project(Path(order.project_root))
    paths = replace(project.paths(order.pipeline), generation=order.generation)
    if order.beside:
        paths = paths.beside(order.beside)
    on_cluster = parse_master(order.master).is_cluster
    return answer(
        paths.ingest_result(order.run_id),
        partial(_ingest, project, paths, order),
        lambda error: explain(error, order.pipeline, paths.job, paths.state, on_cluster=on_cluster),
    )


def _ingest(project: Project, paths: PipelinePaths, order: IngestOrder) -> dict[str, object]:
    spec = as_read(load_pipeline(project, order.pipeline), paths)
    if order.of_texts:
        spec = as_texts(spec)
    started = time.monotonic()
    emit("start", pipeline=spec.name, run_id=order.run_id)
    spark = SparkSession.builder.appName(f"tidegate {spec.name}").getOrCreate()
    emit("session", seconds=round(time.monotonic() - started, 2), master=spark.sparkContext.master)
    executors = Executors(spark, paths)
    with executors.watched(), _listening(spark, order) as reports:
        executors.check_storage()
        reader = SourceReader(spark, project, paths, order, spec, reports=reports)
        return _drain_into_staging(reader, executors, started)


@contextlib.contextmanager
def _listening(spark: SparkSession, order: IngestOrder) -> Iterator[ReportListener | None]:
    """Listen for the reports of tasks within; None where that is not possible: a run does without them."""
    is_local = not parse_master(order.master).is_cluster
    host = "127.0.0.1" if is_local else spark.sparkContext.getConf().get("spark.driver.host", "")
    try:
        listener = ReportListener(host or "", is_local=is_local)
    except OSError:
        yield None
        return
    with contextlib.closing(listener):
        yield listener


def _drain_into_staging(reader: SourceReader, executors: Executors, started: float) -> dict[str, object]:
    spark, project, paths, order = reader.spark, reader.project, reader.paths, reader.order
    check_token(paths, order.token)
    # Not below the paths of a side job, which are removed.
    progress = ProgressLog(project.paths(order.pipeline).progress(order.run_id))
    progress.note_session(spark)
    spec = infer_missing(spark, paths, order, reader.spec)
    reader = replace(reader, spec=spec)
    statics = reader.statics()

    def prepare() -> PreparedQuery:
        return prepare_query(spark, project, spec, order, reader.streams() | statics)

    def rows_of(ranges: Ranges) -> DataFrame:
        return prepare_query(spark, project, spec, order, reader.batch(ranges) | statics).rows

    prepared = prepare()
    if order.one_row_each and makes_several(prepared.out):
        raise errors.REPLAY_SEVERAL_ROWS(
            where=f"pipeline {spec.name}", rows="several rows of one record (explode, a sliding window)", name=spec.name
        )
    if prepared.keeps_state:
        executors.check_no_state(paths.job)
    check_token(paths, order.token)
    keep_state(paths, spec, describe_state(prepared.out), spark.version)
    if prepared.keeps_state:
        set_state_conf(spark, prepared.out, spec.watermark_policy)
    topics = [name for name in spec.topic_sources if name in spec.streams]
    stager = BatchStager(
        spark=spark,
        spec=spec,
        paths=paths,
        order=order,
        executors=executors,
        rules=prepared.rules,
        schema_json=prepared.schema_json,
        look=BatchLook(spark, spec, paths, order, prepared, reader.range, statics),
        progress=progress,
        reading=ReadingProgress(count_pending(paths.checkpoint, order, topics), reader.reports, topics),
        keeps_state=prepared.keeps_state,
        topics=watch_topics(project, paths, spec),
        sources=open_sources(project, paths, spec),
        partitioned=prepared.partitioned,
        rows_of=None if executors.unseen is None else rows_of,
    )
    with with_settings(spark, _choose_settings(order, executors)):
        _drain(spark, prepared.rows, stager, reader.failing, prepare)
        if prepared.keeps_state:
            if _plan_closing(paths, order, spec):
                _drain(spark, prepared.rows, stager, reader.failing, prepare)
            _note_drained(paths, order)
    if order.closes_at_ms is not None:
        _check_duplicates(stager, prepared)
    judge_if_large(spark, paths, order, prepared.suite, spec)
    return {
        "batches": stager.batches,
        "rows": stager.rows_so_far,
        "seconds": round(time.monotonic() - started, 2),
    }


def _choose_settings(order: IngestOrder, executors: Executors) -> dict[str, str]:
    """Settings of the session while batches are read."""
    if order.closes_at_ms is not None:
        return NO_CLOSING_BATCHES
    # Adaptive execution drops the metrics of an input that it finds empty; Spark's streams do without it.
    return {} if executors.unseen is None else {"spark.sql.adaptive.enabled": "false"}


def _check_duplicates(stager: BatchStager, prepared: PreparedQuery) -> None:
    """Raise UsageError BACKFILL_STATE where runs may have kept another of several records that are not equal."""
    if stager.duplicates and not keeps_one_of_equals(prepared.out, PROVENANCE):
        name, count = stager.spec.name, count_of(stager.duplicates, "duplicate")
        why = f"{count} of what is read may differ from what was kept, which is what came first"
        raise errors.BACKFILL_STATE(
            where=f"pipeline {name}", label="what was asked for", why=why, possible="none", name=name
        )


def _plan_closing(paths: PipelinePaths, order: IngestOrder, spec: PipelineSpec) -> bool:
    """Plan one more batch, without data, where the watermark is behind what all runs together have seen, or where what
    is open is to be closed at the end of each run. Spark itself remembers only what it saw since it was started. A side
    job closes by the watermark of its order."""
    if (closes_at_ms := order.closes_at_ms) is not None:
        check_token(paths, order.token)
        return plan_closing_batch(paths.checkpoint, closes_at_ms) is not None
    note = read_open_state(paths, read_checkpoint(paths.checkpoint).query_id)
    if note is None or (note.rows == 0 and len(spec.watermarks) < 2):
        return False  # nothing is open; the one source's watermark Spark has moved itself
    at_end = spec.close_windows == "at_end" or (order.bounds is not None and order.bounds.closes_all)
    watermark_ms = closing_watermark(note, spec.watermarks, spec.watermark_policy, everything=at_end)
    if watermark_ms <= read_watermark(paths.checkpoint):
        return False
    check_token(paths, order.token)
    return plan_closing_batch(paths.checkpoint, watermark_ms) is not None


def _note_drained(paths: PipelinePaths, order: IngestOrder) -> None:
    checkpoint = read_checkpoint(paths.checkpoint)
    if checkpoint.query_id is not None and checkpoint.last_commit is not None:
        check_token(paths, order.token)
        note_drained(paths, checkpoint.query_id, checkpoint.last_commit)


def _drain(
    spark: SparkSession,
    rows: DataFrame,
    stager: BatchStager,
    failing: list[FailingRecord],
    prepare: Callable[[], PreparedQuery],
) -> None:
    """Run the query to its end; again when a file changed while it was read, or had to be quarantined, or when records
    on which the transform fails go to quarantine. ``prepare`` makes the query with those of ``row_failures`` marked."""
    again = staged = 0
    while True:
        try:
            _run_query(spark, rows, stager)
            return
        except SPARK_ERRORS as error:  # what the stager kept says more
            cause = stager.failure or error
            if stager.batches > staged:  # it is another batch that changes now
                again, staged = 0, stager.batches
                failing.clear()
            if isinstance(cause, ReadAgain | ComputedTwice):
                again += 1
                _note_repeat(cause, again, stager.spec.name)
            elif is_object_fault(cause) and (replaced := _renew_objects(stager)):
                again += 1
                _note_repeat(ReadAgain(replaced), again, stager.spec.name)
            elif is_read_fault(cause) and _set_unreadable_aside(stager, cause):
                pass
            elif is_row_fault(cause):
                rows = _mark_failing_records(stager, cause, failing, prepare)
            else:
                raise cause from error


def _run_query(spark: SparkSession, rows: DataFrame, stager: BatchStager) -> None:
    """Start the query and wait until it has taken all that was there when it started."""
    stager.failure = None
    stager.note_inputs()
    query = (
        rows.writeStream.outputMode(stager.spec.output_mode)
        .foreachBatch(stager)
        .trigger(availableNow=True)
        .option("checkpointLocation", str(stager.paths.checkpoint))
        .queryName(stager.spec.name)
        .start()
    )
    _wait(spark, query, stager)
    stager.sync_checkpoint()


def _note_repeat(cause: ReadAgain | ComputedTwice, times: int, name: str) -> None:
    """Say why the batch is read again, or raise when it was for the last time: FILE_CHANGING, EXECUTOR_LOST."""
    if isinstance(cause, ReadAgain):
        if times >= _READ_AGAIN_AT_MOST:
            changes = f"{', '.join(cause.paths)} changed each time it was read"
            raise sources_errors.FILE_CHANGING(changes=changes) from cause
        emit("progress", note=f"changed while it was read, reading again: {', '.join(cause.paths)}")
    else:
        if times >= _READ_AGAIN_AT_MOST:
            how = f"while it was computed {times} times ({cause})"
            raise errors.EXECUTOR_LOST(where=f"pipeline {name}", how=how) from cause
        emit("progress", note=f"executors were lost with rows of the batch, it is computed again ({cause})")


def _renew_objects(stager: BatchStager) -> list[str]:
    """Let the batch read the objects that were replaced since they were taken as they are now; returns their names.
    Raises TryAgainError FILE_VANISHED for those that are gone."""
    planned, again, gone = stager.planned(), list[str](), list[str]()
    stager.check_lease()
    for name in stager.spec.file_streams:
        intake = stager.paths.intake(name)
        suspects = planned[name].links if name in planned else stager.order.links.get(name, {})
        replaced, removed = renew_links(intake / link for link in suspects)
        again += [stager.order.original(str(link.relative_to(intake))) for link in replaced]
        gone += removed
    if gone:
        raise errors.FILE_VANISHED(error=list_first(gone))
    return again


def _set_unreadable_aside(stager: BatchStager, cause: BaseException) -> bool:
    """Quarantine files of the batch that cannot be read, whole; return whether there were any. Raises where executors,
    or files of a static source, are at fault."""
    stager.executors.check_storage(again=True)  # a file that an executor cannot see is not unreadable
    found, planned = [], stager.planned()
    for name, source in stager.spec.file_streams.items():
        known = stager.order.links.get(name, {})
        suspects = planned[name].links if name in planned else known
        folder, intake = stager.paths.unreadable, stager.paths.intake(name)
        reasons = find_unreadable(folder, intake, suspects, source, str(cause))
        found += quarantine_whole(folder, intake, reasons, source, known, stager.check_lease)
    if found:
        emit("progress", note=f"cannot be read to their ends, kept in quarantine: {', '.join(found)}")
        return True
    stager.executors.check_seen(str(cause))
    stager.checks.check_statics_readable(str(cause))
    return False


def _mark_failing_records(
    stager: BatchStager, cause: BaseException, failing: list[FailingRecord], prepare: Callable[[], PreparedQuery]
) -> DataFrame:
    """The query's rows again, with the records marked on which the transform fails. Raises :class:`RowFailed`, which
    names one of them, where they may not go to quarantine."""
    finder, ranges = stager.finder(), stager.planned()
    if stager.spec.on_row_error != "quarantine":
        record = find_failing_record(stager.look, ranges, finder, keeps_state=stager.keeps_state)
        raise RowFailed(record, "" if stager.keeps_state else _TO_QUARANTINE) from cause
    try:
        failing += find_failing_records(stager.look, ranges, finder, failing)
    except RowFailed as too_many:
        raise too_many from cause
    count = sum(one.count for one in failing)
    emit("progress", note=f"the transform fails on {count_of(count, 'record')}: to quarantine")
    prepared = prepare()
    stager.look = replace(stager.look, prepared=prepared)
    return prepared.rows


def _wait(spark: SparkSession, query: StreamingQuery, stager: BatchStager) -> None:
    """Wait for the query's end; keep its progress events, and report how far it has read and which tasks are done."""
    tasks = TaskProgress(spark)
    while not query.awaitTermination(_POLL_SECONDS):  # type: ignore[arg-type]  # a fraction of a second is taken
        if (figures := stager.reading.emit_when_due()) is not None:
            stager.progress.note_reading(figures)
        stager.progress.note_progress(query)
        tasks.emit_changes("progress")
    stager.progress.note_progress(query)
