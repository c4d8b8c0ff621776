"""What a run orders from Spark of what is new, and the driver that it starts for that."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from tidegate.core import storage
from tidegate.core.outputs import SourceReport
from tidegate.runs.drive import Load, run_driver
from tidegate.runs.preflight.definition import describe_definition, note_definition
from tidegate.runs.preflight.facts import Facts
from tidegate.runs.preflight.pending import Pending
from tidegate.runs.recovery.context import RunContext, Submit
from tidegate.runs.recovery.recover import sweep_attempts
from tidegate.runs.statics import pin_statics
from tidegate.sources.files.intake import admit, sweep_intake
from tidegate.sources.files.ledger import Ledger, LinkedFile
from tidegate.sources.port import Cut, Pinned
from tidegate.sources.registry import Connections, open_sources
from tidegate.spark.driver.order import IngestOrder
from tidegate.spec.models import PipelineSpec
from tidegate.spec.project import Project
from tidegate.spec.transform.load import check_transform, read_transform
from tidegate.state.batch_files import BatchFiles
from tidegate.state.birth import Birth, read_birth
from tidegate.state.checkpoint import read_start
from tidegate.state.seal import Seal, set_seal
from tidegate.state.topics import Offsets, offsets_from_json


def make_order(
    context: RunContext, ledger: Ledger | None, pending: Pending, held: Connections
) -> tuple[IngestOrder, Load]:
    """Take what is pending into the intake; what to order from Spark, and how much that is."""
    project, spec = context.project, context.spec
    check_transform(project, spec)  # a driver would find it too, after seconds and in Python's words
    if ledger is not None:
        _admit(context, ledger, pending)
    paths, facts = context.paths, context.facts
    assert facts is not None
    sweep_attempts(paths, facts, context.lease)
    _forget_returned(context, facts)
    cut = find_cut(project, spec, facts.birth)
    for name, source in open_sources(project, paths.pinned(), spec, held).items():
        source.write_batches(pending.arrivals[name], cut, context.lease.check)
    statics = pin_statics(project, paths, spec, facts.checkpoint, context.lease)
    _report_statics(context, statics)
    return _describe_order(context, ledger, pending, statics), Load(pending.bytes, pending.files)


def drive_order(context: RunContext, order: IngestOrder, load: Load, submit: Submit) -> None:
    """Run the driver, and note what the pipeline was when it read."""
    before = describe_definition(context.project, context.spec, context.paths)
    run_driver(context, order, load, submit)
    now = describe_definition(context.project, context.spec, context.paths)  # columns may be inferred by now
    # What is edited while the driver is at work, nobody has read with.
    read_with = {**now, "rule": before["rule"], "query": before["query"]}
    note_definition(context.paths, read_with, context.report.run_id)


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
        transform = read_transform(project, spec)[0]
        if any(spec.watermarks.values()) or "watermark" in transform.text.lower():
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
            set_seal(context.paths, checkpoint, unsealed, Seal())
            BatchFiles(context.paths.checkpoint, name).begin_again(_position_of(context, name))
            storage.remove_tree(forgotten)


def _list_pending_links(ledger: Ledger, sources: Iterable[str]) -> dict[str, dict[str, LinkedFile]]:
    return {name: {row.link: row.linked_file for row in ledger.rows(name, state="linked")} for name in sources}


def _position_of(context: RunContext, name: str) -> Offsets:
    """Where a source of topics was when the spec left it out; {} for one of files."""
    birth = read_birth(context.paths)
    start = {} if birth is None else birth.sources.get(name, {})
    return offsets_from_json(start["offsets"]) if "offsets" in start else {}
