"""Choose the quarantined records of a replay, find where they came from, and why others cannot be replayed exactly."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field

from tidegate.core import storage
from tidegate.core.paths import PipelinePaths
from tidegate.core.words import count_of, list_first
from tidegate.quality.suite import load_suite
from tidegate.rework import errors
from tidegate.rework.backfill.lineage import Increment, Lineage, read_lineage
from tidegate.runs.preflight.facts import Facts, query_keeps_state
from tidegate.runs.reports.report import list_reports
from tidegate.sources.bounds import TOO_LARGE
from tidegate.sources.files.ledger import Ledger, open_ledger, shown_path
from tidegate.spec.as_read import why_no_text
from tidegate.spec.models import PipelineSpec
from tidegate.spec.project import Project
from tidegate.table.log.state import list_data_files
from tidegate.table.publish.origins import Batch, read_origins
from tidegate.table.quarantine.filters import WITHOUT_RULE, QuarantineFilter, unknown_name, unknown_value
from tidegate.table.quarantine.read import Found, known_reasons, walk_quarantine
from tidegate.table.quarantined import QuarantineRow

_NO_TEXT = "they have no text: a whole file in quarantine, or an empty value"
_RUNS_LOOKED_AT = 100
_UNKNOWN_FILE = "their file is not in the ledger, so the values of its partition folders are unknown"
Take = Callable[[str, str, str, str | None], None]
"""Receives one text: (source, folder ``k=v/...`` or "", text, position)."""


def why_not(row: QuarantineRow, spec: PipelineSpec, edited: str | None) -> str | None:
    """Explain why a record cannot be replayed, in words that follow a count; None when it can. ``edited`` is the text
    that a person gave it."""
    source = row["source"]
    if row["reason"] == "late":
        return "they came late: their window or join is closed"
    if source is None:
        return "their records are unknown, because the transform does not keep them"
    stream = spec.record_streams.get(str(source))
    if stream is None:
        return f"the pipeline has no source {source} any more"
    if row["raw"] is None and (edited is None or stream.takes_files):
        return _NO_TEXT
    return why_no_text(stream, edited) or _why_other_text(row, edited)


def _why_other_text(row: QuarantineRow, edited: str | None) -> str | None:
    """Explain why ``raw`` is not the record as it came; None where it is."""
    detail = str(row["detail"] or "") if row["reason"] == "malformed" and edited is None else ""
    if detail.startswith("not valid ") and not detail.startswith("not valid JSON"):
        return "their bytes are not a text, and quarantine has them in base64: give the text with --file"
    if TOO_LARGE in detail:
        return "they are too large, and quarantine has only their beginning"
    return None


def why_not_batches(row: QuarantineRow, found: Sequence[Increment | None], *, is_unpublished: bool) -> str | None:
    """Explain why the batches of a record prevent its replay; None when they do not.

    ``found`` are the publishes of the batches, None for an unknown one; ``is_unpublished``: one of them is not
    published yet."""
    if is_unpublished:
        return "their run is not over: it is held or still running"
    known = [one for one in found if one is not None]
    if not known or len(known) < len(found):
        return "the table's log does not contain their run"
    if row["reason"] in WITHOUT_RULE:
        return None
    if any(one.rows.get("transformed", 1) > one.rows.get("entered", 0) for one in known):
        return "a rule rejected one row of several, and the other rows of their records are in the table"
    return None


@dataclass(frozen=True)
class Selection:
    """The records to replay: those that match ``wanted``, or the keys of ``edits``, {id: text}."""

    wanted: QuarantineFilter = field(default_factory=QuarantineFilter)
    edits: Mapping[str, str] | None = None


@dataclass
class Choice:
    """The records that can be replayed: how many by source; ``taken``, {file of the quarantine table: row numbers};
    ``batches``, which they may be of; ``refused``, {reason: how many} that stay."""

    sources: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    taken: dict[str, list[int]] = field(default_factory=dict)
    origins: dict[str, frozenset[Batch]] = field(default_factory=dict)
    refused: Counter[str] = field(default_factory=Counter)
    edited: int = 0

    @property
    def records(self) -> int:
        """The number of records."""
        return sum(self.sources.values())

    @property
    def batches(self) -> frozenset[Batch]:
        """The batches that they may be of."""
        return frozenset().union(*(self.origins[file] for file in self.taken))

    @property
    def has_rejected(self) -> bool:
        """Return whether a rule rejected any of them."""
        return any(reason not in WITHOUT_RULE for reason in self.reasons)

    def describe_refused(self) -> list[str]:
        """Return one sentence for each reason why records stay in quarantine."""
        return [f"{count_of(count, 'record')} stay in quarantine: {why}" for why, count in self.refused.most_common()]


def check_pipeline(facts: Facts, spec: PipelineSpec) -> None:
    """Raise UsageError REPLAY_NOT_APPEND where the rows of a record cannot be added without other records."""
    if spec.output_mode != "append":
        why = f"with output_mode {spec.output_mode} its rows replace one another, and newer ones may be in the table"
    elif query_keeps_state(facts, spec):
        why = "the query keeps state, which has continued without it"
    else:
        return
    raise errors.REPLAY_NOT_APPEND(where=f"pipeline {spec.name}", why=why, name=spec.name)


def choose(
    project: Project, paths: PipelinePaths, spec: PipelineSpec, facts: Facts, selection: Selection, take: Take
) -> Choice:
    """Pass the selected records that can be replayed to ``take``. Holds some hundreds of them at a time, and all row
    numbers.

    Raises UsageError REPLAY_FILE for edited records that are not in quarantine, QUARANTINE_UNKNOWN.
    """
    edits, choice = selection.edits, Choice()
    left = None if edits is None else set(edits)
    table = facts.table
    lineage = read_lineage(paths.table, table.version) if table is not None else Lineage([], [])
    with open_ledger(paths, read_only=True) if spec.file_streams else nullcontext() as ledger:
        origins = _Origins(paths, spec, facts, lineage, ledger)
        for found in walk_quarantine(paths.quarantine, selection.wanted):
            if left is not None and found.id not in left:
                continue
            if left is not None:
                left.discard(found.id)
            origins.take(found, choice, None if edits is None else edits[found.id], take)
    if left:
        ids = list_first(sorted(left))
        fault = f"{count_of(len(left), 'id')} in the file are not in quarantine: {ids}"
        raise errors.REPLAY_FILE(where=f"pipeline {spec.name}", fault=fault)
    if not choice.records and not choice.refused:
        check_names(project, paths, spec.name, selection.wanted)
        check_run(paths, spec.name, selection.wanted)
    return choice


def check_names(project: Project, paths: PipelinePaths, name: str, wanted: QuarantineFilter) -> None:
    """For a filter without matches: raise UsageError QUARANTINE_UNKNOWN where its reason or rule does not exist."""
    if not (wanted.reason or wanted.rule):
        return
    suite = load_suite(project, name)
    reasons, rules = known_reasons(paths.quarantine)
    rules |= {rule.rule for rule in suite.rules} if suite is not None else set()
    if (error := unknown_name(wanted, reasons, rules, name)) is not None:
        raise error


def check_run(paths: PipelinePaths, name: str, wanted: QuarantineFilter) -> None:
    """For a filter without matches: raise UsageError QUARANTINE_UNKNOWN where its run does not exist."""
    given = wanted.run_id
    if given is None or storage.exists(paths.report(given)) or storage.exists(paths.exchange(given)):
        return
    if next(walk_quarantine(paths.quarantine, QuarantineFilter(run_id=given)), None) is not None:
        return
    raise unknown_value(name, "run id", given, {one.run_id for one in list_reports(paths, _RUNS_LOOKED_AT)})


class _Origins:
    """The origins of quarantined records: their batches, and the folders of their files."""

    def __init__(
        self, paths: PipelinePaths, spec: PipelineSpec, facts: Facts, lineage: Lineage, ledger: Ledger | None
    ) -> None:
        self._spec, self._ledger = spec, ledger
        self._by_batch: dict[Batch, Increment] = lineage.by_batch
        self._unpublished = {(one.query_id[:8], one.batch_id) for one in facts.unpublished}
        files = [file.path for file in list_data_files(paths.quarantine)] if facts.table is not None else []
        self._origins = read_origins(paths.quarantine, files)
        self._folders: dict[tuple[str, str], str | None] = {}

    def take(self, found: Found, choice: Choice, edited: str | None, take: Take) -> None:
        """Pass one record to ``take``, or count it as refused."""
        row, of = found.row, self._origins.get(found.file, frozenset())
        why = why_not(row, self._spec, edited) or why_not_batches(
            row, [self._by_batch.get(batch) for batch in of], is_unpublished=not self._unpublished.isdisjoint(of)
        )
        folder = self._folder_of(row) if why is None else ""
        if folder is None:
            why = _UNKNOWN_FILE
        if why is not None:
            choice.refused[why] += 1
            return
        text = row["raw"] if edited is None else edited
        assert text is not None, "a record without a text is refused"
        take(str(row["source"]), str(folder), text, row["position"])
        choice.sources[str(row["source"])] += 1
        choice.reasons[str(row["reason"])] += 1
        choice.taken.setdefault(found.file, []).append(found.number)
        choice.origins[found.file] = of
        choice.edited += edited is not None

    def _folder_of(self, row: QuarantineRow) -> str | None:
        """The ``k=v`` folders of the record's file, "" if it has none; None where the file is unknown."""
        source = self._spec.streams[str(row["source"])]
        if not source.takes_files or self._ledger is None:
            return ""
        try:
            path = shown_path(str(json.loads(row["position"] or "")["file"]))
        except (TypeError, ValueError, KeyError):
            return None
        key = (str(row["source"]), path)
        if key not in self._folders:
            known = self._ledger.known(key[0], [path]).get(path)
            self._folders[key] = None if known is None else os.path.dirname(known.link)
        return self._folders[key]
