"""Ingest, seen from outside Spark: what is new, whether something was lost, and one spark-submit when there is work."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from tidegate import storage
from tidegate.driver.order import IngestOrder
from tidegate.driver.submit import SubmitPlan
from tidegate.outputs import SourceReport
from tidegate.preflight.definition import describe_definition, note_definition
from tidegate.preflight.facts import Facts, gather_facts
from tidegate.preflight.pending import Pending, find_pending
from tidegate.preflight.pinned import settings_at_birth
from tidegate.recovery.context import RunContext
from tidegate.recovery.recover import sweep_attempts
from tidegate.reports.report import join_named
from tidegate.restart.losses import accept_losses, left_behind
from tidegate.restart.renewal import renew_long_checkpoint
from tidegate.run.closing import close_idle, make_up_closing
from tidegate.run.drive import Load, run_driver
from tidegate.run.statics import pin_statics
from tidegate.sources.files.changed import changed_error, list_changed
from tidegate.sources.files.consumed import finish_clearing
from tidegate.sources.files.intake import admit, restore_links, sweep_intake
from tidegate.sources.files.ledger import Ledger, LedgerRow, LinkedFile, open_ledger, shown_path
from tidegate.sources.files.scan import note_first_look, note_scan
from tidegate.sources.files.starts import describe_start
from tidegate.sources.files.unreadable import set_aside_vanished
from tidegate.sources.port import Pinned
from tidegate.sources.registry import Connections, open_sources
from tidegate.staging.birth import new_birth, read_birth, replace_birth, write_birth
from tidegate.staging.checkpoint import files_between, log_entry, read_offsets, read_start
from tidegate.staging.seal import Seal, set_seal
from tidegate.transform.load import check_transform

_ACCEPTED_AT_MOST = 3
_NAMED_AT_MOST = 100


def drain_sources(context: RunContext, submit: Callable[[SubmitPlan], int], accept_loss: str | None) -> None:
    """Bring what is new into staging; ``context.facts`` are those afterwards. Starts no JVM when nothing is new.

    Raises SourceLostError when records are gone (``accept_loss``, a reason, goes on without them and puts it on
    record).
    """
    if context.spec.file_streams:
        with open_ledger(context.paths, lease=context.lease) as ledger:
            order = _prepare(context, ledger, accept_loss)
    else:
        order = _prepare(context, None, accept_loss)
    if order is not None:
        before = describe_definition(context.project, context.spec, context.paths)
        run_driver(context, *order, submit)
        now = describe_definition(context.project, context.spec, context.paths)  # columns may be inferred by now
        # What is edited while the driver is at work, nobody has read with.
        read_with = {**now, "rule": before["rule"], "query": before["query"]}
        note_definition(context.paths, read_with, context.report.run_id)


def _prepare(context: RunContext, ledger: Ledger | None, accept_loss: str | None) -> tuple[IngestOrder, Load] | None:
    """What to order from Spark and how much that is, or None when there is nothing to read."""
    assert context.facts is not None
    project, spec, paths, facts = context.project, context.spec, context.paths, context.facts
    held = Connections(listeners=context.listeners, ledger=ledger)
    set_seal(paths, facts.checkpoint, facts.files, facts.seal)  # they agree, or the run would have ended
    _receive(context, held)
    if ledger is not None:
        for note in finish_clearing(project, ledger, spec, context.lease.check):
            context.report.add_note(note)
    lost, planned = _restore_links(context, ledger) if ledger is not None else ({}, {})
    pending = find_pending(project, paths, spec, facts, held)
    if ledger is not None and _begin_sources(context, ledger, pending):
        pending = find_pending(project, paths, spec, facts, held)
    for name, rows in planned.items():
        _set_aside_vanished(context, name, rows)
    for _ in range(_ACCEPTED_AT_MOST):  # more may be lost, or the batch in flight be staged, while it is accepted
        if not accept_losses(context, pending, accept_loss):
            break
        paths, facts = context.paths, context.facts
        pending = find_pending(project, paths, spec, facts, held)
    _report_pending(context, pending, lost)
    if ledger is not None:
        _note_scans(context, ledger, pending)
    _record_birth(context, pending)
    if facts.checkpoint.in_flight is None and (
        make_up_closing(context, pending, facts) or close_idle(context, pending, facts)
    ):
        facts = context.facts = gather_facts(paths, spec)
        set_seal(paths, facts.checkpoint, facts.files, facts.seal)
    if not pending.has_new and facts.in_flight is None:
        return None
    check_transform(project, spec)  # a driver would find it too, after seconds and in Python's words
    if ledger is not None:
        renew_long_checkpoint(context, pending)
        paths, facts = context.paths, context.facts
        assert facts is not None
        _admit(context, ledger, pending)
    sweep_attempts(paths, facts, context.lease)
    _forget_returned(context, facts)
    statics = pin_statics(project, paths, spec, facts.checkpoint, context.lease)
    _report_statics(context, statics)
    return _make_order(context, ledger, pending, statics), Load(pending.bytes, pending.files)


def _report_pending(context: RunContext, pending: Pending, lost: Mapping[str, list[str]]) -> None:
    """Put what each source has, and the files of it that are gone, into the report."""
    for name, summary in pending.summaries.items():
        _note_before_start(context, name, summary)
        if name in lost:
            summary["lost"] = lost[name]
        context.report.sources[name] = join_named(context.report.sources.get(name, {}), {"rows": 0, **summary})


def _note_scans(context: RunContext, ledger: Ledger, pending: Pending) -> None:
    """Note in the ledger what the look at the folders has found, after it is in a report. Raises SourceLostError when
    a file has changed whose source is to fail then."""
    if context.report.notes or any(scan.changed or scan.vanished for scan in pending.scans.values()):
        context.save()  # named in a report before they count as reported
    told = [name for name, scan in pending.scans.items() if scan.began is not None and not scan.began.told]
    if told:
        ledger.note_start_told(told)
    for name, scan in pending.scans.items():
        note_scan(ledger, name, scan)
    refused = changed_error(context.spec, context.paths, list_changed(ledger, pending.scans))
    if refused is not None:
        raise refused


def _report_statics(context: RunContext, statics: Mapping[str, Pinned]) -> None:
    """Put the version of each static source that this run reads into the report."""
    for name, version in statics.items():
        told: SourceReport = {"static": version["version"]}
        if "links" in version:
            told["files"] = len(version["links"])
        else:
            told["offsets"] = version["offsets"]
        context.report.sources[name] = told


def _begin_sources(context: RunContext, ledger: Ledger, pending: Pending) -> bool:
    """Where this is the first look at a source, what is there before its ``start`` counts as taken from now on, also
    when this process ends here. Returns whether anything does."""
    has_passed_over = False
    for name, scan in pending.scans.items():
        has_passed_over |= note_first_look(ledger, name, context.spec.file_streams[name], scan)
    return has_passed_over


def _note_before_start(context: RunContext, name: str, summary: SourceReport) -> None:
    if "paths" in summary.get("before_start", {}):
        note = describe_start(name, summary["before_start"])
        context.report.add_note(note)


def _restore_links(context: RunContext, ledger: Ledger) -> tuple[dict[str, list[str]], dict[str, list[LedgerRow]]]:
    """Make sure that all pending files are in the intake. By source: the files that are gone, and which of them a batch
    in flight was to read."""
    lost: dict[str, list[str]] = {}
    planned: dict[str, list[LedgerRow]] = {}
    for name, source in context.spec.file_streams.items():
        restored = restore_links(context.project, context.paths, name, source, ledger)
        if restored.changed:
            note = f"source {name}: changed since they were taken, and read as they are now: "
            note += ", ".join(shown_path(path) for path in restored.changed[:_NAMED_AT_MOST])
            context.report.add_note(note)
        if restored.lost:
            lost[name] = [shown_path(path) for path in restored.lost]
            now: SourceReport = {"rows": 0, "lost": lost[name]}
            context.report.sources[name] = join_named(context.report.sources.get(name, {}), now)
            context.save()  # named in a report before the ledger forgets them
            planned[name] = _rows_in_flight(context, name, ledger.known(name, restored.lost).values())
            kept = {row.path for row in planned[name]}
            ledger.drop_linked(name, [path for path in restored.lost if path not in kept])
    return lost, planned


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


def _make_order(
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
        links=_owed_links(ledger, spec.file_streams) if ledger is not None else {},
        partition_columns={name: one.partition_columns for name, one in pending.arrivals.items()},
        pending={name: {"offsets": one.offsets} for name, one in pending.arrivals.items()},
        statics=statics,
        table_schema_json=facts.table.schema_json if facts.table is not None else None,
        table_partition_by=facts.table.partition_columns if facts.table is not None else None,
        settled={query: facts.settled_up_to(query) for query in {facts.query_id or "", *facts.manifests} - {""}},
    )


def _receive(context: RunContext, held: Connections) -> None:
    """Bring what comes only to a run that listens into files, which are read like any others."""
    if context.listeners is not None:
        context.listeners.keep_only(context.spec.streams.keys())
    for source in open_sources(context.project, context.paths, context.spec, held).values():
        if source.listens:
            context.lease.check()
            for note in source.receive():
                context.report.add_note(note)


def _forget_returned(context: RunContext, facts: Facts) -> None:
    """Take away Spark's list of files of a source that the spec had left out so long that no offset of it is kept any
    more: Spark would read all of that list again. The ledger knows them."""
    checkpoint = facts.checkpoint
    if checkpoint.last_offset is None or checkpoint.in_flight is not None:
        return
    for name in context.spec.file_streams:
        if read_start(context.paths.checkpoint, checkpoint.last_offset + 1, name) is None:
            context.lease.check()
            kept = {path: one for path, one in facts.files.digests.items() if not path.startswith(f"sources/{name}/")}
            unsealed = replace(facts.files, digests=kept)  # first: new files will have the names of these
            set_seal(context.paths, checkpoint, unsealed, Seal(moved=facts.seal.moved))
            storage.remove_tree(context.paths.checkpoint / "sources" / name)


def _rows_in_flight(context: RunContext, source_name: str, rows: Iterable[LedgerRow]) -> list[LedgerRow]:
    """Those of ``rows`` that the batch in flight will read: the checkpoint holds on to them."""
    facts, paths = context.facts, context.paths
    if facts is None or facts.in_flight is None:
        return []
    start = log_entry(read_start(paths.checkpoint, facts.in_flight, source_name))
    end = log_entry(read_offsets(paths.checkpoint, facts.in_flight).get(source_name))
    taken = files_between(paths.checkpoint, source_name, start, end)
    names = {path.rsplit("/", 1)[-1] for path in taken}
    return [row for row in rows if row.link.rsplit("/", 1)[-1] in names]


def _set_aside_vanished(context: RunContext, source_name: str, rows: Iterable[LedgerRow]) -> None:
    source = context.spec.file_streams[source_name]
    for row in rows:
        original: LinkedFile = {"path": row.path, "size": row.size, "mtime_ns": row.mtime_ns}
        link = context.paths.intake(source_name) / row.link
        context.lease.check()
        set_aside_vanished(context.paths.unreadable, link, row.link, source, original)


def _owed_links(ledger: Ledger, sources: Iterable[str]) -> dict[str, dict[str, LinkedFile]]:
    return {name: {row.link: row.linked_file for row in ledger.rows(name, state="linked")} for name in sources}


def _record_birth(context: RunContext, pending: Pending) -> None:
    """Write the birth of a first run, also when nothing is new (`latest` means now, not the first run with data);
    afterwards add the topics and partitions that have appeared."""
    birth = read_birth(context.paths)
    if birth is None:
        starts = {name: arrival.start for name, arrival in pending.arrivals.items()}
        if pending.has_new or any(starts.values()):
            settings = settings_at_birth(context.project, context.spec)
            write_birth(context.paths, new_birth(context.paths, context.spec, starts, settings))
        return
    grown = {name: arrival.grown_start for name, arrival in pending.arrivals.items()}
    assert context.facts is not None
    is_begun = context.facts.checkpoint.last_commit is not None
    now = replace(
        birth,
        settings=birth.settings if is_begun else settings_at_birth(context.project, context.spec),
        sources={**birth.sources, **left_behind(context, birth), **grown},
        fingerprint=context.facts.fingerprint,
    )
    if now != birth:
        replace_birth(context.paths, now)
