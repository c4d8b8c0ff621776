"""Choosing quarantined records, their ids, and their export."""

from __future__ import annotations

import io
import json
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.staged import make_paths
from tests.unit.table.quarantine.tables import NOON, publish, record
from tidegate.core.errors import UsageError
from tidegate.core.paths import PipelinePaths
from tidegate.table.quarantine.filters import QuarantineFilter, Where, parse_where, unknown_name
from tidegate.table.quarantine.read import (
    export_quarantine,
    known_reasons,
    list_quarantine,
    show_quarantine,
    walk_quarantine,
)


@pytest.fixture
def paths(tmp_path: Path) -> PipelinePaths:
    paths = make_paths(tmp_path)
    rejected = record(3, "price_positive", detail="breaks price_positive, id (known)")
    publish(paths, 0, [record(1), record(2, detail="breaks price_positive"), rejected])
    publish(paths, 1, [record(4, run_id="run-2", source="rates", raw='{"a":"x=y"}')])
    return paths


def lines_of(paths: PipelinePaths, **wanted: Any) -> list[int]:
    found = walk_quarantine(paths.quarantine, QuarantineFilter(**wanted))
    return sorted(json.loads(one.row["position"])["line"] for one in found)


@pytest.mark.parametrize(
    "wanted, lines",
    [
        ({}, [1, 2, 3, 4]),
        ({"reason": "malformed"}, [1, 2, 4]),
        ({"rule": "price_positive"}, [3]),  # not the malformed record whose words are alike
        ({"rule": "id (known)"}, [3]),
        ({"rule": "id"}, []),
        ({"run_id": "run-2"}, [4]),
        ({"where": ["source=rates"]}, [4]),
        ({"where": ['raw={"a":"x=y"}']}, [4]),
        ({"where": ["raw~line"]}, [1, 2, 3]),
        ({"where": ["raw~line", "detail~price"]}, [2, 3]),
        ({"where": ["position~x.json"], "reason": "price_positive"}, [3]),
        ({"where": ["raw=line"]}, []),
    ],
)
def test_filters(paths: PipelinePaths, wanted: dict[str, Any], lines: list[int]) -> None:
    chosen = {**wanted, "where": parse_where(wanted.get("where", ()))}
    assert lines_of(paths, **chosen) == lines
    assert sum(one["records"] for one in list_quarantine(paths.quarantine, QuarantineFilter(**chosen))) == len(lines)
    shown = show_quarantine(paths.quarantine, QuarantineFilter(**chosen), 100)
    assert sorted(one["position"]["line"] for one in shown) == lines  # type: ignore[index]


@pytest.mark.parametrize(
    "text, hint", [("raw", ""), ("", ""), ("sources=a", "; did you mean source?"), ("quarantined_at=2026", "")]
)
def test_a_condition_that_is_none(text: str, hint: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_where([text])
    assert refused.value.code == "QUARANTINE_WHERE" and f"`{text}`" in refused.value.message
    assert refused.value.message.endswith(f"quarantined record{hint}")


def test_conditions_are_read_as_they_are_written() -> None:
    assert parse_where(["raw~ a=b", "detail="]) == (Where("raw", " a=b", True), Where("detail", "", False))


def test_a_name_that_no_record_and_no_rule_has(paths: PipelinePaths) -> None:
    reasons, rules = known_reasons(paths.quarantine)
    assert reasons == {"malformed", "price_positive"} and rules == {"price_positive", "id (known)"}

    def ask(**wanted: Any) -> str | None:
        error = unknown_name(QuarantineFilter(**wanted), reasons, {*rules, "of_suite"}, "orders")
        return None if error is None else error.message

    assert ask(reason="late") is None and ask(rule="of_suite") is None and ask(reason="of_suite") is None
    assert "has the reason malformd" in (told := str(ask(reason="malformd"))) and "did you mean malformed?" in told
    assert "has the rule price_negativ" in str(ask(rule="price_negativ"))
    assert "has the rule malformed" in str(ask(rule="malformed"))


def test_ids_tell_equal_records_apart_and_are_the_same_wherever_they_are_printed(tmp_path: Path) -> None:
    paths = make_paths(tmp_path)
    same = record(1)
    publish(paths, 0, [same, same, record(2)])
    publish(paths, 1, [same, record(3)])
    ids = [found.id for found in walk_quarantine(paths.quarantine)]
    assert len(set(ids)) == len(ids) == 5
    shown = [one["id"] for one in show_quarantine(paths.quarantine, None, 100)]
    assert sorted(shown) == sorted(ids)
    of_one = [
        one["id"] for one in show_quarantine(paths.quarantine, QuarantineFilter(where=parse_where(["raw=line 3"])))
    ]
    assert len(of_one) == 1 and of_one[0] in ids
    out = io.StringIO()
    assert export_quarantine(paths.quarantine, QuarantineFilter(), None, out) == 5
    exported = [json.loads(line) for line in out.getvalue().splitlines()]
    assert sorted(one["id"] for one in exported) == sorted(ids)
    assert exported[0].keys() == show_quarantine(paths.quarantine, None, 1)[0].keys()


def test_an_export_overwrites_nothing_and_is_whole_or_not_there(
    paths: PipelinePaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "out.jsonl"
    assert export_quarantine(paths.quarantine, QuarantineFilter(reason="price_positive"), target, io.StringIO()) == 1
    before = target.read_text()
    with pytest.raises(UsageError) as refused:
        export_quarantine(paths.quarantine, QuarantineFilter(), target, io.StringIO())
    assert refused.value.code == "EXPORT_PLACE" and target.read_text() == before

    for place in (tmp_path / "not" / "there" / "x.jsonl", target / "x.jsonl", Path("/proc/x.jsonl")):
        with pytest.raises(UsageError) as refused:
            export_quarantine(paths.quarantine, QuarantineFilter(), place, io.StringIO())
        assert (refused.value.code, refused.value.exit_code) == ("EXPORT_PLACE", 64)
        assert str(place) in refused.value.message and "irectory" in refused.value.message

    def torn(*_: object) -> Iterator[Any]:
        yield from walk_quarantine(paths.quarantine)
        raise OSError("no space")

    monkeypatch.setattr("tidegate.table.quarantine.read.walk_quarantine", torn)
    with pytest.raises(OSError, match="no space"):
        export_quarantine(paths.quarantine, QuarantineFilter(), tmp_path / "torn.jsonl", io.StringIO())
    assert sorted(path.name for path in tmp_path.iterdir() if "torn" in path.name) == []


def test_an_export_holds_a_piece_at_a_time(tmp_path: Path) -> None:
    """Beside ten bytes of each record, by which equal ones are told apart."""
    paths = make_paths(tmp_path)
    count, long = 20_000, "x" * 500
    publish(paths, 0, [record(number, raw=f"{long}{number}", quarantined_at=NOON) for number in range(count)])
    tracemalloc.start()
    try:
        assert export_quarantine(paths.quarantine, QuarantineFilter(), tmp_path / "all.jsonl", io.StringIO()) == count
        assert tracemalloc.get_traced_memory()[1] < 6 << 20  # of 10 MiB of text
    finally:
        tracemalloc.stop()


def test_no_quarantine_at_all(tmp_path: Path) -> None:
    paths = make_paths(tmp_path)
    out = io.StringIO()
    assert export_quarantine(paths.quarantine, QuarantineFilter(), None, out) == 0 and out.getvalue() == ""
    assert known_reasons(paths.quarantine) == (set(), set())
