"""Upserts with ``order_by``: of several changes of a key the newest counts, whatever the order of their arrival."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.support.keyed import Keyed
from tests.support.readers import Rows, canonical, read_agreed
from tests.support.staged import make_schema
from tidegate.core.errors import TryAgainError, UsageError
from tidegate.runs.gate import increment
from tidegate.runs.opening import recover_run
from tidegate.runs.reports.verdicts import Decision, StoredVerdict, load_verdict, save_decision, save_verdict
from tidegate.sinks.rows import read_versions
from tidegate.spec.models import TableSpec
from tidegate.table.log.state import list_data_files, read_commit_metadata
from tidegate.table.upsert.columns import find_columns
from tidegate.table.upsert.merge import KeyIndex, _is_greater, arrow_type, find_newest


def row(id_: int | None, n: int | None, city: str | None = "Oslo") -> dict[str, Any]:
    return {"id": id_, "city": city, "n": n}


@pytest.fixture
def keyed(tmp_path: Path) -> Keyed:
    return Keyed(tmp_path, order_by="n")


def table_of(keyed: Keyed) -> Rows:
    return sorted(read_agreed(keyed.paths.table), key=lambda r: (r["id"] is None, r["id"]))


def counts(report: Any) -> tuple[int, int, int]:
    return report.rows["staged"], report.rows["published"], report.rows["superseded"]


def test_the_newest_change_of_a_key_remains_within_an_increment(keyed: Keyed) -> None:
    keyed.stage(
        [row(1, 5), row(1, 7, "Bonn"), row(1, 6), row(2, 1)], [row(1, 3), row(2, 2), row(None, 1), row(None, 0)]
    )
    report = keyed.run()
    assert table_of(keyed) == [row(1, 7, "Bonn"), row(2, 2), row(None, 1)]
    assert counts(report) == (8, 3, 5)
    assert keyed.leftovers() == []


def test_a_change_that_is_older_than_the_tables_row_is_not_applied(keyed: Keyed) -> None:
    keyed.stage([row(1, 5), row(2, 5), row(3, 5)])
    keyed.run()
    before = {file.path for file in list_data_files(keyed.paths.table)}
    keyed.stage([row(1, 4, "late"), row(4, 1), row(4, 0, "late")], [row(2, 6), row(2, 5, "late"), row(3, 5, "equal")])
    report = keyed.run()
    assert table_of(keyed) == [row(1, 5), row(2, 6), row(3, 5, "equal"), row(4, 1)]
    assert counts(report) == (6, 3, 3)
    assert (report.table["rows_added"], report.table["rows_removed"]) == (3, 2)
    rows = json.loads(read_commit_metadata(keyed.paths.table, report.table["version"])["tidegate.rows"])
    assert [rows[key] for key in ("staged", "published", "superseded")] == [6, 3, 3]
    to_sinks = list(read_versions(keyed.paths.table, report.table["version"]))
    assert canonical(to_sinks) == canonical([row(2, 6), row(3, 5, "equal"), row(4, 1)])
    keyed.stage([row(1, 1), row(2, 1)])
    report = keyed.run("only late ones")
    assert (report.outcome, counts(report)) == ("published", (2, 0, 2))
    assert (report.table["files_added"], report.table["files_removed"], report.table["rows_removed"]) == (0, 0, 0)
    assert before.isdisjoint({file.path for file in list_data_files(keyed.paths.table)})
    assert keyed.leftovers() == []


def test_the_reports_of_runs_that_died_count_their_own_late_changes(keyed: Keyed) -> None:
    keyed.stage([row(1, 5), row(2, 5)])
    keyed.run("first")
    keyed.stage([row(1, 4), row(3, 1)], [row(2, 1), row(3, 2), row(4, 1)])
    keyed.run("run-2")
    first, second = (json.loads(keyed.paths.report(f"run-{number}").read_bytes()) for number in (1, 2))
    assert first["published_by"] == "run-2"
    assert [first["rows"][key] for key in ("staged", "published", "superseded")] == [2, 0, 2]
    assert [second["rows"][key] for key in ("staged", "published", "superseded")] == [5, 2, 3]


def test_of_equal_changes_the_last_one_remains(tmp_path: Path) -> None:
    """That of the later batch, and in a batch the later one in its files: always the same one."""
    keyed = Keyed(tmp_path, {"id": "long", "n": "long", "at": "long"}, order_by="n")

    def change(id_: int, at: int) -> dict[str, Any]:
        return {"id": id_, "n": 1, "at": at}

    keyed.stage([change(1, 1), change(1, 2), change(2, 3), change(2, 4), change(2, 5)], [change(2, 6)], files=2)
    keyed.run()
    assert {r["id"]: r["at"] for r in table_of(keyed)} == {1: 2, 2: 6}  # by turns into two files
    keyed.stage([change(1, 7), change(2, 8), change(1, 9)], [change(2, 10)])
    keyed.run()
    assert {r["id"]: r["at"] for r in table_of(keyed)} == {1: 9, 2: 10}


NAN = float("nan")
KINDS: dict[str, list[Any]] = {
    "string": [None, "", "9", "B", "a", "é", "😀"],
    "long": [None, -(2**63), -1, 0, 2**63 - 1],
    "integer": [None, -1, 1], "short": [None, -1, 1], "byte": [None, -1, 1], "boolean": [None, False, True],
    "date": [None, date(1, 1, 1), date(1970, 1, 1), date(9999, 12, 31)],
    "timestamp": [None, datetime(1, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, 0, 0, 0, 1, UTC)],
    "decimal(38,2)": [None, Decimal("-5.00"), Decimal("1.20"), Decimal("1.21")],
    "binary": [None, b"", b"\x00", b"\x7f", b"\xff"],
    "double": [None, -math.inf, -1.5, 0.0, 1e300, math.inf],
    "float": [None, -math.inf, -1.5, 0.0, 1.5, math.inf],
}  # fmt: skip
"""Values of each type in their order."""


def as_column(values: list[Any], kind: str) -> pa.Table:
    return pa.table({"o": pa.chunked_array([pa.array(values, arrow_type(kind))])})


def is_greater(left: Any, right: Any, kind: str) -> bool:
    return bool(_is_greater(as_column([left], kind), as_column([right], kind)).to_pylist()[0])


@pytest.mark.parametrize("kind", KINDS)
def test_the_order_of_every_type(kind: str) -> None:
    values = KINDS[kind]
    equal_to_null = [NAN] if kind in ("double", "float") else []
    for place, value in enumerate(values):
        for other, right in enumerate(values):
            assert is_greater(value, right, kind) == (place > other)
        for nan in equal_to_null:
            assert is_greater(value, nan, kind) == (place > 0) and not is_greater(nan, value, kind)
    shuffled = [*values, *equal_to_null] * 2
    random.Random(kind).shuffle(shuffled)
    same = as_column([7] * len(shuffled), "long")
    stays = find_newest(KeyIndex(same).find(same), as_column(shuffled, kind)).to_pylist()
    last = len(shuffled) - 1 - shuffled[::-1].index(values[-1])
    assert [place for place, one in enumerate(stays) if one] == [last]


def test_two_zeros_are_equal() -> None:
    assert not is_greater(0.0, -0.0, "double") and not is_greater(-0.0, 0.0, "double")


def test_columns_that_cannot_give_an_order() -> None:
    schema = json.loads(make_schema(id="long", price="double"))
    schema["fields"] += [{"name": "place", "type": {"type": "struct", "fields": []}, "nullable": True}]
    found = find_columns(TableSpec(keys=["ID"], order_by="Price"), json.dumps(schema))
    assert (found.keys, found.order) == ({"id": "long"}, {"price": "double"})
    with pytest.raises(UsageError, match="TABLE_KEYS") as caught:
        find_columns(TableSpec(keys=["id"], order_by=["prise", "place"]), json.dumps(schema))
    error = caught.value
    assert (
        "table.order_by cannot be used: the rows have no column 'prise' (is it 'price'?); column 'place'"
        in error.message
    )
    assert (error.where, error.fix) == (
        "pipeline.yaml, table.order_by",
        "correct table.order_by in pipeline.yaml, or cast the column in the transform",
    )


def test_the_copies_of_two_plans_have_different_names(keyed: Keyed) -> None:
    """A stale process must not move its copy to the place of another one."""
    keyed.stage([row(1, 5)])
    keyed.run()
    keyed.stage([row(1, 4), row(2, 1)])
    context = keyed.context("r")
    batches = recover_run(context).unpublished
    [folded] = increment.fold_unpublished(keyed.paths, batches, keyed.spec) or ()
    plans = [
        increment.plan_merge(context, batches, folded, run_id="r", app_version_before=0, rows={}, custom_metadata={})
        for _ in range(2)
    ]
    names = [file.path for plan in plans for file in plan.files_to_add]
    assert len(set(names)) == len(names) == 2


def test_several_columns_are_compared_one_after_the_other(tmp_path: Path) -> None:
    keyed = Keyed(tmp_path, order_by=["city", "n"])
    keyed.stage([row(1, 9, "a"), row(1, 2, "b"), row(1, 1, "b"), row(2, None, "a"), row(2, 5, None)])
    keyed.run()
    assert table_of(keyed) == [row(1, 2, "b"), row(2, None, "a")]
    keyed.stage([row(1, 9, "a"), row(2, 0, "a")])
    keyed.run()
    assert table_of(keyed) == [row(1, 2, "b"), row(2, 0, "a")]
    keyed.stage([row(1, 1, "b"), row(2, None, "a"), row(3, 1, None)])
    assert counts(keyed.run()) == (3, 1, 2)


def test_repeated_keys_without_an_order_are_refused_with_the_yaml_to_write(keyed: Keyed) -> None:
    keyed.order_by = None
    keyed.stage([row(1, 1), row(1, 2)])
    with pytest.raises(UsageError, match="UPDATE_KEYS_NOT_UNIQUE") as caught:
        keyed.run("stopped")
    assert "write `order_by: COLUMN` next to `keys: [id]` in pipeline.yaml" in str(caught.value.fix)
    keyed.order_by = "n"
    assert keyed.run("corrected").rows["superseded"] == 1
    assert table_of(keyed) == [row(1, 2)]


def test_an_order_that_is_changed_after_the_audit_is_audited_again(tmp_path: Path) -> None:
    keyed = Keyed(tmp_path, order_by=["n", "city"])
    keyed.stage([row(1, 1, "b"), row(1, 2, "a")])
    context = keyed.context("r")
    facts = recover_run(context)
    increment.audit_increment(context, facts)
    verdict = load_verdict(keyed.paths, "r")
    assert verdict is not None
    keyed.order_by = ["city", "n"]
    context.spec = keyed.spec
    with pytest.raises(TryAgainError, match="NOT_AUDITED"):
        increment.publish_increment(context, facts, verdict)
    keyed.run("r")
    assert table_of(keyed) == [row(1, 1, "b")]


def test_a_table_gets_an_order_and_loses_it_again(tmp_path: Path) -> None:
    """The order holds from the next run on; rows without the new column are older than any change that has it."""
    plain = Keyed(tmp_path)
    plain.stage([row(1, 5), row(2, 5)])
    plain.run()
    wider = Keyed(tmp_path, {**plain.columns, "at": "long"}, order_by="at", next_batch=1)
    wider.stage([{**row(1, 1), "at": -3}])
    wider.run()
    wider.stage([{**row(1, 0), "at": -4}, {**row(2, 6), "at": None}])
    wider.run()
    assert table_of(wider) == [{**row(1, 1), "at": -3}, {**row(2, 6), "at": None}]
    wider.order_by = None
    wider.stage([{**row(1, 0), "at": -4}])
    wider.run()
    assert table_of(wider)[0] == {**row(1, 0), "at": -4}


def test_a_released_increment_is_compared_with_the_table_by_the_order_it_was_judged_by(keyed: Keyed) -> None:
    keyed.stage([row(1, 5), row(2, 5)])
    keyed.run("first")
    keyed.stage([row(1, 4), row(2, 6), row(2, 7)])
    context = keyed.context("second")
    facts = recover_run(context)
    verdict = increment.audit_increment(context, facts)
    held = StoredVerdict("second", verdict.batches, {"verdict": "failed"}, ["good"], folds=verdict.folds)
    save_verdict(keyed.paths, held)
    save_decision(keyed.paths, Decision("second", "release", "ann@host", "fine", "now", verdict.batches, verdict.folds))
    keyed.order_by = None
    context = keyed.context("second")
    recover_run(context)
    assert table_of(keyed) == [row(1, 5), row(2, 7)]
    assert counts(context.report) == (3, 1, 2)


def cut(changes: Rows, dice: random.Random, at_most: int) -> Iterator[Rows]:
    begin = 0
    while begin < len(changes):
        size = dice.randint(1, at_most)
        yield changes[begin : begin + size]
        begin += size


def compare(left: dict[str, Any], right: dict[str, Any]) -> int:
    for name in ("at", "n"):
        mine, other = (None if r[name] is None or r[name] != r[name] else r[name] for r in (left, right))
        if mine != other:
            return -1 if mine is None or (other is not None and mine < other) else 1
    return 0


@pytest.mark.parametrize("partition_by", [[], ["city"]], ids=["flat", "by city"])
def test_random_changes_against_plain_python(tmp_path: Path, partition_by: list[str]) -> None:
    """Thousands of changes out of order, with equal and missing times, in random batches and runs."""
    dice = random.Random(str(partition_by))
    columns = {"id": "long", "region": "string", "city": "string", "at": "double", "n": "timestamp", "number": "long"}
    keyed = Keyed(tmp_path, columns, ["id", "region"], partition_by, ["at", "n", *(["number"] if partition_by else [])])
    start = datetime(2026, 1, 1, tzinfo=UTC)
    changes = [
        {
            "id": None if dice.random() < 0.001 else dice.randrange(1500),
            "region": dice.choice(["eu", "us", None]),
            "city": dice.choice(["Oslo", "a/b %", None]),
            "at": dice.choice([None, NAN, 0.0, -0.0, float(number // 100 + dice.randint(-30, 30))]),
            "n": dice.choice([None, start + timedelta(microseconds=dice.randrange(3))]),
            "number": number,
        }
        for number in range(9_000)
    ]
    expected: dict[tuple[Any, ...], dict[str, Any]] = {}
    batches = list(cut(changes, dice, 1200))
    while batches:
        now = [batches.pop(0) for _ in range(min(len(batches), dice.randint(1, 4)))]
        for change in (change for batch in now for change in batch):
            key = (change["id"], change["region"])
            if key not in expected or compare(change, expected[key]) >= 0:
                expected[key] = change
        keyed.stage(*now)
        report = keyed.run()
        found = {(r["id"], r["region"]): r["number"] for r in read_agreed(keyed.paths.table)}
        assert found == {key: r["number"] for key, r in expected.items()}
        first = next(iter(now))[0]["number"]
        fresh = sum(r["number"] >= first for r in expected.values())
        assert counts(report) == (sum(map(len, now)), fresh, sum(map(len, now)) - fresh)
    assert canonical(read_agreed(keyed.paths.table)) == canonical(list(expected.values()))
    assert keyed.leftovers() == []
