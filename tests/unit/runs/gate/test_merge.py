"""Update and complete mode: what remains of an increment, what it replaces in the table, what the report says."""

from __future__ import annotations

import json
import random
from collections import Counter
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.delta import open_table
from tests.support.keyed import Keyed
from tests.support.readers import Rows, canonical, read_agreed
from tests.support.staged import QUERY, make_schema
from tidegate.core import storage
from tidegate.core.errors import DefectError, TidegateError, TryAgainError, UsageError
from tidegate.quality.engine import RuleResult
from tidegate.quality.suite import RuleSpec, SuiteSpec
from tidegate.runs.gate import increment
from tidegate.runs.gate import increment as merging
from tidegate.runs.opening import recover_run
from tidegate.runs.reports.verdicts import Decision, StoredVerdict, load_verdict, save_decision, save_verdict
from tidegate.spec.models import TableSpec
from tidegate.state.manifest import StagedFile, batch_keys
from tidegate.table.log.state import DataFile, list_data_files, read_table_state
from tidegate.table.publish.intent import write_intent
from tidegate.table.upsert import merge
from tidegate.table.upsert.columns import UpsertColumns, find_columns
from tidegate.table.upsert.merge import KeyIndex, arrow_type, find_repeated, replace_rows


def row(id_: int | None, n: int = 0, city: str | None = "Oslo") -> dict[str, Any]:
    return {"id": id_, "city": city, "n": n}


def table_of(keyed: Keyed) -> Rows:
    return sorted(read_agreed(keyed.paths.table), key=lambda r: (r["id"] is None, r["id"]))


@pytest.fixture
def keyed(tmp_path: Path) -> Keyed:
    return Keyed(tmp_path)


def test_a_row_replaces_the_one_with_its_key(keyed: Keyed) -> None:
    keyed.stage([row(1), row(2), row(None)], files=2)
    keyed.run("first")
    keyed.stage([row(2, 7), row(3, 7), row(None, 7)])
    report = keyed.run("second")
    assert table_of(keyed) == [row(1), row(2, 7), row(3, 7), row(None, 7)]
    assert report.outcome == "published"
    assert (report.rows["staged"], report.rows["published"], report.rows["superseded"]) == (3, 3, 0)
    figures = {key: report.table[key] for key in ("rows_added", "rows_removed", "files_added", "files_removed")}
    # of the first file, with the rows 1 and NULL, row 1 stays in a copy; the second, with row 2, only goes
    assert figures == {"rows_added": 3, "rows_removed": 2, "files_added": 2, "files_removed": 2}
    assert keyed.leftovers() == []


def test_of_several_batches_the_last_one_counts(keyed: Keyed) -> None:
    keyed.stage([row(1), row(2), row(3)], [row(2, 1), row(4, 1)], [row(2, 2), row(4, 2), row(5, 2)])
    report = keyed.run()
    assert table_of(keyed) == [row(1), row(2, 2), row(3), row(4, 2), row(5, 2)]
    assert (report.rows["staged"], report.rows["published"], report.rows["superseded"]) == (8, 5, 3)
    assert (report.table["rows_added"], report.table["rows_removed"]) == (5, 0)
    assert keyed.leftovers() == []


def test_the_reports_of_runs_that_died_say_what_became_of_their_own_rows(keyed: Keyed) -> None:
    keyed.stage([row(1), row(2)], [row(2, 1)])
    keyed.run("run-1")
    first, second = (json.loads(keyed.paths.report(f"run-{number}").read_bytes()) for number in (0, 1))
    assert first["published_by"] == "run-1"
    assert (first["rows"]["staged"], first["rows"]["published"], first["rows"]["superseded"]) == (2, 1, 1)
    assert (first["table"]["rows_added"], first["table"]["rows_removed"]) == (1, 0)
    assert (second["rows"]["staged"], second["rows"]["published"], second["rows"]["superseded"]) == (3, 2, 1)


def test_a_row_moves_to_the_partition_it_now_belongs_to(tmp_path: Path) -> None:
    keyed = Keyed(tmp_path, partition_by=["city"])
    keyed.stage([row(1), row(2), row(3, 0, "01"), row(4, 0, None)])
    keyed.run()
    keyed.stage([row(1, 1, "01"), row(3, 1, None), row(4, 1)])
    assert keyed.run().table["rows_removed"] == 3
    assert table_of(keyed) == [row(1, 1, "01"), row(2), row(3, 1, None), row(4, 1)]
    files = {file.path.split("/")[0]: file.rows for file in list_data_files(keyed.paths.table)}
    assert set(files) == {"city=Oslo", "city=%301", "city=__HIVE_DEFAULT_PARTITION__"}


def test_the_same_file_is_replaced_again_and_again(tmp_path: Path) -> None:
    keyed = Keyed(tmp_path, partition_by=["city"])
    keyed.stage([row(number) for number in range(6)])
    keyed.run()
    for turn in range(1, 5):
        keyed.stage([row(turn, turn)])
        assert keyed.run(f"turn {turn}").table["rows_removed"] == 1
    assert table_of(keyed) == [row(number, number if number < 5 else 0) for number in range(6)]


@pytest.mark.parametrize("partition_by", [[], ["city"]])
def test_copies_are_put_together(tmp_path: Path, partition_by: list[str]) -> None:
    """However often rows are replaced, a partition has the files of the last run and one with the rows that stayed."""
    keyed = Keyed(tmp_path, partition_by=partition_by)
    cities, rng = ("Oslo", "Bonn") if partition_by else ("Oslo",), random.Random(1)
    wanted = {number: row(number, 0, cities[number % len(cities)]) for number in range(400)}
    keyed.stage(list(wanted.values()), files=4)
    keyed.run()
    for turn in range(1, 9):
        changed = [row(number, turn, cities[number % len(cities)]) for number in rng.sample(range(400), 300)]
        wanted |= {int(one["id"]): one for one in changed}
        keyed.stage(changed, files=4)
        keyed.run()
        paths = [keyed.paths.table / file.path for file in list_data_files(keyed.paths.table)]
        assert len(paths) <= (4 + 1) * len(cities)
        assert {pq.read_metadata(path).num_row_groups for path in paths} == {1}
    assert table_of(keyed) == list(wanted.values())
    assert keyed.leftovers() == []


def test_copies_of_large_files_stay_alone(keyed: Keyed, monkeypatch: pytest.MonkeyPatch) -> None:
    keyed.stage([row(number) for number in range(90)], files=3)
    keyed.run()
    size = max(file.size_bytes for file in list_data_files(keyed.paths.table))
    monkeypatch.setattr(merge, "COPIED_BYTES_AT_MOST", 2 * size)
    keyed.stage([row(number, 1) for number in range(3)])
    report = keyed.run()
    assert report.table["files_removed"] == 3 and len(list_data_files(keyed.paths.table)) == 3  # new, two copies
    assert table_of(keyed) == [row(number, int(number < 3)) for number in range(90)]


def test_files_without_the_key_are_not_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keyed = Keyed(tmp_path, keys=["city", "id"], partition_by=["city"])
    keyed.stage([row(number, 0, city) for number in range(3) for city in ("Oslo", "Bonn", None)])
    keyed.run()
    keyed.stage([row(number, 0, "Oslo") for number in range(100, 103)])
    keyed.run()
    before = {file.path for file in list_data_files(keyed.paths.table)}
    read: list[str] = []
    real = pq.ParquetFile.read_row_groups

    def spy(self: Any, *args: Any, **kwargs: Any) -> Any:
        read.append(str(kwargs.get("columns")))
        return real(self, *args, **kwargs)

    monkeypatch.setattr(pq.ParquetFile, "read_row_groups", spy)
    keyed.stage([row(1, 5, "Oslo")])
    keyed.run()
    monkeypatch.undo()
    # read: the new row's key twice (to fold, to merge), and the one file whose partition and range fit
    assert read == ["['id']"] * 3
    gone = before - {file.path for file in list_data_files(keyed.paths.table)}
    assert len(gone) == 1 and len(table_of(keyed)) == 12


def test_complete_replaces_the_table(tmp_path: Path) -> None:
    keyed = Keyed(tmp_path, keys=[], mode="complete", partition_by=["city"])
    keyed.stage([row(1), row(2)], [row(1, 1), row(2, 1), row(3, 1, None)])
    report = keyed.run("first")
    assert table_of(keyed) == [row(1, 1), row(2, 1), row(3, 1, None)]
    assert (report.rows["staged"], report.rows["published"], report.rows["superseded"]) == (5, 3, 2)
    keyed.stage([row(3, 2)])
    report = keyed.run("second")
    assert table_of(keyed) == [row(3, 2)]
    assert (report.table["rows_added"], report.table["rows_removed"], report.table["files_removed"]) == (1, 3, 2)
    keyed.stage([])
    report = keyed.run("third")
    assert read_agreed(keyed.paths.table) == []
    assert (report.table["rows_added"], report.table["rows_removed"]) == (0, 1)
    assert keyed.leftovers() == []


def test_a_new_column_and_copies_of_older_files(keyed: Keyed) -> None:
    keyed.stage([row(1), row(2)])
    keyed.run()
    wider = Keyed(keyed.root, {**keyed.columns, "note": "string"}, ["id"], next_batch=1)
    wider.stage([{**row(2, 1), "note": "new"}])
    wider.run()
    assert table_of(wider) == [{**row(1), "note": None}, {**row(2, 1), "note": "new"}]
    by_note = Keyed(keyed.root, wider.columns, ["id", "note"], next_batch=2)
    by_note.stage([{**row(1, 2), "note": None}, {**row(2, 2), "note": "other"}])
    by_note.run()
    assert canonical(read_agreed(keyed.paths.table)) == canonical(
        [{**row(1, 2), "note": None}, {**row(2, 1), "note": "new"}, {**row(2, 2), "note": "other"}]
    )


def test_keys_that_are_not_unique_stop_before_anything_is_seen(keyed: Keyed) -> None:
    keyed.stage([row(1)])
    keyed.run()
    keyed.stage([row(2)], [row(1, 1, "Bonn"), row(1, 2, "Oslo"), row(None), row(None, 3, "Rome")])
    with pytest.raises(UsageError) as caught:
        keyed.run("stopped")
    error = caught.value
    assert (error.code, error.exit_code) == ("UPDATE_KEYS_NOT_UNIQUE", 64)
    assert "batch 2" in error.message and "id=1; id=NULL" in error.message
    assert "distinguish them to table.keys" in str(error.fix) and "tidegate repair orders --rebuild" in str(error.fix)
    assert table_of(keyed) == [row(1)]
    keyed.keys = ["id", "city"]
    report = keyed.run("corrected")
    assert (report.rows["published"], report.table["rows_removed"]) == (5, 1)
    assert len(read_agreed(keyed.paths.table)) == 5
    assert keyed.leftovers() == []


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (["idd"], "the rows have no column 'idd' (is it 'id'?)"),
        (["price"], "column 'price' is DOUBLE, and values of this type cannot be compared reliably"),
        ([], "there are none"),
    ],
)
def test_columns_that_cannot_be_keys(keys: list[str], said: str) -> None:
    with pytest.raises(UsageError, match="TABLE_KEYS") as caught:
        find_columns(TableSpec(keys=keys), make_schema(id="long", price="double"))
    assert said in caught.value.message and caught.value.exit_code == 64


def test_keys_take_the_rows_spelling_and_nested_ones_are_refused() -> None:
    assert find_columns(TableSpec(keys=["ID"]), make_schema(id="long", price="double")) == UpsertColumns({"id": "long"})
    nested = json.loads(make_schema(id="long"))
    nested["fields"] += [
        {"name": "tags", "type": {"type": "array", "elementType": "string", "containsNull": True}, "nullable": True}
    ]
    with pytest.raises(UsageError, match="ARRAY<STRING>"):
        find_columns(TableSpec(keys=["tags"]), json.dumps(nested))


KINDS: dict[str, list[Any]] = {
    "string": ["a", "", "é", None], "long": [1, -1, 2**62, None], "integer": [1, 2, None], "short": [1, 2, None],
    "byte": [1, -2, None], "boolean": [True, False, None], "date": [date(2026, 1, 1), date(1970, 1, 1), None],
    "timestamp": [datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, 0, 0, 0, 1, UTC), None],
    "decimal(38,2)": [Decimal("1.20"), Decimal("-5.00"), None], "binary": [b"\x00", b"\xff", b"", None],
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_key_with_null(kind: str) -> None:
    values = KINDS[kind]
    table = pa.table({"k": pa.array(values, arrow_type(kind)), "other": pa.array([1] * len(values))})
    index = KeyIndex(table)
    numbers = index.find(table)
    assert sorted(numbers.to_pylist()) == list(range(len(values)))
    assert find_repeated(table, numbers) == []
    more = pa.concat_tables([table, table.slice(0, 1)])
    assert len(find_repeated(more, KeyIndex(more).find(more))) == 1
    assert KeyIndex(table.slice(1)).find(table).to_pylist()[0] is None


def write(folder: Path, name: str, table: pa.Table, **options: Any) -> StagedFile:
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, folder / name, store_schema=False, store_decimal_as_integer=True, **options)
    return StagedFile(name, table.num_rows, (folder / name).stat().st_size, {})


def test_copies_keep_every_type_and_the_files_own_schema(tmp_path: Path) -> None:
    nested = pa.struct([("x", pa.int32()), ("tags", pa.list_(pa.field("element", pa.string())))])
    schema = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            ("at", pa.timestamp("us", "UTC")),
            ("small", pa.int16()),
            ("price", pa.decimal128(9, 2)),
            ("huge", pa.decimal128(38, 4)),
            ("raw", pa.binary()),
            ("day", pa.date32()),
            ("place", nested),
            ("labels", pa.map_(pa.string(), pa.int32())),
        ],
        metadata={"org.apache.spark.sql.parquet.row.metadata": "{}"},
    )
    at = datetime(2026, 1, 31, 12, 0, 0, 123456, UTC)
    full = {
        "id": 1, "at": at, "small": -3, "price": Decimal("1.20"), "huge": Decimal("123456789.0001"), "raw": b"\xff\x00",
        "day": date(1969, 1, 1), "place": {"x": 1, "tags": ["a", None]}, "labels": [("k", 1), ("z", None)],
    }  # fmt: skip
    rows = [full, dict.fromkeys(full) | {"id": 2}, full | {"id": 3}, full | {"id": 4, "place": {"x": None, "tags": []}}]
    state, table_path = tmp_path / "state", tmp_path / "table"
    old = write(table_path, "old.parquet", pa.Table.from_pylist(rows, schema), row_group_size=2)
    new = write(state, "new.parquet", pa.Table.from_pylist([full | {"id": 3}], schema))
    found, _ = replace_rows(
        [new],
        UpsertColumns({"id": "long"}),
        table_path,
        [DataFile("old.parquet", 4, old.size_bytes)],
        state=state,
        folder=state / "copies",
    )
    (copy,) = found.carried
    assert (copy.rows, [file.path for file in found.remove]) == (3, ["old.parquet"])
    before, after = pq.ParquetFile(table_path / "old.parquet"), pq.ParquetFile(state / copy.path)
    assert after.read().to_pylist() == [r for r in before.read().to_pylist() if r["id"] != 3]
    assert str(after.schema).partition("\n")[2] == str(before.schema).partition("\n")[2]
    assert after.schema_arrow.metadata == before.schema_arrow.metadata


def test_the_audit_judges_what_becomes_visible(keyed: Keyed, monkeypatch: pytest.MonkeyPatch) -> None:
    keyed.stage([row(1), row(2)], [row(2, 1)])
    judged: list[Any] = []
    suite = SuiteSpec("orders", (RuleSpec("r", "expect_column_values_to_not_be_null", {"column": "id"}),))

    def judge_files(suite: object, files: Any, types: object) -> list[RuleResult]:
        judged.extend(r for path, _ in files for r in pq.read_table(path, partitioning=None).to_pylist())
        return [RuleResult("r", "t", "critical", True)]

    monkeypatch.setattr("tidegate.quality.pandas_engine.judge_files", judge_files)
    context = keyed.context("r")
    facts = recover_run(context)
    folded = increment.fold_unpublished(keyed.paths, facts.unpublished, keyed.spec)
    increment._judge(context, suite, facts.unpublished, folded)
    assert canonical(judged) == canonical([row(1), row(2, 1)])
    stored = {"batches": [[QUERY, 0], [QUERY, 1]], "results": []}
    storage.replace(keyed.paths.driver_results("r"), storage.dump_json(stored))
    increment._judge(context, suite, facts.unpublished, folded)
    assert len(judged) == 4, "what a driver judged unfolded was taken for it"


def test_what_was_judged_is_published_and_nothing_else(keyed: Keyed) -> None:
    keyed.stage([row(1, 0, "Bonn"), row(2)], [row(1, 1)])
    context = keyed.context("r")
    facts = recover_run(context)
    increment.audit_increment(context, facts)
    keyed.keys = ["id", "city"]
    context.spec = keyed.spec
    verdict = load_verdict(keyed.paths, "r")
    assert verdict is not None
    with pytest.raises(TryAgainError, match="NOT_AUDITED"):
        increment.publish_increment(context, facts, verdict)
    assert read_agreed(keyed.paths.table) == []
    assert keyed.run("r").rows["published"] == 3
    assert len(read_agreed(keyed.paths.table)) == 3


def test_a_discarded_increment_only_moves_the_log_on(keyed: Keyed) -> None:
    keyed.stage([row(1)])
    keyed.run("first")
    keyed.stage([row(1, 1)], [row(1, 2)])
    context = keyed.context("second")
    batches = batch_keys(recover_run(context).unpublished)
    save_verdict(keyed.paths, StoredVerdict("second", batches, {"verdict": "failed"}, ["good"]))
    save_decision(keyed.paths, Decision("second", "discard", "ann@host", "bad", "now", batches))
    recover_run(context)
    report = context.report
    assert (report.outcome, report.rows["published"], report.rows["superseded"]) == ("discarded", 0, 0)
    assert table_of(keyed) == [row(1)]
    assert keyed.last_batch() == 2
    assert keyed.leftovers() == []


def foreign_write(keyed: Keyed, rows: Rows) -> None:
    from deltalake import write_deltalake

    schema = pa.schema([("id", pa.int64()), ("city", pa.string()), ("n", pa.int64())])
    write_deltalake(str(keyed.paths.table), pa.Table.from_pylist(rows, schema), mode="append")


def test_a_plan_for_other_files_is_made_anew(keyed: Keyed, monkeypatch: pytest.MonkeyPatch) -> None:
    keyed.stage([row(1), row(2)])
    keyed.run("first")
    keyed.stage([row(2, 1), row(3, 1)])
    plans: list[Any] = []
    real = merging.plan_replacement

    def plan(*args: Any, **kwargs: Any) -> Any:
        plans.append(real(*args, **kwargs))
        if len(plans) == 1:
            foreign_write(keyed, [row(3), row(4)])
        return plans[-1]

    monkeypatch.setattr(merging, "plan_replacement", plan)
    report = keyed.run("second")
    assert len(plans) == 2
    assert table_of(keyed) == [row(1), row(2, 1), row(3, 1), row(4)]
    assert report.table["rows_removed"] == 2
    assert keyed.leftovers() == []


def test_an_outdated_intent_of_a_dead_run_is_dropped(keyed: Keyed) -> None:
    keyed.stage([row(1), row(2)])
    keyed.run("first")
    keyed.stage([row(2, 1), row(3, 1)])
    context = keyed.context("second")
    facts = recover_run(context)
    verdict = increment.audit_increment(context, facts)
    folded = merging.load_judged(context, facts.unpublished, verdict)
    assert folded is not None
    write_intent(
        keyed.paths,
        merging.plan_merge(
            context, facts.unpublished, folded, run_id="r", app_version_before=0, rows={}, custom_metadata={}
        ),
    )
    foreign_write(keyed, [row(3)])
    keyed.run("third")
    assert table_of(keyed) == [row(1), row(2, 1), row(3, 1)]
    assert keyed.leftovers() == []


def test_a_table_that_changes_under_every_plan_is_told(keyed: Keyed, monkeypatch: pytest.MonkeyPatch) -> None:
    keyed.stage([row(1)])
    keyed.run("first")
    keyed.stage([row(1, 1)])
    real = merging.plan_replacement

    def plan(*args: Any, **kwargs: Any) -> Any:
        intent = real(*args, **kwargs)
        foreign_write(keyed, [row(9)])
        return intent

    monkeypatch.setattr(merging, "plan_replacement", plan)
    with pytest.raises(DefectError, match="PUBLISH_DOES_NOT_FIT"):
        keyed.run("second")


def test_a_file_of_the_table_that_is_gone_is_told(keyed: Keyed) -> None:
    keyed.stage([row(1)])
    keyed.run("first")
    (file,) = list_data_files(keyed.paths.table)
    (keyed.paths.table / file.path).unlink()
    keyed.stage([row(1, 1)])
    with pytest.raises(TidegateError, match="TABLE_FILES_GONE"):
        keyed.run("second")


def test_older_versions_can_still_be_read(keyed: Keyed) -> None:
    keyed.stage([row(1), row(2)])
    keyed.run("first")
    state = read_table_state(keyed.paths.table)
    assert state is not None
    keyed.stage([row(2, 1)])
    keyed.run("second")
    table = open_table(keyed.paths.table)
    # The version just before the commit names the hidden files; those before it are gone from plain sight.
    table.load_as_version(table.version() - 1)
    assert canonical(table.to_pyarrow_table().to_pylist()) == canonical([row(1), row(2)])


@pytest.mark.parametrize("partition_by", [[], ["city"], ["id"]], ids=["flat", "by city", "by key"])
@pytest.mark.parametrize("keys", [["id"], ["city", "id"]], ids=["one key", "two keys"])
@pytest.mark.parametrize("seed", range(3))
def test_random_increments_against_a_dict(tmp_path: Path, partition_by: list[str], keys: list[str], seed: int) -> None:
    dice = random.Random(f"{seed} {partition_by} {keys}")
    keyed = Keyed(tmp_path, keys=keys, partition_by=partition_by)
    expected: dict[tuple[Any, ...], dict[str, Any]] = {}
    ids, cities = [*range(12), None], ["Oslo", "01", "a/b", None]
    for turn in range(6):
        before = dict(expected)
        batches = []
        for _ in range(dice.randint(1, 3)):
            made = [row(dice.choice(ids), dice.randrange(1000), dice.choice(cities)) for _ in range(dice.randrange(6))]
            unique = {tuple(r[key] for key in keys): r for r in made}
            batches.append(list(unique.values()))
            expected |= unique
        keyed.stage(*batches, files=dice.randint(1, 2))
        report = keyed.run(f"turn {turn}")
        assert canonical(read_agreed(keyed.paths.table)) == canonical(list(expected.values()))
        touched = {tuple(r[key] for key in keys) for batch in batches for r in batch}
        assert report.rows["staged"] == sum(map(len, batches))
        assert report.rows["published"] == len(touched) == report.table["rows_added"]
        assert report.table["rows_removed"] == len(touched & set(before))
    assert keyed.leftovers() == []
    assert Counter(tuple(r[key] for key in keys) for r in read_agreed(keyed.paths.table)).most_common(1)[0][1] == 1
