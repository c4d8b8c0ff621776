"""The order of a run to Spark, and the spark-submit that carries it out."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from tidegate.core import storage
from tidegate.core.errors import DisagreementError, SourceLostError, TidegateError
from tidegate.core.outputs import SourceReport
from tidegate.core.paths import PipelinePaths
from tidegate.runs.preflight.agreement import check_agreement
from tidegate.runs.preflight.definition import describe_definition, note_definition
from tidegate.runs.preflight.facts import Facts
from tidegate.runs.preflight.files import check_files
from tidegate.runs.preflight.gather import Pending, gather_facts, seal_checkpoint
from tidegate.runs.recovery.context import RunContext, Submit
from tidegate.runs.recovery.recover import sweep_attempts, sync_unpublished
from tidegate.runs.restart.new_query import describe_pinned, settings_at_birth
from tidegate.sources.files.intake import admit, sweep_intake
from tidegate.sources.files.ledger import Ledger, LinkedFile
from tidegate.sources.port import Cut, Pinned
from tidegate.sources.registry import Connections, open_statics, open_streams
from tidegate.spark.driver.cluster import check_master, explain_end
from tidegate.spark.driver.order import IngestOrder, read_result, write_order
from tidegate.spark.driver.submit import (
    Load,
    SubmitPlan,
    describe_batch,
    driver_died,
    out_of_memory,
    plan_submit,
    ran_out,
)
from tidegate.spec.as_read import is_to_infer
from tidegate.spec.models import PipelineSpec
from tidegate.spec.project import Project
from tidegate.spec.spark_settings import parse_master
from tidegate.spec.transform import read_transform
from tidegate.state.batch_files import BatchFiles
from tidegate.state.birth import Birth, as_read, name_query, read_birth
from tidegate.state.checkpoint import CheckpointState, read_start
from tidegate.state.lease import Lease
from tidegate.state.seal import set_seal
from tidegate.state.topics import Offsets, offsets_from_json


def make_order(context: RunContext, ledger: Ledger | None, pending: Pending, held: Connections) -> Ordered:
    """Take what is pending into the intake; what to order from Spark."""
    project, spec = context.project, context.spec
    check_files(project, spec)  # a driver would find it too, after seconds and in Python's words
    if ledger is not None:
        _admit(context, ledger, pending)
    paths, facts = context.paths, context.facts
    assert facts is not None
    sweep_attempts(paths, facts, context.lease)
    _forget_returned(context, facts)
    cut = find_cut(project, spec, facts.birth)
    for name, stream in open_streams(project, paths.pinned(), spec, held).items():
        stream.write_batches(pending.arrivals[name], cut, context.lease.check)
    statics = pin_statics(project, paths, spec, facts.checkpoint, context.lease)
    _report_statics(context, statics)
    return Ordered(_describe_order(context, ledger, pending, statics), Load(pending.bytes, pending.files))


def _report_statics(context: RunContext, statics: Mapping[str, Pinned]) -> None:
    """Put the version of each static source that this run reads into the report."""
    for name, version in statics.items():
        version_report: SourceReport = {"static": version["version"]}
        if "links" in version:
            version_report["files"] = len(version["links"])
        else:
            version_report["offsets"] = version["offsets"]
        context.report.sources[name] = version_report


def _admit(context: RunContext, ledger: Ledger, pending: Pending) -> None:
    """Take the new files into the intake, and remove from it what is not pending."""
    assert context.facts is not None
    has_planned = context.facts.checkpoint.last_offset is not None
    for name, scan in pending.scans.items():
        gone = admit(context.paths, name, context.spec.file_streams[name], scan.new, ledger).gone
        # A process that was frozen while it made links may have made one again that was read long ago.
        # A query that has planned nothing yet must not meet what an earlier one has staged: it would read it again.
        sweep_intake(context.paths, name, ledger, keep_staged=has_planned)
        if gone:
            context.report.sources[name].setdefault("skipped", []).extend(gone)


def _describe_order(
    context: RunContext, ledger: Ledger | None, pending: Pending, statics: dict[str, Pinned]
) -> IngestOrder:
    """The order of all pending files and offsets."""
    assert context.facts is not None
    project, spec, facts = context.project, context.spec, context.facts
    return IngestOrder(
        project_root=str(project.root),
        pipeline=spec.name,
        run_id=context.report.run_id,
        token=context.lease.token,
        generation=context.paths.pinned().generation or 0,
        master=project.spec.spark.master,
        links=_list_pending_links(ledger, spec.file_streams) if ledger is not None else {},
        partition_columns={name: one.partition_columns for name, one in pending.arrivals.items()},
        pending={name: {"offsets": one.offsets} for name, one in pending.arrivals.items()},
        statics=statics,
        table_schema_json=facts.table.schema_json if facts.table is not None else None,
        table_partition_by=facts.table.partition_columns if facts.table is not None else None,
        settled={query: facts.settled_up_to(query) for query in {facts.query_id or "", *facts.manifests} - {""}},
    )


def find_cut(project: Project, spec: PipelineSpec, birth: Birth | None) -> Cut:
    """By size where it makes no difference to a row: what a query with state drops as late, and which of two rows with
    one key is the newer, may depend on the batches."""
    if spec.trigger == "once":
        return Cut.NOWHERE
    if spec.output_mode != "append" or spec.table.keys or (birth is not None and birth.keeps_state):
        return Cut.BY_OPTIONS
    if birth is None or birth.state is None:  # until it has run once, nobody knows whether it keeps state
        text, _ = read_transform(project, spec)
        if any(spec.watermarks.values()) or "watermark" in text.lower():
            return Cut.BY_OPTIONS
    return Cut.BY_SIZE


def _forget_returned(context: RunContext, facts: Facts) -> None:
    """Take away Spark's list of files of a source that the spec did not have for two batches or more: Spark would read
    all of that list again. The ledger knows the files, and the birth record the offsets."""
    checkpoint = facts.checkpoint
    if checkpoint.last_offset is None or checkpoint.in_flight is not None:
        return
    kept = dict(facts.files.digests)
    for name in context.spec.streams:
        forgotten = context.paths.checkpoint / "sources" / name
        if read_start(context.paths.checkpoint, checkpoint.last_offset + 1, name) is None and storage.exists(forgotten):
            context.lease.check()
            kept = {path: one for path, one in kept.items() if not path.startswith(f"sources/{name}/")}
            unsealed = replace(facts.files, digests=kept)  # first: new files will have the names of these
            set_seal(context.paths, checkpoint, unsealed, {})
            BatchFiles(context.paths.checkpoint, name).begin_again(_position_of(context, name))
            storage.remove_tree(forgotten)


def _list_pending_links(ledger: Ledger, sources: Iterable[str]) -> dict[str, dict[str, LinkedFile]]:
    return {name: {row.link: row.linked_file for row in ledger.rows(name, state="linked")} for name in sources}


def _position_of(context: RunContext, name: str) -> Offsets:
    """Where a source of topics was when the spec left it out; {} for one of files."""
    birth = read_birth(context.paths)
    start = {} if birth is None else birth.sources.get(name, {})
    return offsets_from_json(start["offsets"]) if "offsets" in start else {}


_ROOM_FOR_AN_ANSWER_BYTES = 1 << 20


class Ordered(NamedTuple):
    """An order to Spark, and how much it is to read."""

    order: IngestOrder
    load: Load

    def drive(self, context: RunContext, submit: Submit) -> None:
        """Run the driver, and note what the pipeline was when it read."""
        before = describe_definition(context.project, context.spec, context.paths)
        run_driver(context, self.order, self.load, submit)
        now = describe_definition(context.project, context.spec, context.paths)  # columns may be inferred by now
        # What is edited while the driver is at work, nobody has read with.
        read_with = {**now, "rule": before["rule"], "query": before["query"]}
        note_definition(context.paths, read_with, context.report.run_id)


def run_driver(context: RunContext, order: IngestOrder, load: Load, submit: Callable[[SubmitPlan], int]) -> None:
    """One spark-submit for ``order``; ``context.facts`` are those afterwards.

    Raises what the driver ended with, and TryAgainError DRIVER_DIED, OUT_OF_MEMORY or DISK_FULL.
    """
    paths, run_id = context.paths, context.report.run_id
    order_path, result_path, log_path = paths.order(run_id), paths.ingest_result(run_id), paths.driver_log(run_id)
    storage.remove(result_path)
    write_order(order_path, order)
    birth = read_birth(paths)
    settings = birth.settings if birth is not None else settings_at_birth(context.project, context.spec)
    plan = plan_submit(
        context.project,
        order_path=order_path,
        log_path=log_path,
        pipeline_conf=context.spec.spark.conf,
        load=load,
        settings=settings,
    )
    check_master(plan.master, context.name)
    assert context.facts is not None
    last = context.facts.checkpoint.last_offset
    context.report.notes += describe_pinned(context.project, paths, context.spec, settings, last)
    context.lease.check()
    context.drivers.append(str(log_path))
    exit_code = submit(plan)
    context.lease.check()
    facts = context.facts = gather_facts(paths, context.spec)
    if facts.query_id is not None:
        name_query(paths, facts.query_id)
    sync_unpublished(paths, context.spec, facts, context.lease)
    with contextlib.suppress(DisagreementError):  # the next run says what does not agree
        check_agreement(facts, context.name)
        seal_checkpoint(paths, facts)
    _note_inferred(context)
    result = read_result(result_path)
    error = TidegateError.from_dict(result["error"]) if result is not None and result["error"] is not None else None
    if ran_out(exit_code if result is None else 0, error, on_cluster=parse_master(plan.master).is_cluster):
        batch = facts.in_flight
        in_hand = describe_batch(order, batch, facts.given.get(batch, {}) if batch is not None else {})
        raise out_of_memory(context.name, plan.driver_memory, in_hand, log_path)
    if result is None:
        if storage.free_bytes(paths.state) < _ROOM_FOR_AN_ANSWER_BYTES:
            raise storage.disk_full(result_path)
        raise driver_died(context.name, exit_code, log_path)
    if error is not None:
        raise _with_log(explain_end(error, log_path, plan.master, context.name), str(log_path))
    for path in (order_path, result_path, log_path):
        storage.remove(path)


def _note_inferred(context: RunContext) -> None:
    """Continue with the columns that the driver has inferred, and report them."""
    before, context.spec = context.spec, as_read(context.spec, context.paths)
    for name, source in context.spec.file_sources.items():
        if source.is_kept and is_to_infer(before.sources[name]):
            context.report.sources[name]["schema"] = source.schema
            context.report.notes.append(f"source {name}: its columns were inferred, and are kept: {source.schema}")


def _with_log(error: TidegateError, log_path: str) -> TidegateError:
    if error.code == "INGEST_FAILED" or isinstance(error, SourceLostError):
        error.where = f"{error.where}; log: {log_path}" if error.where else f"log: {log_path}"
    return error


def pin_statics(
    project: Project, paths: PipelinePaths, spec: PipelineSpec, checkpoint: CheckpointState, lease: Lease
) -> dict[str, Pinned]:
    """{static source: its version} (:meth:`tidegate.sources.port.StaticSource.pin`): the version of a batch that Spark
    has planned and not committed, else that of now.

    Copying takes time, in which another process may take over: a version is noted, and others are removed, only while
    the lease is held. Raises what ``pin`` does, and TryAgainError LEASE_LOST.
    """
    pinned = {}
    for name, source in open_statics(project, paths, spec).items():
        known: Pinned | None = storage.read_json(paths.static_version(name))
        if known is not None and not source.is_whole(known):
            known = None
        if known is not None and checkpoint.in_flight is not None:
            pinned[name] = known
            continue
        try:
            version = pinned[name] = source.pin(known)
        finally:
            lease.check()  # also behind an error: a successor clears away what is half copied
        if version != known:
            storage.replace(paths.static_version(name), storage.dump_json(version))
        source.forget_others(version)
    return pinned
