"""A pipeline on a real folder, the truth about what was offered to it, and what must hold at every moment.

All that runs is the program's own: ``run``, ``repair``, ``release``, ``discard`` and ``reread`` as the command line
calls them. Stood in for are Spark (:mod:`tests.model.fake_spark`), the brokers, Great Expectations (a plain rule over
the staged rows) and time (a process that does not run has been silent for long enough that its lease is taken over).
"""

from __future__ import annotations

import json
import os
import re
import shlex
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal
from urllib.parse import unquote

import pytest

from tests.model.clock import Clock
from tests.model.fake_kafka import FakeKafka, Row
from tests.model.fake_spark import Driver, day_of
from tests.model.foreign import Foreign
from tests.model.processes import Process, Stop, patch_storage
from tests.model.readers import (
    WHOLE_FILE,
    by_name,
    by_version,
    id_of,
    kept,
    list_reported,
    list_strange,
    newest_version,
    published_at,
    read_actions,
    read_delta,
    read_log,
    read_plain,
    read_rows,
    read_version,
)
from tests.model.unsynced import Cut, Disk
from tidegate.core import storage
from tidegate.core.errors import (
    DefectError,
    DisagreementError,
    HeldError,
    SourceLostError,
    TidegateError,
    TryAgainError,
)
from tidegate.core.paths import PipelinePaths
from tidegate.quality.engine import RuleResult
from tidegate.rework.backfill import command as backfilling
from tidegate.rework.backfill.choose import Scope
from tidegate.rework.backfill.command import backfill_table, refresh_table
from tidegate.rework.backfill.held import decide_backfill, list_held
from tidegate.rework.backfill.intervals import choose_days
from tidegate.rework.backfill.span import Interval, Wanted
from tidegate.rework.maintain.command import maintain_pipeline
from tidegate.rework.maintain.compact import WORK
from tidegate.rework.replay.choose import Selection
from tidegate.rework.replay.command import replay_records
from tidegate.runs import decide, gate_steps, steps
from tidegate.runs import order as drive
from tidegate.runs.gate import increment
from tidegate.runs.reports.report import FINAL_OUTCOMES, load_report
from tidegate.runs.reports.verdicts import WAITED, Answer, Ruling, list_waiting_undecided
from tidegate.runs.restart.recorded import Then
from tidegate.runs.restart.repair import repair_pipeline, reset_pipeline
from tidegate.runs.rollback import roll_back
from tidegate.spark.driver.submit import SubmitPlan
from tidegate.spec.models import MaintenanceSpec, PipelineSpec
from tidegate.spec.pipeline import load_pipeline
from tidegate.spec.project import Project, load_project
from tidegate.state.lease import Lease
from tidegate.table.quarantine.read import walk_quarantine

__all__ = [
    "NAME",
    "WHOLE_FILE",
    "Make",
    "NoThread",
    "Shape",
    "World",
    "newest_version",
    "read_delta",
    "read_log",
    "read_plain",
    "read_version",
]

NAME = "orders"
Shape = Literal["kafka", "files"]
_SOURCES = {
    "kafka": "  orders: {type: kafka, topics: [t], format: json, schema: 'id STRING, kind STRING, day STRING'}\n",
    "files": "  orders: {type: files, path: data/inbox, format: csv, schema: 'id STRING, kind STRING, day STRING'}\n",
}
_SUITE = f"""name: {NAME}
expectations:
  - type: expect_column_values_to_be_in_set
    kwargs: {{column: kind, value_set: [good], mostly: 0.5}}
    severity: critical
    meta: {{rule: mostly_good}}
"""
_BESIDE = ("backfill", "refresh", "replay", "maintain", "rollback")
"""Commands that work beside the runs: what the gate holds of them holds no run."""
_HIDES = ("run", "steps", "maintain")
"""Commands behind which plain readers no longer see what another engine replaced."""
_DONE = ("published",)
_BRINGS_BACK = ("backfill", "refresh")
_REPLAY_REFUSALS = ("REPLAY_REFUSED", "REPLAY_HELD")
_COMMAND = re.compile(r"tidegate (?:run|repair|release|discard|reread)\b[^`;]*?(?=   or|[`;]|$)")
_REMEDIES_AT_MOST = 8
_HOUR = 3600


@dataclass(frozen=True)
class Judged:
    """An increment as the gate saw it."""

    ids: frozenset[str]
    passed: bool


@dataclass
class World:
    """One pipeline. ``at_end`` says what a person decides about an increment that is held when all is to be settled."""

    root: Path
    shape: Shape
    patch: pytest.MonkeyPatch
    batch_size: int = 1000
    on_critical: Literal["hold", "continue"] = "hold"
    day_by_day: bool = False
    """Whether a backfill takes each day as an interval of its own; else what is read from the same files is one."""
    sinks: str = ""
    """What the spec has of further sinks."""
    kafka: FakeKafka = field(default_factory=FakeKafka)
    files: int = 0
    broken: int | None = None
    """The number of the one file that goes to quarantine whole, as long as it is not readable."""
    is_readable: bool = False
    runs: int = 0
    offered: dict[str, str] = field(default_factory=dict)
    """Kind of each record by its id."""
    judged: dict[str, Judged] = field(default_factory=dict)
    holds: dict[str, frozenset[str]] = field(default_factory=dict)
    """Ids of each increment that was held and not yet decided on, by its run."""
    decided: set[str] = field(default_factory=set)
    passed: set[str] = field(default_factory=set)
    released: set[str] = field(default_factory=set)
    discarded: set[str] = field(default_factory=set)
    left_out: set[str] = field(default_factory=set)
    """What a rollback took out of the table, and no run reads again."""
    mended: set[str] = field(default_factory=set)
    """Malformed records that the schema, corrected since, fits."""
    edited: set[str] = field(default_factory=set)
    """Malformed records that a person has written anew for a replay."""
    expired: set[str] = field(default_factory=set)
    """What retention took out of the table."""
    maintenance: MaintenanceSpec | None = None
    """What the spec says of it by now."""
    discarded_at: dict[str, int] = field(default_factory=dict)
    """The version that left a discarded record out."""
    clock: Clock = field(default_factory=Clock)
    is_clock_wrong: bool = False
    """Whether a maintenance is at work that must remove nothing for its age."""
    noted: list[float] = field(default_factory=list)
    """When the versions of the table were made, by the clock of then."""
    published: dict[str, int] = field(default_factory=dict)
    """The last version in which a run published a record, for commits that another engine cleans away."""
    sleepers: list[Process] = field(default_factory=list)
    _slept_since: dict[int, int] = field(default_factory=dict)
    _began: dict[int, int] = field(default_factory=dict)
    """How many things another engine had done when a process began."""
    log: list[str] = field(default_factory=list)
    finished: dict[str, Any] = field(default_factory=dict)
    """The report of each run that is over."""
    clean_runs: int = 0
    disturbed: set[str] = field(default_factory=set)
    """Names of processes in whose sleep the checkpoint was changed from outside."""
    is_cut: bool = False
    """Whether another engine has cut the table's log where it is needed, so that only a copy of it helps."""
    disagrees: bool = False
    """Whether something was refused, or changed from outside, since the last run that went well."""
    reads: int = 0
    drivers: int = 0
    calls: int = 0

    def __post_init__(self) -> None:
        (self.root / "jobs" / NAME).mkdir(parents=True)
        (self.root / "expectations").mkdir()
        (self.root / "data" / "inbox").mkdir(parents=True)
        (self.root / "tidegate.yaml").write_text("version: 1\n")
        (self.root / "jobs" / NAME / "pipeline.yaml").write_text(
            f"version: 1\nname: {NAME}\nschedule: null\ntable: {{partition_by: [day]}}\n"
            f"quality: {{on_critical: {self.on_critical}}}\nsources:\n{_SOURCES[self.shape]}{self.sinks}"
        )
        (self.root / "expectations" / f"{NAME}.yaml").write_text(_SUITE)
        by_name.clear()
        by_version.clear()
        self._patch_all()

    def _patch_all(self) -> None:
        spec = self.spec
        self.patch.setattr("tidegate.runs.opening.load_pipeline", lambda project, name: self._spec_now())
        self.patch.setattr("tidegate.runs.restart.repair.load_pipeline", lambda project, name: spec)
        # Where it is used, not where it is defined: a module imported meanwhile would keep the stand-in for good.
        self.patch.setattr("tidegate.sources.kafka.offsets.Brokers", self.kafka.open_brokers)
        self.patch.setattr("tidegate.spark.ingest.stage.read_observed_metrics", lambda query: query.metrics)
        self.patch.setattr("tidegate.spark.ingest.stage.emit", lambda event, **values: None)
        self.patch.setattr(drive, "plan_submit", lambda project, **plan: SubmitPlan("", [str(plan["order_path"])], {}))
        self.patch.setattr(increment, "_judge", self._judge)
        self.patch.setattr(backfilling, "choose_days", self._choose_days)
        # Whoever asks for the lease finds its holder dead or silent for long: only one process runs at a time.
        self.patch.setattr("tidegate.state.lease.threading", SimpleNamespace(**{**vars(threading), "Thread": NoThread}))
        self.patch.setattr("tidegate.state.lease.is_dead", lambda *holder: True)
        park = Lease.park
        self.patch.setattr(Lease, "park", lambda lease, seconds: park(lease, 0.0))
        self.disk.watch(self.patch)  # before the points: a process that stops behind a sync has synced
        patch_storage(self.patch, self.root, self._on_call)

    @cached_property
    def disk(self) -> Disk:
        """What of the pipeline's data would outlive a power cut."""
        return Disk(self.root / "data")

    @cached_property
    def foreign(self) -> Foreign:
        """Another engine on the table."""
        return Foreign(self.paths.table)

    @cached_property
    def project(self) -> Project:
        return load_project(self.root, {})

    @cached_property
    def spec(self) -> PipelineSpec:
        return load_pipeline(self.project, NAME)

    def _spec_now(self) -> PipelineSpec:
        source = self.spec.sources[NAME]
        if self.batch_size < 1000:
            is_kafka = self.shape == "kafka"
            key = "maxOffsetsPerTrigger" if is_kafka else "maxFilesPerTrigger"
            source.options[key] = self.batch_size * (len(self.kafka.sent) if is_kafka else 1)
        return self.spec if self.maintenance is None else self.spec.replace(maintenance=self.maintenance)

    @cached_property
    def paths(self) -> PipelinePaths:
        return self.project.paths(NAME)

    @property
    def waiting(self) -> list[str]:
        """The runs whose increments wait alone."""
        return sorted(one.run_id for one in list_waiting_undecided(self.paths))

    @property
    def held_beside(self) -> list[str]:
        """The backfills and refreshes that wait for a decision."""
        return sorted(one.run_id for one in list_held(self.paths))

    def in_quarantine(self) -> dict[str, str]:
        """{what `quarantine show` calls it: its text} of each quarantined record that has one."""
        if not (self.paths.quarantine / "_delta_log").exists():
            return {}
        found = walk_quarantine(self.paths.quarantine)
        return {one.id: one.row["raw"] for one in found if one.row["raw"] is not None}

    # -- what comes in, what goes out --

    def offer(self, partition: int, kinds: Sequence[str]) -> None:
        """New records: at the end of a partition, or in a file of their own."""
        rows: list[Row] = []
        if self.shape == "kafka":
            first = len(self.kafka.sent[partition])
            rows = [{"id": f"k{partition}-{first + n}", "kind": kind} for n, kind in enumerate(kinds)]
            self.kafka.sent[partition] += rows
        else:
            self.files += 1
            rows = [{"id": f"f{self.files}-{n}", "kind": kind} for n, kind in enumerate(kinds)]
            text = "".join(f"{row['id']},{row['kind']}\n" for row in rows)
            file = self.root / "data" / "inbox" / f"{self.files}.csv"
            file.write_text(text)
            if self.clock.ahead_ns:
                os.utime(file, ns=(time.time_ns(), time.time_ns()))
            storage.sync_file(file)
            storage.sync_folder(file.parent)
        self.offered |= {row["id"]: row["kind"] for row in rows}
        self.log.append(f"offered {', '.join(row['id'] + ' ' + row['kind'] for row in rows)}")

    def retain_from(self, partition: int, offset: int) -> None:
        """Retention takes what lies before ``offset``; before the pipeline's first look nothing of it is pending."""
        begin = min(max(offset, self.kafka.begin[partition]), len(self.kafka.sent[partition]))
        self.kafka.begin[partition] = begin
        if not self.paths.birth.exists():
            self.offered = {one: kind for one, kind in self.offered.items() if one not in self._gone()}
        self.log.append(f"retention: partition {partition} begins at {begin}")

    # -- processes --

    def new_run_id(self, ending: str = "") -> str:
        self.runs += 1
        return f"r{self.runs}{ending}"

    def run(self, run_id: str, *, accept: str | None = None, stop: Stop | None = None) -> Process:
        """``tidegate run``."""

        def command() -> Any:
            return steps.run_pipeline(self.project, NAME, run_id, submit=self._submit, accept_loss=accept)

        return self._start(f"run {run_id}{' --accept-loss' if accept else ''}", command, stop)

    def run_steps(self, run_id: str, *, stop: Stop | None = None) -> Process:
        """``tidegate ingest``, ``audit`` and ``publish``, as the tasks of a DAG call them."""

        def command() -> Any:
            report = steps.ingest_run(self.project, NAME, run_id, submit=self._submit)
            if report["outcome"] in FINAL_OUTCOMES:
                return report
            gate_steps.audit_run(self.project, NAME, run_id)
            return gate_steps.publish_run(self.project, NAME, run_id)

        return self._start(f"steps {run_id}", command, stop)

    def decide(self, decision: str, run_id: str, *, stop: Stop | None = None) -> Process:
        """``tidegate release``, ``discard`` or ``reread``."""

        def command() -> Any:
            if decision == "reread":
                return decide.reread_run(self.project, NAME, run_id, reason="seen", submit=self._submit)
            return decide.decide(self.project, NAME, run_id, Answer(decision, "seen"))

        return self._start(f"{decision} {run_id}", command, stop)

    def backfill(self, run_id: str, first: str, last: str, *, stop: Stop | None = None) -> Process:
        """``tidegate backfill``."""

        def command() -> Any:
            return backfill_table(self.project, NAME, run_id, Wanted(first, last), submit=self._submit)

        return self._start(f"backfill {run_id}", command, stop)

    def refresh(self, run_id: str, *, keeps_older: bool = False, stop: Stop | None = None) -> Process:
        """``tidegate refresh``, with ``--keep-older`` or without."""

        def command() -> Any:
            return refresh_table(self.project, NAME, run_id, keeps_older=keeps_older, submit=self._submit)

        return self._start(f"refresh {run_id}{' --keep-older' if keeps_older else ''}", command, stop)

    def decide_beside(self, decision: Ruling, run_id: str, *, stop: Stop | None = None) -> Process:
        """``tidegate release`` or ``discard`` of a backfill or a refresh that is held."""
        if decision == "release":
            held = [file for one in list_held(self.paths) if one.run_id == run_id for file in one.intent.files_to_add]
            places = [(self.paths.state / file.source, self.paths.table / file.path) for file in held]
            self.passed |= {id_of(row) for old, new in places for row in read_rows(old if old.exists() else new)}
        return self._start(
            f"backfill {run_id}: {decision}",
            lambda: decide_backfill(self.project, NAME, run_id, Answer(decision, "seen")),
            stop,
        )

    def replay(self, run_id: str, selection: Selection, *, mend: bool = False, stop: Stop | None = None) -> Process:
        """``tidegate quarantine replay``; ``mend``: the schema was corrected before, so that all records fit."""
        if mend:
            self.mended |= {one for one, kind in self.offered.items() if kind == "malformed"}
        self.edited |= {id_of({"raw": text}) for text in (selection.edits or {}).values()}

        def command() -> Any:
            return replay_records(self.project, NAME, run_id, selection, submit=self._submit)

        return self._start(f"replay {run_id}", command, stop)

    def maintain(self, run_id: str, settings: MaintenanceSpec, *, stop: Stop | None = None) -> Process:
        """``tidegate maintain``, with these settings, which hold for what comes after it too."""
        self.maintenance = settings
        before = self._kept_for_later() if settings.keep_versions else set()
        self.is_clock_wrong = self._tell_clock()
        process = self._start(f"maintain {run_id}", lambda: maintain_pipeline(self.project, NAME, run_id), stop)
        early = before - self._kept_for_later() if self.is_clock_wrong else set()
        self.is_clock_wrong = False
        assert not early, f"removed early, by a clock that is wrong: {sorted(map(str, early))[:3]}"
        return process

    def _tell_clock(self) -> bool:
        """Whether nothing may go for its age: the clock is behind the newest commit, or no commit or report is of the
        last month but, perhaps, of the last hours, with the same clock."""
        if not self.clock.is_patched:
            return False
        now = time.time()
        reports = [path.stat().st_mtime for path in self.paths.runs.glob("*")]
        return bool(self.noted) and (
            now < self.noted[-1] - _HOUR
            or (
                any(at < now - 12 * _HOUR for at in self.noted)
                and not any(now - 35 * 24 * _HOUR <= at < now - 12 * _HOUR for at in [*self.noted, *reports])
            )
        )

    def _kept_for_later(self) -> set[Path]:
        """Files of the source, and files of the table that were replaced."""
        found = set((self.root / "data" / "inbox").glob("*.csv"))
        return found | set(self.paths.table.rglob("*.replaced"))

    @staticmethod
    def age_of_first_day() -> int:
        """Seconds since the noon behind the first of the two days: of these it alone is older."""
        return int((datetime.now(UTC) - datetime(2026, 1, 2, 12, tzinfo=UTC)).total_seconds())

    def repair(self, *, stop: Stop | None = None) -> Process:
        """``tidegate repair``. What it backs up is judged again."""

        def command() -> Any:
            return repair_pipeline(self.project, NAME, dry_run=False)

        process = self._start("repair", command, stop)
        if process.state != "ended" or (process.error is None and process.value["code"] is not None):
            self.holds.clear()
        return process

    def reset(self, *, from_beginning: bool = False, stop: Stop | None = None) -> Process:
        """``tidegate reset``. What it backs up is judged again."""

        def command() -> Any:
            return reset_pipeline(self.project, NAME, from_beginning=from_beginning, dry_run=False, confirm=NAME)

        process = self._start("reset", command, stop)
        self.holds.clear()
        return process

    def rollback(self, version: int, then: Then | None, run_id: str = "", *, stop: Stop | None = None) -> Process:
        """``tidegate rollback``."""
        run_id = run_id or self.new_run_id("b")
        return self._start(
            f"rollback {run_id} to {version} {then}",
            lambda: roll_back(self.project, NAME, version, then, run_id),
            stop,
        )

    def _start(self, name: str, command: Callable[[], Any], stop: Stop | None) -> Process:
        process, reads = Process(name), self.reads
        self._began[id(process)] = self.foreign.acts
        began = self._now_ns()
        process.start(command, stop)
        self.clock.stamp(self.paths.state, began)
        self._note(process, stop)
        if isinstance(process.error, DisagreementError):
            self.disagrees = True
            assert self.reads == reads, f"{name} read {self.reads - reads} records before it refused: {process.error}"
        elif process.state == "ended" and process.error is None and name.startswith("run "):
            self.clean_runs += process.value["run_id"] not in self.finished  # a retry looks at nothing
            self.disagrees = False
            if process.value["outcome"] in FINAL_OUTCOMES:
                self.finished[process.value["run_id"]] = process.value
        return process

    def freeze(self, process: Process) -> None:
        """SIGSTOP, for as long as :meth:`thaw` does not come: others take its lease. A stop that is missed fails."""
        assert process.state == "stopped", f"{process.name} was not stopped"
        self.sleepers.append(process)
        self._slept_since[id(process)] = self.clean_runs

    def thaw(self, number: int, *, stop: Stop | None = None) -> Process:
        """A sleeper wakes up. What another run has finished since then it does not touch."""
        process = self.sleepers.pop(number)
        self.log.append(f"thawed: {process.name}")
        takes_it_again = ("steps", "reread", "backfill") if self.mended else ("steps", "reread")
        has_lost = (
            self.clean_runs > self._slept_since.pop(id(process)) and process.name.split()[0] not in takes_it_again
        )
        is_zombie = has_lost and _had_lease(process.calls)
        before, began = self._views(), self._now_ns()
        process.thaw(stop)
        self.clock.stamp(self.paths.state, began)
        self._note(process, stop)
        if is_zombie:
            assert self._views() == before, f"{process.name} lost its lease, and changed what readers see"
        return process

    def _views(self) -> list[Counter[str]]:
        return [read(table) for table in (self.paths.table, self.paths.quarantine) for read in (read_plain, read_log)]

    def retry(self, run_id: str) -> None:
        """A run that is over is run again; one whose report maintenance has removed is a new one."""
        if load_report(self.paths, run_id) is None:
            del self.finished[run_id]
            return
        reads, before = self.reads, self._views()
        process = self.run(run_id)
        assert process.error is None and process.value == self.finished[run_id], f"a retry of {run_id} tells otherwise"
        assert (self.reads, self._views()) == (reads, before), f"a retry of {run_id} changed something"

    def kill(self, process: Process) -> None:
        """SIGKILL. A stop that is missed fails."""
        assert process.state == "stopped", f"{process.name} was not stopped"
        process.kill()
        self.log.append(f"  killed: {process.name}")

    def _note(self, process: Process, stop: Stop | None) -> None:
        self.calls += len(process.calls)
        if process.state == "stopped":
            self.log.append(f"{process.name}: stopped {stop}: {process.calls[-1]}")
            return
        error = process.error
        if error is None:
            outcome = process.value.get("outcome", process.value.get("code"))
            self.log.append(f"{process.name}: {outcome}")
            is_over = process.value.get("run_id") in self.finished  # a retry does nothing
            if process.name.startswith(_HIDES) and process.value.get("outcome") in _DONE and not is_over:
                self.foreign.seen_by(self._began[id(process)])
            return
        self.log.append(f"{process.name}: {type(error).__name__} {error}")
        if isinstance(error, HeldError) and not process.name.startswith(_BESIDE):
            for run_id, judged in self.judged.items():
                if f"run {run_id} of" in str(error.where) and run_id not in self.decided and not judged.passed:
                    self.holds[run_id] = judged.ids - self.released - self.discarded
        if process.name in self.disturbed:
            return  # its checkpoint was changed under its hands
        assert isinstance(error, TidegateError), f"{process.name} ended with a traceback: {error!r}"
        assert not isinstance(error, DefectError), f"{process.name} ended with a defect of ours: {error}"

    def _choose_days(self, scope: Scope) -> list[Interval]:
        return scope.intervals[:1] if self.day_by_day else choose_days(scope)

    def _submit(self, plan: Any) -> int:
        self.drivers += 1
        driver = Driver(
            self.project,
            self.spec,
            self.kafka,
            self._on_read,
            self._cannot_read,
            self._parse,
            self._read_text,
        )
        return driver.submit(plan)

    def _parse(self, row: Row) -> Row:
        fits = row["kind"] == "malformed" and row["id"] in self.mended
        return {**row, "kind": "good"} if fits else row

    def _read_text(self, text: str) -> Row:
        """A record of quarantine: its id, and what a person made of it behind a comma."""
        id_, _, kind = text.partition(",")
        return {"id": id_, "kind": kind or self.offered[id_], "raw": text}

    def _cannot_read(self, text: str) -> bool:
        return not self.is_readable and self._is_of_broken(text)

    def _is_of_broken(self, text: str) -> bool:
        return self.broken is not None and text.startswith(f"f{self.broken}-")

    def _on_read(self, rows: list[Row]) -> None:
        self.reads += len(rows)

    def _judge(self, context: Any, suite: Any, owed: Any, folded: Any, within: Any = None) -> list[RuleResult]:
        """The gate: an increment passes when at least half of its rows are good ones."""
        rows = [
            row for manifest in owed for file in manifest.files for row in read_rows(context.paths.state / file.path)
        ]
        good = sum(row["kind"] == "good" for row in rows)
        passed = 2 * good >= len(rows)
        ids = frozenset(row["id"] for row in rows)
        self.judged[context.report.run_id] = Judged(ids, passed)
        if passed:
            self.passed |= ids
        rule = suite.rules[0]
        return [RuleResult("mostly_good", rule.type, "critical", passed, len(rows) - good)]

    def _on_call(self, process: Process, call: str, path: str) -> None:
        words = process.name.split()
        if call == "link" and re.search(r"/_delta_log/\d+\.json$", path):
            self._note_commit(Path(path))
        if call == "link" and "/intents/" in path:
            self._note_release(json.loads(Path(path).read_bytes()))
        is_recorded = call == "link" and "decision" in path and words[0] in ("release", "discard", "reread")
        if not is_recorded or not self._waits(words[1]):
            return  # one that slept until there was nothing left to decide on changes nothing
        if words[0] == "reread":
            # All that is staged is judged again, and what a sleeper says of it then is out of date.
            alone = self.waiting
            self.holds = {run_id: ids for run_id, ids in self.holds.items() if run_id in alone}
            self.judged = {run_id: one for run_id, one in self.judged.items() if run_id in alone}
        else:
            held = self.judged[words[1]].ids - self.released - self.discarded
            self.decided.add(words[1])
            self.holds = {run_id: ids - held for run_id, ids in self.holds.items() if ids - held}
            if words[0] == "discard":
                self.discarded |= held
            else:
                self.released |= held
                self.passed |= held

    def _note_release(self, intent: dict[str, Any]) -> None:
        """A decision on an increment that waits alone is planned: what is released may be seen from now on."""
        told = intent.get("custom_metadata", {})
        if WAITED in told and told["tidegate.outcome"] == "published":
            self.passed |= self.holds.pop(intent["run_id"], self.judged[intent["run_id"]].ids)

    def _note_commit(self, commit: Path) -> None:
        """What was committed just now means for the records: a decision on an increment that waited alone, retention,
        a rollback."""
        if commit.parent.parent != self.paths.table:
            return
        self.noted.append(time.time())
        actions = read_actions(commit)
        info = next(one["commitInfo"] for one in actions if "commitInfo" in one)
        added = [kept(self.paths.table / unquote(one["add"]["path"])) for one in actions if "add" in one]
        ids = {id_of(row) for path in added for row in read_rows(path)}
        if info.get("tidegate.outcome") == "published" and "tidegate.query_id" in info:
            self.published |= dict.fromkeys(ids, int(commit.stem))
        if info.get("tidegate.rework") in _BRINGS_BACK:
            self.foreign.deleted -= ids
        if info.get(WORK) == "expire":
            gone = [self.paths.table / unquote(one["remove"]["path"]) for one in actions if "remove" in one]
            expired = {id_of(row) for path in gone for row in read_rows(kept(path))}
            early = {one for one in expired if day_of({"id": one}) != "2026-01-01"}
            assert not early or not self.is_clock_wrong, f"expired early, by a clock that is wrong: {sorted(early)[:5]}"
            self.expired |= expired
        if WAITED in info:
            run_id = info["tidegate.run_id"]
            ids = self.judged[run_id].ids
            self.decided.add(run_id)
            self.holds.pop(run_id, None)
            if info["tidegate.outcome"] == "discarded":
                self.discarded |= ids
            else:
                self.released |= ids
                self.passed |= ids
        if info.get("tidegate.outcome") == "discarded":
            self.discarded_at |= dict.fromkeys(self.discarded - self.discarded_at.keys(), int(commit.stem))
        if "tidegate.rolled_back_to" not in info:
            return
        version, now = int(info["tidegate.rolled_back_to"]), int(commit.stem)
        then, before = read_version(self.paths.table, version), read_version(self.paths.table, now - 1)
        new = set(Counter(read_version(self.paths.table, now)) - Counter(then))
        gone = set(Counter(then) - Counter(read_version(self.paths.table, now)))
        # What another engine wrote while the rollback was at work stays as it is.
        assert new <= self.foreign.rows and gone <= self.foreign.deleted, "other rows than those of the version"
        self.foreign.deleted -= set(then) - gone
        if info["tidegate.then"] != "reread":
            self.left_out = (self.left_out | set(before)) - set(then) - new
            return
        self.left_out = (self.left_out - set(then)) | (set(before) & self.foreign.rows) - set(then) - new
        published = {**self.published, **published_at(self.paths.table, now)}
        dealt_with = self.discarded_at | published
        again = {one for one in self.offered if dealt_with.get(one, -1) > version}
        self.discarded_at = {one: at for one, at in self.discarded_at.items() if one not in again}
        self.left_out -= again
        self.foreign.deleted -= again
        self.discarded -= again
        self.passed -= again
        self.released -= again
        self.judged = {run_id: one for run_id, one in self.judged.items() if not one.ids & again}

    def _waits(self, run_id: str) -> bool:
        """Whether a decision on the run's increment counts: it is held, or its verdict came from a sleeper."""
        judged = self.judged.get(run_id)
        left_behind = judged is not None and not judged.passed and self.paths.verdict(run_id).exists()
        return run_id in self.holds or left_behind

    # -- what readers see --

    def check(self) -> None:
        """What holds at every moment, whatever is stopped where."""
        plain, logged = read_plain(self.paths.table), read_log(self.paths.table)
        aside = read_plain(self.paths.quarantine)
        stale = self.foreign.stale.keys()
        plain_now = Counter({one: count for one, count in plain.items() if one not in stale})
        for reader, ids in (("plain parquet", plain_now), ("the table's log", logged), ("quarantine", aside)):
            twice = [one for one, count in ids.items() if count > 1]
            assert not twice, f"{reader} has rows twice: {sorted(twice)[:5]}"
        seen = set(plain_now) | set(logged)
        gone = seen & self.foreign.deleted
        assert not gone, f"rows that another engine deleted are seen: {sorted(gone)[:5]}"
        seen -= self.foreign.rows
        assert not seen & self.discarded, f"discarded rows are seen: {sorted(seen & self.discarded)[:5]}"
        held = {one for ids in self.holds.values() for one in ids}
        assert not seen & held, f"rows of a held increment are seen: {sorted(seen & held)[:5]}"
        assert seen <= self.passed, f"rows are seen that no gate passed: {sorted(seen - self.passed)[:5]}"

    def settle(self, decision: str) -> None:
        """Thaw what sleeps, then run, and do what each error says, until nothing is left; all must be accounted for."""
        while self.sleepers:
            self.thaw(0)
            self.check()
        clean = 0
        for _ in range(_REMEDIES_AT_MOST + 2 * len(self.judged)):
            process = self.run(self.new_run_id())
            self.check()
            if process.error is None:
                clean += 1
                if process.value["outcome"] == "nothing_new" and not self.waiting:
                    break
                if waiting := self.waiting:
                    process = self.decide(decision, waiting[0])
                    if process.error is not None:
                        self._follow(process.error, decision)
                    self.check()
                elif clean == 2:
                    self.check_all()
                continue
            if self._needs_backup(process.error):
                return
            self._follow(process.error, decision)
            self.check()
        else:
            raise AssertionError("no way out: each remedy led to another error")
        if self.foreign.stale or list_strange(self.paths.table) or list_reported(self.paths.table):
            process = self.maintain(self.new_run_id("m"), MaintenanceSpec())
            while process.error is not None and self.foreign.asks:
                self._follow(process.error, decision)
                process = self.maintain(self.new_run_id("m"), MaintenanceSpec())
            assert process.error is None, f"maintenance ended with {process.error!r}"
            for folder in list_reported(self.paths.table):
                assert folder in str(process.value["notes"]), f"no report names what is in {folder}"
        self.check_all()
        reads = self.reads
        assert self.run(self.new_run_id()).error is None and self.reads == reads, "an idle run reads something"

    def _needs_backup(self, error: BaseException) -> bool:
        """Whether the table's log was cut by another engine where it is needed: refused in good time, and what is left
        is a copy of the log or a new table."""
        self.is_cut = isinstance(error, TidegateError) and error.code == "TABLE_LOG_CUT"
        return self.is_cut

    def tend(self, source: Literal["keep", "archive"]) -> None:
        """When all is settled, maintenance goes well, and everything is in its place."""
        if self.is_cut:
            return
        settings = MaintenanceSpec(keep_versions=0, source=source)
        process = self.maintain(self.new_run_id(), settings)
        while process.error is not None and self.foreign.asks:
            self._follow(process.error, "release")
            process = self.maintain(self.new_run_id(), settings)
        assert process.error is None, f"maintenance ended with {process.error!r}"
        self.check_all()

    def replay_all(self) -> None:
        """When all is settled, every quarantined record that fits now can be put through, or it is said why not."""
        if self.is_cut:
            return
        self.foreign.take_back(self.foreign.asks)
        before = len(self.in_quarantine())
        process = self.replay(self.new_run_id(), Selection(), mend=True)
        error, report = process.error, process.value
        if error is not None:
            assert isinstance(error, TidegateError) and error.code in _REPLAY_REFUSALS, f"a replay ended with {error!r}"
        elif report["outcome"] == "published":
            rows = report["rows"]
            assert len(self.in_quarantine()) == before - rows["published"], "other records left quarantine"
        self.check_all()

    def set_clock(self, seconds: int) -> None:
        """The wall clock steps."""
        self.clock.step(seconds, self.patch)
        self.log.append(f"the clock steps by {seconds} seconds, and is {self.clock.ahead_ns // 10**9} ahead")

    def _now_ns(self) -> int:
        return time.time_ns() - self.clock.ahead_ns

    def disturb(self, what: str, seed: int) -> None:
        """Another engine does something to the table."""
        if what == "vacuum all" and seed % 2:
            self.foreign.age(self.paths.state)
        before = newest_version(self.paths.table)
        self.log.append(f"another engine: {what} {seed}: {self.foreign.act(what, seed)}")
        if newest_version(self.paths.table) > before:
            self.noted.append(self._now_ns() / 10**9)  # a commit by another clock, which is right

    def _follow(self, error: BaseException, decision: str) -> None:
        """Do what ``fix`` of the error says."""
        assert isinstance(error, TidegateError)
        if error.code == "TABLE_FEATURE":
            self.log.append(f"another engine takes back: {self.foreign.follow(error.fix or '')}")
            return
        commands = [shlex.split(text) for text in _COMMAND.findall(error.fix or "")]
        wanted = [words for words in commands if words[1] == decision] or commands
        assert wanted, f"the fix names no command: {error}"
        words = wanted[0]
        if words[1] == "repair":
            self.repair()
        elif words[1] in ("release", "discard"):
            self.decide(words[1], words[3])
        elif "--accept-loss" in words:
            self.run(self.new_run_id(), accept="it is gone")
        else:
            assert isinstance(error, TryAgainError | SourceLostError | DisagreementError), error

    def check_all(self) -> None:
        """Every record once: in the table, in quarantine, discarded, or named in a record of what was lost."""
        self.check()
        plain, logged = read_plain(self.paths.table), read_log(self.paths.table)
        for one in self.foreign.stale:
            plain[one] = logged[one]
        plain += Counter()
        assert not list_strange(self.paths.table), f"a glob finds {list_strange(self.paths.table)[0]}"
        assert plain == logged, f"readers differ: plain parquet {_few(plain - logged)}, log {_few(logged - plain)}"
        assert logged == read_delta(self.paths.table), "deltalake reads other rows"
        aside, lost = read_plain(self.paths.quarantine), self._lost()
        assert aside == read_log(self.paths.quarantine), "readers of quarantine differ"
        for one, kind in self.offered.items():
            place = aside if kind == "malformed" else logged
            if kind == "malformed" and one in self.mended | self.edited:
                place = aside + logged
            found = [
                name
                for name, is_there in (
                    ("table or quarantine", place[one] == 1),
                    ("table or quarantine, and once more there", place[one] > 1),
                    # A rollback over retention leaves out what that has taken too, or brings it back.
                    (
                        "taken out by retention",
                        one in self.expired - self.left_out - self.foreign.deleted and not place[one],
                    ),
                    ("discarded", one in self.discarded),
                    ("recorded as lost", one in lost),
                    ("left out", one in self.left_out),
                    ("deleted by another engine", one in self.foreign.deleted),
                    ("in quarantine whole", self._is_of_broken(one) and aside[WHOLE_FILE]),
                )
                if is_there
            ]
            assert len(found) == 1, f"record {one} ({kind}) is " + (" and ".join(found) or "nowhere")
        for one in self.foreign.rows:
            places = logged[one] + (one in self.foreign.deleted) + (one in self.left_out) + (one in self.expired)
            assert places == 1, f"row {one} of another engine is in {places} places"
        assert lost <= self._gone(), f"recorded as lost, and still there: {sorted(lost - self._gone())[:5]}"
        self._check_reports(logged)

    def _check_reports(self, logged: Counter[str]) -> None:
        """What the reports say became of each increment is what became of it."""
        for run_id, judged in self.judged.items():
            report = load_report(self.paths, run_id)
            if report is None or report.published_by is not None:
                continue
            if report.outcome == "published":
                # some may have been discarded under another run
                missing = judged.ids - self.discarded - self.left_out - self.expired - set(logged)
                missing -= self.foreign.deleted
                assert not missing, f"run {run_id} says published: {sorted(missing)[:5]}"
            elif report.outcome == "discarded" and report.mode not in _BESIDE:
                assert not (judged.ids - self.released) & set(logged), f"run {run_id} says discarded"

    def _lost(self) -> set[str]:
        """What the record of accepted losses names."""
        found: set[str] = set()
        if self.paths.losses.exists():
            for line in self.paths.losses.read_bytes().splitlines():
                for source in json.loads(line)["sources"].values():
                    for one in source["ranges"]:
                        offsets = range(one["lost_from"], one["lost_until"])
                        found |= {f"k{one['partition']}-{offset}" for offset in offsets}
        return found

    def _gone(self) -> set[str]:
        return {f"k{number}-{offset}" for number, begin in self.kafka.begin.items() for offset in range(begin)}

    def cut_power(self, how: Cut) -> None:
        """Everything that runs is over, and what was not synced is lost."""
        self.kill_all()
        told = self.disk.cut(how)
        self.log += [f"power cut: {how}", *(f"  {line}" for line in told)]

    def kill_all(self) -> None:
        """Kill what is still asleep."""
        for process in self.sleepers:
            process.kill()
        self.sleepers.clear()

    def end(self) -> None:
        """Leave nothing open or asleep."""
        self.kill_all()
        self.disk.close()


Make = Callable[..., World]
"""What makes a pipeline for a scene."""


class NoThread:
    """A heartbeat that is not needed: time stands still for the process that runs."""

    def __init__(self, **more: Any) -> None: ...

    def start(self) -> None: ...

    def join(self, timeout: float) -> None: ...


def _had_lease(calls: list[str]) -> bool:
    """Whether a process has done something behind its look at the token that it made: until then it may try again."""
    links = [number for number, call in enumerate(calls) if call.startswith("link") and "/lease/" in call]
    after = calls[links[0] + 1 :] if links else []
    return any(not (call.startswith("unlink") and "/lease/" in call and call.endswith(".tmp")) for call in after)


def _few(ids: Counter[str]) -> str:
    return f"alone has {sorted(ids)[:5]}" if ids else "has no more"
