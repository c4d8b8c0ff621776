"""The run report: its figures come from manifests, must balance, and are the same whenever they are made."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import get_args

import pytest

from tests.support.staged import make_paths
from tidegate.core import storage
from tidegate.core.errors import DefectError, UsageError
from tidegate.core.outputs import RowKey
from tidegate.core.paths import PipelinePaths
from tidegate.runs.reports.report import (
    ROW_KEYS,
    check_balance,
    check_run_id,
    fill_from_manifests,
    list_reports,
    load_report,
    new_report,
    prune_reports,
    remove_unfinished,
    save_report,
)
from tidegate.state.manifest import BatchManifest, SourceRange
from tidegate.state.topics import ranges_from_json

CONTRACT_KEYS = [
    "pipeline", "run_id", "mode", "outcome", "started_at", "ended_at", "duration_seconds", "sources", "batches",
    "watermark", "rows", "quality", "table", "error",
]  # fmt: skip


def test_every_count_has_its_key() -> None:
    assert get_args(RowKey) == ROW_KEYS


def make_manifest(
    batch_id: int, sources: dict[str, SourceRange], *, transformed: int, rejected: int, run_id: str = "r1"
) -> BatchManifest:
    """A staged batch with these figures."""
    staged = transformed - rejected
    return BatchManifest(
        "orders", run_id, "q", batch_id, "a", sources, transformed, rejected, staged, [], [], rejected, "{}"
    )


FILES = [
    make_manifest(
        1,
        {"orders": SourceRange(10, 2, 100, [{"path": "a"}, {"path": "b"}], unknown_fields={"new": "a:1"})},
        transformed=8,
        rejected=1,
        run_id="r0",
    ),
    make_manifest(
        2,
        {"orders": SourceRange(5, 0, 50, [{"path": "c"}], unknown_fields={"new": "c:9", "more": "c:2"})},
        transformed=5,
        rejected=0,
    ),
]


def test_figures_are_the_sums_of_the_manifests() -> None:
    report = new_report("orders", "r1")
    report.sources["orders"] = {"skipped": ["x"], "rows": 0}
    for _ in range(2):  # a retry says the same
        fill_from_manifests(report, FILES)
        assert report.rows == {
            "read": 15, "malformed": 2, "entered": 13, "late": 0, "transformed": 13, "rejected": 1, "staged": 12,
            "published": 0,
            "superseded": 0,
            "duplicates": 0,
        }  # fmt: skip
        assert report.sources == {
            "orders": {
                "skipped": ["x"],
                "rows": 15,
                "malformed": 2,
                "files": 3,
                "bytes": 150,
                "unknown_fields": {"new": "a:1", "more": "c:2"},
                "unknown_records": 0,
            }
        }
        assert (report.batches, report.adopted_runs) == (2, ["r0"])
    check_balance(report.rows, published=False)


def test_offsets_of_batches_join_into_one_range() -> None:
    ranges = [
        {"t": {"0": [5, 9], "1": [0, 2]}},
        {"t": {"0": [9, 12]}, "u": {"0": [0, 1]}},
    ]
    manifests = [
        make_manifest(
            number, {"clicks": SourceRange(1, 0, offsets=ranges_from_json(offsets))}, transformed=1, rejected=0
        )
        for number, offsets in enumerate(ranges)
    ]
    report = new_report("clicks", "r1")
    fill_from_manifests(report, manifests)
    assert report.sources["clicks"]["offsets"] == {"t": {"0": [5, 12], "1": [0, 2]}, "u": {"0": [0, 1]}}
    assert manifests[0].sources["clicks"].offsets == ranges_from_json(ranges[0]), "a manifest was changed"


def test_what_was_published_stays_when_figures_are_made_again() -> None:
    report = new_report("orders", "r1")
    report.rows["published"] = 12
    fill_from_manifests(report, FILES)
    assert report.rows["published"] == 12


@pytest.mark.parametrize(
    ("change", "published", "said"),
    [
        ({"entered": 12}, False, "read 15 != malformed 2 + entered 12"),
        ({"staged": 11}, False, "transformed 13 != rejected 1 + staged 11"),
        ({"rejected": 2}, False, "transformed 13 != rejected 2 + staged 12"),
        ({"published": 11}, True, "published 11 != staged 12"),
        ({}, True, "published 0 != staged 12"),
    ],
)
def test_what_does_not_balance_fails(change: dict[RowKey, int], published: bool, said: str) -> None:
    report = new_report("orders", "r1")
    fill_from_manifests(report, FILES)
    with pytest.raises(DefectError, match="!=") as caught:
        check_balance(report.rows | change, published=published)
    assert caught.value.code == "UNBALANCED" and said in caught.value.message and caught.value.exit_code == 70


def test_the_contract_keys_come_first_and_rows_are_all_there(tmp_path: Path) -> None:
    value = new_report("orders", "r1").to_json()
    assert [key for key in value if key in CONTRACT_KEYS] == CONTRACT_KEYS
    assert list(value["rows"]) == list(ROW_KEYS)
    json.dumps(value)


def test_stored_and_read_back_under_any_run_id(tmp_path: Path) -> None:
    paths = make_paths(tmp_path)
    for run_id in (
        "scheduled__2026-01-01T00:00:00+00:00",
        "../../escape",
        ".hidden",
        "a/b c",
        "ü" * 33,
        "ü" * 250,
        "😀" * 250,
    ):
        check_run_id(run_id)
        report = new_report("orders", run_id)
        fill_from_manifests(report, FILES)
        save_report(paths, report)
        assert load_report(paths, run_id) == report
        assert paths.report(run_id).parent == paths.runs
    assert load_report(paths, "another") is None
    assert len(list(paths.runs.iterdir())) == 7


@pytest.mark.parametrize("run_id", ["", "a" * 251, "a" * 1000, "😀" * 251, "line\nbreak", "nul\0", "\udcff"])
def test_a_run_id_that_is_too_long_or_cannot_be_printed_is_refused(run_id: str) -> None:
    with pytest.raises(UsageError) as caught:
        check_run_id(run_id)
    assert caught.value.code == "BAD_RUN_ID"


def test_newest_first(tmp_path: Path) -> None:
    paths = make_paths(tmp_path)
    assert list_reports(paths) == []
    for number in (2, 0, 1):
        report = new_report("orders", f"r{number}")
        report.started_at = f"2026-01-0{1 + number}T00:00:00.000+00:00"
        save_report(paths, report)
    (paths.runs / "notes.json").write_text("[]")
    assert [report.run_id for report in list_reports(paths)] == ["r2", "r1", "r0"]
    assert len(list_reports(paths, 2)) == 2


def prune(paths: PipelinePaths, monkeypatch: pytest.MonkeyPatch, reports: int, kept: int = 3) -> list[str]:
    """Prune so many final reports with their progress events down to ``kept``; the names that are left."""
    monkeypatch.setattr("tidegate.runs.reports.report.KEPT_REPORTS", kept)
    monkeypatch.setattr("tidegate.runs.reports.report._PRUNED_AT_ONCE", 2)
    for number in range(reports):
        report = new_report("orders", f"r{number}")
        report.outcome = "published"
        save_report(paths, report)
        os.utime(paths.report(report.run_id), ns=(number, number))
        paths.progress(report.run_id).write_text("{}\n")
        paths.driver_log(report.run_id).parent.mkdir(parents=True)
        paths.driver_log(report.run_id).write_text("failed once")
        storage.replace(paths.untold_run(report.run_id), b"{}")
    return pruned(paths)


def pruned(paths: PipelinePaths) -> list[str]:
    prune_reports(paths)
    return sorted(path.name for path in paths.runs.iterdir())


def test_so_many_reports_are_kept_as_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = make_paths(tmp_path)
    assert len(prune(paths, monkeypatch, 5)) == 10, "progress events were counted as reports"
    prune_again = make_paths(tmp_path / "more")
    left = prune(prune_again, monkeypatch, 6)
    assert left == [f"r{number}.{kind}" for number in (3, 4, 5) for kind in ("json", "progress.jsonl")]
    assert sorted(path.name for path in (prune_again.state / "orders").iterdir()) == ["r3", "r4", "r5"]
    assert sorted(storage.list_names(prune_again.untold)) == ["r3.json", "r4.json", "r5.json"]


@pytest.mark.parametrize("damage", [b"torn", b"[]", b"", b"\xff", None])
def test_a_damaged_old_report_ends_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: bytes | None
) -> None:
    paths = make_paths(tmp_path)
    prune(paths, monkeypatch, 4)
    path = paths.report("r0")
    if damage is None:
        path.unlink()
        path.symlink_to("nowhere")
    else:
        path.write_bytes(damage)
        os.utime(path, ns=(0, 0))
    for number in range(4, 9):
        report = new_report("orders", f"r{number}")
        report.outcome = "published"
        save_report(paths, report)
    names = pruned(paths)
    assert {f"r{number}.json" for number in range(6, 9)} <= set(names)
    assert list_reports(paths, 1)[0].outcome == "published"


def test_an_overtaken_process_puts_no_older_report_over_a_newer_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths, older, newer = make_paths(tmp_path), new_report("orders", "r1"), new_report("orders", "r1")
    newer.outcome = "published"
    real = os.replace

    def suspended(beside: Path, path: Path) -> None:
        monkeypatch.undo()
        remove_unfinished(paths, "r1")
        save_report(paths, newer)
        real(beside, path)

    monkeypatch.setattr(os, "replace", suspended)
    with pytest.raises(FileNotFoundError):
        save_report(paths, older)
    stored = load_report(paths, "r1")
    assert stored is not None and stored.outcome == "published"
    remove_unfinished(paths, "r1")
    assert load_report(paths, "r1") == stored
