"""Ingest, seen from outside Spark: what is new, whether something was lost, and one spark-submit when there is work.

Batches without data, which close open windows, are planned here too. The module :mod:`tidegate.runs.order` is imported
only when there is work: a run that finds nothing new takes less time than that import.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from tidegate.runs.preflight.facts import Facts
from tidegate.runs.preflight.gather import Pending, find_pending, gather_facts, seal_checkpoint
from tidegate.runs.recovery.context import RunContext
from tidegate.runs.reports.report import join_named
from tidegate.runs.restart.new_query import accept_losses, left_behind, renew_checkpoint, settings_at_birth
from tidegate.sources.files.consumed import finish_clearing
from tidegate.sources.files.findings import (
    changed_error,
    describe_late,
    describe_start,
    list_changed,
    note_first_look,
    note_scan,
)
from tidegate.sources.files.former import find_former_lists, take_over_lists
from tidegate.sources.files.intake import restore_links
from tidegate.sources.files.ledger import Ledger, LedgerRow, LinkedFile, open_ledger, shown_path
from tidegate.sources.files.unreadable import quarantine_vanished
from tidegate.sources.registry import Connections, open_streams
from tidegate.spec.models import CloseWhen
from tidegate.state.batch_files import Given, read_given
from tidegate.state.birth import Birth, new_birth, read_birth, replace_birth, write_birth
from tidegate.state.checkpoint import plan_closing_batch, read_watermark
from tidegate.state.open_state import closing_watermark, read_open_state

if TYPE_CHECKING:
    from tidegate.core.outputs import SourceReport
    from tidegate.runs.order import Ordered
    from tidegate.runs.recovery.context import Submit

_ACCEPTED_AT_MOST = 3
_NAMED_AT_MOST = 100


def drain_sources(context: RunContext, submit: Submit, accept_loss: str | None) -> None:
    """Bring what is new into staging; ``context.facts`` are those afterwards. Starts no JVM when nothing is new.

    Raises SourceLostError when records are gone (``accept_loss``, a reason, continues without them and puts it on
    record).
    """
    if context.spec.file_streams:
        with open_ledger(context.paths, lease=context.lease) as ledger:
            order = _prepare(context, ledger, accept_loss)
    else:
        order = _prepare(context, None, accept_loss)
    if order is not None:
        order.drive(context, submit)


def _prepare(context: RunContext, ledger: Ledger | None, accept_loss: str | None) -> Ordered | None:
    """What to order from Spark, or None when there is nothing to read."""
    assert context.facts is not None
    project, spec, paths, facts = context.project, context.spec, context.paths, context.facts
    held = Connections(listeners=context.listeners, ledger=ledger)
    seal_checkpoint(paths, facts)
    facts = _take_over(context, facts)
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
    while pending.has_new and renew_checkpoint(context, pending):
        paths, facts = context.paths, context.facts
        pending = find_pending(project, paths, spec, facts, held)
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
        seal_checkpoint(paths, facts)
    if not pending.has_new and facts.in_flight is None:
        return None
    from tidegate.runs.order import make_order

    return make_order(context, ledger, pending, held)


def _take_over(context: RunContext, facts: Facts) -> Facts:
    """The facts read again after a checkpoint of version 0.1.0 was converted; ``facts`` where there is none."""
    paths, birth = context.paths, facts.birth
    if birth is None or not facts.checkpoint.exists or facts.unusable is not None:
        return facts
    lists = {
        name: spec for name, spec in context.spec.file_streams.items() if find_former_lists(paths.checkpoint, name)
    }
    if lists:
        take_over_lists(paths, facts.checkpoint, facts.files, lists, context.lease.check)
        facts = gather_facts(paths, context.spec)
    has_taken_offsets = _take_over_offsets(context, facts, birth)
    if lists or has_taken_offsets:
        context.report.add_note("the checkpoint of version 0.1.0 was taken over: what it reads is in batch files now")
        context.facts = facts = gather_facts(paths, context.spec)
    return facts


def _take_over_offsets(context: RunContext, facts: Facts, birth: Birth) -> bool:
    """Whether there were offsets of topics in the checkpoint."""
    starts = {name: start for name, start in birth.sources.items() if "offsets" in start}
    if not starts:
        return False
    from tidegate.sources.kafka.former import has_offsets, take_over_former  # Kafka's packages take their time

    if not any(has_offsets(context.paths.checkpoint, name) for name in starts):
        return False
    take_over_former(context.paths, facts.checkpoint, facts.files, starts, context.lease.check)
    replace_birth(context.paths, replace(birth, state_folder=context.paths.state_name))
    return True


def _report_pending(context: RunContext, pending: Pending, lost: Mapping[str, list[str]]) -> None:
    """Put what each source has, and the files of it that are gone, into the report."""
    for name, scan in pending.scans.items():
        for note in scan.notes:
            context.report.add_note(note)
        if scan.late:
            context.report.add_note(describe_late(name, context.spec.file_streams[name], scan.late))
    for name, summary in pending.summaries.items():
        if "paths" in summary.get("before_start", {}):
            context.report.add_note(describe_start(name, summary["before_start"]))
        if name in lost:
            summary["lost"] = lost[name]
        context.report.sources[name] = join_named(context.report.sources.get(name, {}), {"rows": 0, **summary})


def _note_scans(context: RunContext, ledger: Ledger, pending: Pending) -> None:
    """Note in the ledger what the look at the folders has found, after it is in a report. Raises SourceLostError when
    a file has changed whose source is to fail then."""
    if context.report.notes or any(scan.changed or scan.vanished for scan in pending.scans.values()):
        context.save()  # named in a report before they count as reported
    reported = [name for name, scan in pending.scans.items() if scan.began is not None and not scan.began.reported]
    if reported:
        ledger.note_start_reported(reported)
    for name, scan in pending.scans.items():
        note_scan(ledger, name, scan)
    refused = changed_error(context.spec, context.paths, list_changed(ledger, pending.scans))
    if refused is not None:
        raise refused


def _begin_sources(context: RunContext, ledger: Ledger, pending: Pending) -> bool:
    """Where this is the first look at a source, what is there before its ``start`` counts as taken from now on, also
    when this process ends here. Returns whether anything does."""
    has_passed_over = False
    for name, scan in pending.scans.items():
        has_passed_over |= note_first_look(ledger, name, context.spec.file_streams[name], scan)
    return has_passed_over


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


def _receive(context: RunContext, held: Connections) -> None:
    """Bring what comes only to a run that listens into files, which are read like any others."""
    if context.listeners is not None:
        context.listeners.keep_only(context.spec.streams.keys())
    for stream in open_streams(context.project, context.paths, context.spec, held).values():
        if stream.listens:
            context.lease.check()
            for note in stream.receive():
                context.report.add_note(note)


def _rows_in_flight(context: RunContext, source_name: str, rows: Iterable[LedgerRow]) -> list[LedgerRow]:
    """Those of ``rows`` that the batch in flight will read: the checkpoint holds on to them."""
    facts = context.facts
    if facts is None or facts.in_flight is None:
        return []
    taken = set(read_given(context.paths.checkpoint, facts.in_flight).get(source_name, Given()).links)
    return [row for row in rows if row.link in taken]


def _set_aside_vanished(context: RunContext, source_name: str, rows: Iterable[LedgerRow]) -> None:
    source = context.spec.file_streams[source_name]
    for row in rows:
        original: LinkedFile = {"path": row.path, "size": row.size, "mtime_ns": row.mtime_ns}
        link = context.paths.intake(source_name) / row.link
        context.lease.check()
        quarantine_vanished(context.paths.unreadable, link, row.link, source, original)


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


def make_up_closing(context: RunContext, pending: Pending, facts: Facts) -> bool:
    """Plan the batch that closes what the last batch with data has passed, when the driver was killed before it was
    planned: Spark never makes it up, and judges later records by the watermark from before."""
    note = read_open_state(context.paths, facts.query_id)
    if note is None or note.rows == 0 or note.drained_batch == facts.checkpoint.last_commit:
        return False
    # What is new belongs to the run that was killed; it closes at its end.
    at_end = context.spec.close_windows == "at_end" and not pending.has_new
    watermark_ms = closing_watermark(note, context.spec.watermarks, context.spec.watermark_policy, everything=at_end)
    context.lease.check()
    watermark_ms = max(watermark_ms, read_watermark(context.paths.checkpoint))
    return plan_closing_batch(context.paths.checkpoint, watermark_ms) is not None


def close_idle(context: RunContext, pending: Pending, facts: Facts) -> bool:
    """Plan a batch that closes what is open, when nothing has come for as long as ``close_windows`` says.

    The watermark moves as if event time had advanced while nothing came: to the greatest one plus that time.
    """
    policy = context.spec.close_windows
    note = read_open_state(context.paths, facts.query_id)
    comes = pending.has_new or pending.comes_later
    if comes or not isinstance(policy, CloseWhen) or note is None or note.rows == 0 or not note.event_times:
        return False
    if time.time() * 1000 - note.last_data_at_ms < policy.when * 1000:
        return False
    watermark_ms = max(note.open_until_ms or 0, max(note.event_times.values()) + round(policy.when * 1000))
    if watermark_ms <= read_watermark(context.paths.checkpoint):
        return False
    context.lease.check()
    return plan_closing_batch(context.paths.checkpoint, watermark_ms) is not None
