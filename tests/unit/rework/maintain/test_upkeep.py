"""Retention, vacuum, and what runs leave: what goes, what stays, and a dry run that changes nothing."""

from __future__ import annotations

import os
from dataclasses import asdict, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.support.held import Held, Leases, commands
from tests.support.kept import Kept, list_everything
from tests.support.readers import read_agreed
from tests.support.staged import QUERY, Stager
from tests.support.storage_calls import KilledHere, StorageCalls, kill
from tidegate.core import storage
from tidegate.core.errors import DisagreementError, UsageError
from tidegate.core.paths import PipelinePaths
from tidegate.rework.backfill.held import keep_held
from tidegate.rework.backfill.span import Interval
from tidegate.rework.maintain.command import maintain_pipeline, preview_maintenance
from tidegate.rework.maintain.compact import find_expired
from tidegate.rework.maintain.litter import find_litter, remove_litter
from tidegate.runs.preflight.gather import gather_facts
from tidegate.runs.reports.report import load_report, new_report, save_report
from tidegate.state.birth import Birth
from tidegate.state.lease import acquire
from tidegate.state.published import record_retired
from tidegate.table.log.state import DataFile, read_table_state
from tidegate.table.publish.intent import FileToAdd, FileToRemove, PublishIntent, write_intent

NOW = datetime(2026, 3, 10, 12, 0, tzinfo=UTC)
DAY = 86_400.0


@pytest.fixture(autouse=True)
def unsynced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda handle: None)


def by_day(root: Path, **how: Any) -> Kept:
    """A table with a partition of each of the last five days, and one without a date."""
    kept = Kept(root, columns={"id": "long", "day": "date"}, partition_by=["day"], **how)
    today = datetime.now(UTC).date()
    days = [None, *(today - timedelta(days=n) for n in range(5))]
    for begin in (0, 100):
        kept.publish([{"id": begin + n, "day": day} for n, day in enumerate(days)])
    return kept


def days_of(kept: Kept) -> list[int | None]:
    """How many days ago the partitions of the table are, for every reader."""
    today = datetime.now(UTC).date()
    found = {row["day"] for row in read_agreed(kept.paths.table)}
    return sorted(
        ((today - day).days if isinstance(day, date) else None for day in found), key=lambda n: -1 if n is None else n
    )


def test_a_partition_goes_when_its_day_ended_so_long_ago() -> None:
    files = [DataFile(f"{day}", 1, 1, {"day": day}) for day in ("2026-03-08", "2026-03-09", "9999-12-31", "x", None)]
    assert find_expired(files, "DAY", 0, NOW) == files[:2]
    assert find_expired(files, "day", 0.5 * DAY, NOW) == files[:2]
    assert find_expired(files, "day", 0.5 * DAY + 1, NOW) == files[:1]
    assert find_expired(files, "day", 1.5 * DAY + 1, NOW) == []


def test_old_partitions_leave_the_table_in_one_version(tmp_path: Path) -> None:
    kept = by_day(tmp_path, maintenance={"expire": {"partitions": "2 days"}, "compact_below": 0})
    before = read_table_state(kept.paths.table)
    foreseen = kept.foresee()["expire", "table"]
    assert (foreseen["files"], foreseen["rows"], foreseen["partitions"]) == (4, 4, 2)
    report = kept.maintain()
    after = read_table_state(kept.paths.table)
    assert days_of(kept) == [None, 0, 1, 2]
    assert before is not None and after is not None and after.version == before.version + 2  # hidden, then removed
    assert report["notes"][0].startswith("expired: 4 files with 4 rows")
    assert report["table"]["rows_removed"] == 4 and report["table"]["version"] == after.version
    assert kept.maintain("M2")["outcome"] == "nothing_new"
    kept.publish([{"id": 7, "day": datetime.now(UTC).date()}])
    assert days_of(kept) == [None, 0, 1, 2]


def test_nothing_kept_at_all_leaves_the_rows_of_today_and_those_without_a_date(tmp_path: Path) -> None:
    kept = by_day(tmp_path, maintenance={"expire": {"partitions": 0}, "keep_versions": 0})
    report = kept.maintain()
    assert days_of(kept) == [None, 0]
    assert len(kept.on_disk()) == len(kept.files) == 2
    assert {note.partition(":")[0] for note in report["notes"]} == {"expired", "compacted", "vacuumed"}


def test_a_retention_that_the_table_cannot_have_is_refused_and_the_projects_is_not(tmp_path: Path) -> None:
    kept = Kept(tmp_path, partition_by=["city"])
    kept.publish([{"id": 1, "city": "Oslo", "n": 1}])
    kept.settings = {"expire": {"partitions": "1 day"}}
    assert kept.maintain()["outcome"] == "nothing_new"
    kept.maintenance = {"expire": {"partitions": "1 day"}}
    everything = list_everything(kept.paths.table)
    text = kept.root / "jobs" / "orders" / "pipeline.yaml"
    project = kept.project
    spec = text.read_text().replace("schema: id BIGINT, city STRING, n BIGINT", "schema: id BIGINT")
    text.write_text(spec + "transform: transform.sql\n")  # so that only the table tells
    with pytest.raises(UsageError, match=r"NO_DATE_PARTITION: .* is partitioned by city STRING"):
        maintain_pipeline(project, "orders", "M2")
    report = load_report(kept.paths, "M2")
    assert report is not None and report.outcome == "failed", "it is on a schedule: nobody else is told"
    with pytest.raises(UsageError, match="NO_DATE_PARTITION"):
        preview_maintenance(project, "orders")
    assert list_everything(kept.paths.table) == everything


def test_a_sink_that_is_behind_still_gets_rows_that_expired(tmp_path: Path) -> None:
    from tidegate.sinks.feed import begin_sink
    from tidegate.table.publish.delivery import list_deliveries

    kept = Kept(tmp_path, columns={"id": "long", "day": "date"}, partition_by=["day"], sinks=[{"type": "console"}])
    kept.maintenance = {"expire": {"partitions": 0}, "keep_versions": 0}
    begin_sink(kept.paths, "console", None, "before")
    kept.publish([{"id": 1, "day": date(2020, 1, 1)}])
    kept.maintain()
    assert read_agreed(kept.paths.table) == []
    state = read_table_state(kept.paths.table)
    assert state is not None
    delivery, expiry = list_deliveries(kept.paths.table, -1, state.version)
    assert delivery.files and all((kept.paths.table / file.path).exists() for file in delivery.files)
    assert expiry.files == () and expiry.partitions == ({},)


def test_older_versions_can_be_read_as_long_as_the_spec_says(tmp_path: Path) -> None:
    kept = by_day(tmp_path)
    kept.maintain()
    assert len(kept.on_disk()) == 18
    kept.age(6.9)
    assert kept.maintain("M2")["outcome"] == "nothing_new"
    kept.age(0.2)
    report = kept.maintain("M3")
    assert len(kept.on_disk()) == 6
    assert report["notes"][0].startswith("vacuumed: 12 replaced files of the table (")


def test_partitions_of_a_held_backfill_stay_as_they_are(tmp_path: Path) -> None:
    """Released, it takes out the very files that it was built for."""
    from tidegate.rework.backfill.held import keep_held, list_held
    from tidegate.rework.backfill.span import Interval

    kept = by_day(tmp_path, maintenance={"expire": {"partitions": "2 days"}, "source": "keep"})
    today = datetime.now(UTC).date()
    held_days = {str(today), str(today - timedelta(days=4))}
    there = [file for file in kept.files if file.partition["day"] in held_days]
    remove = [FileToRemove(file.path, file.rows, file.size_bytes, file.partition) for file in there]
    intent = PublishIntent("orders", "B1", "table", "{}", ["day"], "backfill-1", 0, -1, files_to_remove=remove)
    keep_held(
        kept.paths.beside("backfills/backfill-1/token"),
        intent,
        Interval({"day": sorted(held_days)}),
        new_report("orders", "b"),
    )
    assert [one.run_id for one in list_held(kept.paths)] == ["B1"] and len(there) == 4
    foreseen = kept.foresee()
    assert (foreseen["compact", "table"]["files"], foreseen["expire", "table"]["files"]) == (6, 2)
    kept.maintain()
    assert [file for file in kept.files if file.partition["day"] in held_days] == there
    assert days_of(kept) == [None, 0, 1, 2, 4]
    storage.remove_tree(kept.paths.backfills / "backfill-1")
    kept.maintain("M2")
    assert days_of(kept) == [None, 0, 1, 2] and len(kept.files) == 4


def test_a_long_log_is_compacted(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    for n in range(12):
        kept.publish([{"id": n, "city": "Oslo", "n": n}])
    assert kept.foresee()["log", "table"]["files"] == 12
    assert "the log of the table: compacted" in kept.maintain()["notes"]
    assert list(kept.paths.table.glob("_delta_log/*.compacted.json"))
    assert len(read_agreed(kept.paths.table)) == 12


def test_a_dry_run_changes_nothing_and_counts_what_is_done(tmp_path: Path) -> None:
    kept = by_day(tmp_path, maintenance={"expire": {"partitions": "2 days", "reports": 0}})
    dead = kept.paths.attempts("an old query", 3) / "token"
    storage.replace(dead / "rows.parquet", b"12345")
    save_report(kept.paths, ended("R old", "published"))
    everything = list_everything(tmp_path)
    foreseen = kept.foresee()
    after = list_everything(tmp_path)
    assert {path: after[path] for path in everything if "yaml" not in path} == {
        path: state for path, state in everything.items() if "yaml" not in path
    }
    assert [path for path in after if path not in everything] == ["jobs/orders/pipeline.yaml", "tidegate.yaml"]
    report = kept.maintain()
    assert foreseen["compact", "table"]["files"] == 8 and foreseen["expire", "table"]["files"] == 4
    assert report["table"]["files_removed"] == 12
    assert (foreseen["staging", "state"]["files"], foreseen["staging", "state"]["bytes"]) == (1, 5)
    assert "removed: dead staging, 1 file (5 bytes)" in report["notes"]
    assert foreseen["reports", "state"]["files"] >= 1
    assert kept.foresee() == {} or set(kept.foresee()) == {("reports", "state")}


def test_a_dry_run_needs_no_lease_and_says_who_is_at_work(tmp_path: Path) -> None:
    kept = by_day(tmp_path)
    with acquire(kept.paths, run_id="R9", command="run", expires_after_seconds=60):
        value = preview_maintenance(kept.project, "orders")
    assert value["notes"] == ["run R9 is at work: what it stages and publishes changes these figures"]
    assert value["items"]


def test_what_stands_in_the_way_is_told_by_the_dry_run_and_ends_the_other(tmp_path: Path) -> None:
    kept = by_day(tmp_path)
    for path in kept.paths.table.rglob("*"):
        if path.is_file():
            path.unlink()
    value = preview_maintenance(kept.project, "orders")
    assert value["hindrance"] is not None and value["hindrance"]["code"] == "TABLE_GONE"
    with pytest.raises(DisagreementError, match="TABLE_GONE"):
        kept.maintain()


def ended(run_id: str, outcome: str | None) -> Any:
    report = new_report("orders", run_id)
    report.outcome, report.ended_at = outcome, report.started_at
    return report


def make_old(path: Path, days: float = 100) -> None:
    for one in (path, *path.rglob("*")):
        os.utime(one, (one.stat().st_atime, one.stat().st_mtime - days * DAY))


def look(paths: PipelinePaths, run_id: str | None = None, days: float = 90) -> dict[str, list[str]]:
    """What of the state folder could go, by kind: paths in the state folder."""
    facts = gather_facts(paths, Kept(paths.state.parents[1]).spec)
    found = find_litter(paths, facts, before=datetime.now(UTC) - timedelta(days=days), run_id=run_id)
    return {one.work: sorted(str(p.relative_to(paths.state)) for p in (*one.folders, *one.singles)) for one in found}


def test_old_reports_go_with_what_belongs_to_them(tmp_path: Path) -> None:
    paths = Kept(tmp_path).paths
    for run_id, outcome in (("old", "published"), ("failed", "failed"), ("held", "held"), ("open", None)):
        save_report(paths, ended(run_id, outcome))
        storage.replace(paths.progress(run_id), b"{}\n")
        storage.replace(paths.driver_log(run_id), b"log\n")
        storage.replace(paths.untold_run(run_id), b"{}\n")
    storage.replace(paths.driver_log("no report"), b"log\n")
    storage.replace(paths.progress("no report"), b"{}\n")
    storage.replace(paths.untold_run("no report"), b"{}\n")
    for folder in (paths.runs, paths.exchanges, paths.untold):
        make_old(folder)
    save_report(paths, ended("new", "failed"))
    save_report(paths, ended("good", "nothing_new"))
    make_old(paths.report("good"), days=95)
    assert look(paths)["reports"] == sorted(
        [f"runs/{one}.json" for one in ("old", "failed")]
        + [f"runs/{one}.progress.jsonl" for one in ("old", "failed", "no report")]
        + [f"orders/{one}" for one in ("old", "failed", "no report")]
        + [f"untold/{one}.json" for one in ("old", "failed", "no report")]
    )
    assert look(paths, days=101) == {}
    assert "runs/old.json" not in look(paths, "old")["reports"]


def test_the_report_of_the_last_good_run_stays(tmp_path: Path) -> None:
    paths = Kept(tmp_path).paths
    for n, outcome in enumerate(("published", "nothing_new", "failed", "failed")):
        save_report(paths, ended(f"R{n}", outcome))
        make_old(paths.report(f"R{n}"), days=200 - n)
    assert look(paths)["reports"] == ["runs/R0.json", "runs/R2.json"]


def test_what_an_open_increment_needs_stays(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    kept.stage([{"id": 1, "city": "Oslo", "n": 1}])
    save_report(kept.paths, ended("run-0", "failed"))  # the run that staged it
    storage.replace(kept.paths.driver_results("run-0"), b"{}")
    make_old(kept.paths.runs)
    make_old(kept.paths.exchanges)
    make_old(kept.paths.staging)
    save_report(kept.paths, ended("newer", "published"))
    assert look(kept.paths) == {}


def test_jobs_beside_the_runs_that_were_stopped_go_and_held_ones_stay(tmp_path: Path) -> None:
    """A killed backfill or replay begins its part anew; what waits for a decision, or is being published, is needed."""
    paths = Kept(tmp_path).paths
    for job in ("backfills/killed", "backfills/held", "backfills/begun", "replays/killed", "replays/begun"):
        storage.replace(paths.state / job / "token" / "staging" / "rows.parquet", b"1")
    there, aside = (FileToAdd(f"{job}/begun/token/staging/rows.parquet", "x", 1, 1) for job in ("backfills", "replays"))
    companion = PublishIntent("orders", "B", "quarantine", "{}", [], "begun", 0, -1, files_to_add=[aside])
    intent = PublishIntent("orders", "B", "table", "{}", [], "begun", 0, -1, files_to_add=[there], companion=companion)
    keep_held(
        paths.beside("backfills/held/token"), replace(intent, run_id="H"), Interval({}), new_report("orders", "H")
    )
    assert look(paths) == {
        "staging": [f"{job}/{name}/token" for job, name in (("backfills", "begun"), ("backfills", "killed"),
                                                            ("replays", "begun"), ("replays", "killed"))]
    }  # fmt: skip
    write_intent(paths, intent)
    assert look(paths) == {"staging": ["backfills/killed/token", "replays/killed/token"]}
    facts = gather_facts(paths, Kept(tmp_path).spec)
    for litter in find_litter(paths, facts, before=datetime.now(UTC)):
        remove_litter(litter, lambda: None)
    assert sorted(str(one.relative_to(paths.state)) for one in paths.state.glob("*s/*/token")) == [
        "backfills/begun/token", "backfills/held/token", "replays/begun/token"
    ]  # fmt: skip


def test_copies_that_a_killed_process_left_beside_the_tables_go(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    kept.publish([{"id": 1, "city": "Oslo", "n": 1}])
    copies = [
        kept.paths.table / ".part-1.parquet.00.incoming",
        kept.paths.quarantine / "day=1" / ".part-2.parquet.incoming",
    ]
    for copy in copies:
        storage.replace(copy, b"rows")
    kept.maintain()
    assert [copy for copy in copies if copy.exists()] == []
    assert len(read_agreed(kept.paths.table)) == 1


def test_a_held_increment_keeps_its_rows_and_is_released_afterwards(tmp_path: Path) -> None:
    held = Held(tmp_path)
    with commands(lambda: held):
        held.hold("R1")
        (tmp_path / "tidegate.yaml").write_text("maintenance: {keep_versions: 0, expire: {reports: 0}}\n")
        for folder in (held.paths.state / "runs", held.paths.state / "staging"):
            make_old(folder)
        maintain_pipeline(held.project, "orders", "M1")
        report = load_report(held.paths, "R1")
        assert report is not None and report.outcome == "held"
        held.decide("release")
        assert held.rows() == [1, 2, 3]


def test_backups_of_repairs_go_by_their_age_unless_they_hold_a_birth_record(tmp_path: Path) -> None:
    paths = Kept(tmp_path).paths
    names = [
        "20250101T000000000000Z",
        "20250102T000000000000Z",
        f"{datetime.now(UTC):%Y%m%dT%H%M%S%fZ}",
        "late-warehouse",
    ]
    for name in names:
        storage.replace(paths.set_aside / name / "rows.parquet", b"1")
    storage.replace(paths.set_aside / names[1] / "birth.json", b"{}")
    assert look(paths) == {"backups": [f"set_aside/{names[0]}"]}
    make_old(paths.set_aside / "late-warehouse")
    assert look(paths) == {"backups": [f"set_aside/{names[0]}", "set_aside/late-warehouse"]}


def test_checkpoints_of_queries_that_are_over_go_and_their_births_stay(tmp_path: Path) -> None:
    paths = Kept(tmp_path).paths
    for number, query in enumerate(("q0", "q1", "q2")):
        own = replace(paths, generation=number)
        storage.replace(own.birth, storage.dump_json(asdict(Birth(query, "", {}, {}))))
        storage.replace(own.checkpoint / "offsets" / "0", b"v1\n")
        storage.write_note(paths.seals / query, 1, {})
    assert look(paths) == {}
    for query in ("q0", "q1", "q2"):
        record_retired(paths, query, 5)
    assert look(paths) == {}  # a moment ago
    for query, at in (("q0", "2025-01-01T00:00:00+00:00"), ("q2", "2025-01-01T00:00:00+00:00")):
        value = {"query_id": query, "last_batch": 5, "at": at}
        storage.replace(paths.retired(query), storage.dump_json(value))
    assert look(paths) == {"checkpoints": ["checkpoint", "seals/q0"]}
    facts = gather_facts(paths, Kept(tmp_path).spec)
    for litter in find_litter(paths, facts, before=datetime.now(UTC) - timedelta(days=90)):
        remove_litter(litter, lambda: None)
    assert not paths.checkpoint.samefile(paths.state) and not (paths.state / "checkpoint").exists()
    assert (paths.state / "birth.json").exists() and (paths.queries / "000001" / "checkpoint").exists()


def test_a_kill_anywhere_leaves_the_rest_to_the_next_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    leases = Leases()
    monkeypatch.setattr("tidegate.runs.opening.acquire", leases.acquire)
    at, calls = 1, 10**6
    while at <= calls:
        kept = by_day(tmp_path / str(at), maintenance={"expire": {"partitions": "2 days"}, "keep_versions": 0})
        for n in range(3):
            storage.replace(kept.paths.attempts(f"dead {n}", 0) / "t" / "x.parquet", b"1")
        with monkeypatch.context() as patch:
            counter = StorageCalls(patch, at, kill)
            try:
                kept.maintain()
                calls = counter.count
            except KilledHere:
                pass
        kept.maintain()
        assert days_of(kept) == [None, 0, 1, 2] and len(kept.files) == len(kept.on_disk()) == 4
        assert kept.leftovers() == []
        report = load_report(kept.paths, "M1")
        assert report is not None and report.table["rows_removed"] == 4, at
        at += 1 if os.environ.get("TIDEGATE_SWEEP", "0") != "0" else 11


def test_quarantine_is_vacuumed_too_and_not_compacted(tmp_path: Path) -> None:
    """Its files tell by their names of which batch they are."""
    kept = Kept(tmp_path)
    stager = Stager(replace(kept.paths, table=kept.paths.quarantine), {"id": "long"}, [])
    from tidegate.table.publish.intent import write_intent
    from tidegate.table.publish.plan import plan_quarantine
    from tidegate.table.publish.publish import finish_intent

    for batch in range(3):
        manifest = stager.stage(batch, [{"id": batch}])
        manifest = replace(manifest, files=[], quarantine_files=manifest.files)
        plan = plan_quarantine([manifest], app_version_before=batch - 1)
        finish_intent(kept.paths, write_intent(kept.paths, plan), is_current=lambda: True)
    before = sorted(path.name for path in kept.paths.quarantine.glob("*.parquet"))
    kept.publish([{"id": 1, "city": "Oslo", "n": 1}])
    kept.maintain()
    assert sorted(path.name for path in kept.paths.quarantine.glob("*.parquet")) == before and len(before) == 3
    assert QUERY[:8] in before[0]
