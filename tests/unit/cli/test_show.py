"""What commands print of causes, and of counts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.held import NAME, Held
from tests.support.page_outputs import shown
from tidegate.cli.show_repairs import show_backfill
from tidegate.cli.show_runs import show_causes, show_report
from tidegate.cli.show_status import show_status
from tidegate.core.words import count_of
from tidegate.runs.reports.report import new_report, save_report
from tidegate.spark.driver.progress import describe_event
from tidegate.spec.models import FilesSource, SourceSpec
from tidegate.views.status import project_status


def _row(detail: str | None, example: str | None) -> dict[str, Any]:
    at = "2026-03-09T12:00:00.000000Z"
    return {
        "records": 3,
        "reason": "malformed",
        "detail": detail,
        "run_id": "r1",
        "source": "orders",
        "first_at": at,
        "last_at": at,
        "example": example,
        "held": False,
    }


_EITHER = "options: {dateFormat: dd/MM/yyyy} or {dateFormat: MM/dd/yyyy}"
_RIGHT = "  if they are right as they are: {} (docs/how-to/files.md)"
_HEADER = "its header is {}; the schema wants id, day, note; the file is kept as x"


@pytest.mark.parametrize(
    ("detail", "example", "options"),
    [
        ("not valid UTF-8", "x", "options: {encoding: ...}, such as UTF-16 or windows-1252"),
        (_HEADER.format("id;day;note"), None, "options: {sep: ';'}"),
        (_HEADER.format("id\\tday\\tnote"), None, "options: {sep: '\\t'}"),
        (_HEADER.format("id, day, nota"), None, None),
        (None, "x", None),
    ],
)
def test_the_option_that_may_be_missing_is_named(
    capsys: pytest.CaptureFixture[str], detail: str | None, example: str | None, options: str | None
) -> None:
    show_causes([_row(detail, example)], {})
    lines = capsys.readouterr().out.splitlines()[2 if example is None else 3 :]
    assert lines == ([] if options is None else [_RIGHT.format(options)])


@pytest.mark.parametrize(
    ("detail", "example", "options"),
    [
        ("day: not a DATE", "1,09/03/2026,", _EITHER),
        ("n: not an INT; day: not a DATE", "x,09/03/2026,", _EITHER),
        ("day: not a DATE", "1,31/03/2026,", "options: {dateFormat: dd/MM/yyyy}"),
        ("day: not a DATE", "1,3/31/2026,", "options: {dateFormat: M/d/yyyy}"),
        ("day: not a DATE", '1,"3.4.2026",', "options: {dateFormat: d.M.yyyy}"),
        ("at: not a TIMESTAMP", "1,,31.12.2026 10:20:30", "options: {timestampFormat: dd.MM.yyyy HH:mm:ss}"),
        ("day: not a DATE", "1,3-4-2026,", "options: {dateFormat: d-M-yyyy} or {dateFormat: M-d-yyyy}"),
        ("at: not a TIMESTAMP", "1,31.12.2026,05/13/2026 10:00", "options: {timestampFormat: MM/dd/yyyy HH:mm}"),
        ("at: not a TIMESTAMP", "1,31.12.2026,noon", None),
        ("day: not a DATE", "1,31.12.2026 10:20,", None),
        ("day: not a DATE", "1,31.02.2026,", None),
        ("day: not a DATE", "1,2026-02-30,", None),
        ("day: not a DATE", "1,n/a,31.12.2026 10:00", None),
        ("day: not a DATE", "31.12.2026", None),
        ("n: not an INT", "1,31.12.2026,", None),
    ],
)
def test_a_pattern_comes_from_the_value_of_the_column(
    capsys: pytest.CaptureFixture[str], detail: str, example: str, options: str | None
) -> None:
    show_causes([_row(detail, example)], {"orders": _source()})
    lines = capsys.readouterr().out.splitlines()[3:]
    assert lines == ([] if options is None else [_RIGHT.format(options)])


def test_the_value_of_a_column_of_json_is_found_by_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    source = _source(format="json", schema="at TIMESTAMP_NTZ, day DATE")
    row = _row("at: not a TIMESTAMP_NTZ", '{"day": "01.02.2026", "at": "31-12-2026 10:20"}')
    known: list[dict[str, SourceSpec]] = [{}, {"orders": source}]
    for sources in known:
        show_causes([row], sources)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 7 and lines[-1] == _RIGHT.format("options: {timestampNTZFormat: dd-MM-yyyy HH:mm}")


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("31.02.2026", "  31.02.2026 is written as dateFormat: dd.MM.yyyy says, but there is no such day or time"),
        ("02/28/2026", _RIGHT.format("options: {dateFormat: MM/dd/yyyy}, instead of dd.MM.yyyy for all records")),
        ("soon", None),
    ],
)
def test_an_option_that_is_set_is_not_proposed(capsys: pytest.CaptureFixture[str], text: str, hint: str | None) -> None:
    source = _source(options={"dateFormat": "dd.MM.yyyy", "sep": ";"})
    show_causes([_row("day: not a DATE", f"1;{text};01.02.2026")], {"orders": source})
    assert capsys.readouterr().out.splitlines()[3:] == ([] if hint is None else [hint])


def _source(**keys: object) -> FilesSource:
    known: dict[str, object] = {"format": "csv", "schema": "n INT, day DATE, at TIMESTAMP", **keys}
    return FilesSource.construct(type="files", path="in", **known)


def test_an_example_without_a_visible_character_is_shown_as_python_writes_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show_causes([_row("not a JSON object", " \0")], {})
    assert "  like: ' \\x00'" in capsys.readouterr().out


def test_counts_agree_with_their_nouns(capsys: pytest.CaptureFixture[str]) -> None:
    told = [count_of(number, "file") for number in (0, 1, 2, 1000)]
    assert told == ["0 files", "1 file", "2 files", "1,000 files"]
    assert [count_of(number, "batch", "batches") for number in (1, 2)] == ["1 batch", "2 batches"]
    report = new_report("orders", "r1")
    report.outcome, report.sources = "published", {"s": {"rows": 1, "files": 1, "bytes": 1}}
    report.table = {"path": "t", "version": 1, "rows_added": 1, "files_added": 1}
    report.quality = {"verdict": "failed", "results": [_result(1), _result(None)]}
    show_report(report.to_json())
    shown = capsys.readouterr().out
    assert "  source s: 1 row, 1 file, 1 byte\n" in shown and "version 1  +1 row in 1 file\n" in shown
    assert "  quality: failed, 2 rules\n" in shown and "(kind): 1 row\n" in shown
    report.quality["results"].pop()
    show_report(report.to_json())
    assert "  quality: failed, 1 rule\n" in capsys.readouterr().out
    event = {"event": "progress", "batch": 0, "files": 1, "rows": 2}
    assert describe_event(event) == "progress: batch 0 | 1 file | 2 rows"


def _result(count: int | None) -> dict[str, Any]:
    rule = {"rule": "r", "type": "kind", "severity": "critical", "success": False}
    return {**rule, "unexpected_count": count, "observed_value": None}


@pytest.mark.parametrize(
    ("is_known", "said"),
    [
        (True, "1 file (20 bytes) and 3 offsets of these for windows that reach over its ends"),
        (False, "all that runs have taken, 1 file (20 bytes) and 3 offsets of it for joins and windows that may need"),
    ],
)
def test_a_backfill_says_what_it_reads_of_other_times(
    capsys: pytest.CaptureFixture[str], is_known: bool, said: str
) -> None:
    interval: Any = {
        "partitions": "day=2026-01-01",
        "days": ["day=2026-01-01"],
        "rows_now": 1,
        "files_now": 1,
        "files": 2,
        "bytes": 70,
        "offsets": 5,
    }
    interval |= {"rows_of_others": 0, "stays_in_quarantine": 0, "stays_discarded": 0}
    interval |= {"margin": {"files": 1, "bytes": 20, "offsets": 3, "is_known": is_known}, "older": None}
    show_backfill(
        {
            "pipeline": "flow",
            "intervals": [interval],
            "sinks": ["sink console gets more"],
            "columns": None,
            "hindrance": None,
        }
    )
    assert said in capsys.readouterr().out


def test_a_backfill_shows_how_many_days_an_interval_has(capsys: pytest.CaptureFixture[str]) -> None:
    days = [f"day=2026-01-{day:02d}" for day in range(1, 31)]
    interval: Any = {"partitions": "day=2026-01-01..2026-01-30", "days": days, "rows_now": 60, "files_now": 30}
    interval |= {"files": 30, "bytes": 547_049, "offsets": 0, "margin": None, "rows_of_others": 0, "older": None}
    interval |= {"stays_in_quarantine": 0, "stays_discarded": 0}
    show_backfill({"pipeline": "erp", "intervals": [interval], "sinks": [], "columns": None, "hindrance": None})
    assert capsys.readouterr().out.splitlines() == [
        "erp: 1 interval",
        "  day=2026-01-01..2026-01-30 (30 days): 60 rows in 30 files now; read again: 30 files (547,049 bytes)",
        "  would: rebuild it with one Spark driver, in one version of the table, if it passes the gate",
    ]


def test_a_refresh_says_what_stays_and_why(capsys: pytest.CaptureFixture[str]) -> None:
    interval: Any = {
        "partitions": "the table, but for its older part",
        "days": [""],
        "rows_now": 1,
        "files_now": 1,
        "files": 2,
    }
    interval |= {"bytes": 70, "offsets": 0, "margin": None, "rows_of_others": 0, "stays_in_quarantine": 0}
    older = {"files": 2, "rows": 9, "partitions": ["day=1"], "until": "noon", "lost": ["data/in/1.json is gone"]}
    show_backfill(
        {
            "pipeline": "flow",
            "intervals": [{**interval, "stays_discarded": 0, "older": older}],
            "sinks": [],
            "columns": None,
            "hindrance": None,
        }
    )
    said = capsys.readouterr().out
    assert "the older part stays as it is: 9 rows in 2 files of day=1, published until noon; the reason: " in said
    assert "data/in/1.json is gone" in said


def test_a_refresh_shows_the_columns_before_and_after(capsys: pytest.CaptureFixture[str]) -> None:
    interval: Any = {
        "partitions": "the whole table",
        "days": ["the whole table"],
        "rows_now": 1204,
        "files_now": 3,
        "files": 3,
        "bytes": 88_310,
    }
    interval |= {"offsets": 0, "margin": None, "rows_of_others": 0, "stays_in_quarantine": 0, "stays_discarded": 0}
    interval |= {"older": None}
    before = {"id": "BIGINT", "kunde_name": "STRING", "betrag": "DECIMAL(12,2)"}
    after = {"id": "BIGINT", "kundenname": "STRING", "betrag": "DECIMAL(14,2)"}
    columns = {"before": before, "after": after}
    show_backfill({"pipeline": "erp", "intervals": [interval], "sinks": [], "columns": columns, "hindrance": None})
    assert capsys.readouterr().out.strip() == shown("refresh --dry-run, columns")


def test_a_run_that_is_not_incremental_shows_its_mode(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    held = Held(tmp_path)
    for number, mode in enumerate(("incremental", "rollback", "refresh")):
        report = new_report(NAME, f"R{number}")
        report.mode, report.outcome = mode, "published"
        save_report(held.paths, report)
    show_status(project_status(held.project, NAME))
    shown = capsys.readouterr().out
    assert "  R0\n" in shown and "  R1 (rollback)\n" in shown and "  R2 (refresh)\n" in shown


def test_columns_that_a_refresh_changed_are_in_its_report(capsys: pytest.CaptureFixture[str]) -> None:
    report = new_report("orders", "r1")
    report.outcome, report.rebuilt = "published", ["the whole table"]
    report.table = {"version": 3, "path": "t", "rows_added": 1, "files_added": 1}
    report.table["columns"] = {"before": {"a": "INT", "b": "STRING"}, "after": {"a": "BIGINT"}}
    show_report(report.to_json())
    assert "  columns: b STRING leaves; a INT becomes BIGINT\n" in capsys.readouterr().out
