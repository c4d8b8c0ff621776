"""Another engine turns on what tidegate cannot keep: named before a file moves, and gone on with once taken back."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from tests.support.held import GOOD, Held, commands
from tests.support.keyed import Keyed
from tests.support.readers import canonical, read_agreed, read_with_duckdb
from tidegate.core.errors import DisagreementError, HeldError
from tidegate.runs.restart.repair import repair_pipeline
from tidegate.table.log.files import LOG_FOLDER, commit_name, read_actions
from tidegate.table.log.state import read_log
from tidegate.table.publish import publish
from tidegate.table.publish.intent import pending_intents

MORE = [{"id": n, "n": n} for n in (10, 11)]
V7 = {"minReaderVersion": 3, "minWriterVersion": 7}
Change = Callable[[Path], None]


@pytest.fixture
def held(tmp_path: Path) -> Iterator[Held]:
    """A pipeline that has published four rows."""
    made = Held(tmp_path)
    with commands(lambda: made):
        made.run("R1", GOOD)
        yield made


def write(table: Path, *actions: dict[str, Any]) -> None:
    """A version of another engine."""
    path = table / LOG_FOLDER / commit_name(read_log(table).version + 1)
    path.write_text("\n".join(json.dumps(action) for action in actions))


def configure(table: Path, **settings: str | None) -> None:
    """Give the table these properties (``__`` for a dot), or none of them."""
    metadata = read_log(table).metadata
    merged = {**metadata["configuration"], **{key.replace("__", "."): value for key, value in settings.items()}}
    write(table, {"metaData": {**metadata, "configuration": {k: v for k, v in merged.items() if v is not None}}})


def feature(name: str) -> Change:
    return lambda table: write(table, {"protocol": {**V7, "readerFeatures": [name], "writerFeatures": [name]}})


def plain(table: Path) -> None:
    write(table, {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}})


def add_constraint(table: Path) -> None:
    DeltaTable(str(table)).alter.add_constraint({"small": "n < 100"})


def drop_constraint(table: Path) -> None:
    DeltaTable(str(table)).alter.drop_constraint("small")


def mark_column(key: str, value: object) -> Change:
    def change(table: Path) -> None:
        metadata = read_log(table).metadata
        schema = json.loads(metadata["schemaString"])
        schema["fields"][1]["metadata"] = {key: value} if value is not None else {}
        write(table, {"metaData": {**metadata, "schemaString": json.dumps(schema)}})

    return change


def cluster(*columns: str) -> Change:
    value = json.dumps({"clusteringColumns": [[name] for name in columns], "domainName": "delta.clustering"})
    domain = {"domain": "delta.clustering", "configuration": value, "removed": False}
    features = {"readerFeatures": [], "writerFeatures": ["clustering", "domainMetadata"]}
    return lambda table: write(table, {"protocol": {**V7, **features}}, {"domainMetadata": domain})


def delete_by_vector(table: Path) -> None:
    """One row of the first file is deleted by a vector in the log, which takes the place of the file without one."""
    add = next(iter(read_log(table).added.values()))
    inline = "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L"
    vector = {"storageType": "i", "pathOrInlineDv": inline, "sizeInBytes": 40, "cardinality": 1}
    marked = {**add, "deletionVector": vector}
    features = {"readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}
    gone = {"path": add["path"], "deletionTimestamp": 1, "dataChange": True, "size": add["size"]}
    write(table, {"protocol": {**V7, **features}}, {"add": marked}, {"remove": gone})


def purge(table: Path) -> None:
    """The file with the vector is taken out, and rewritten without it; here with all of its rows."""
    add = next(one for one in read_log(table).added.values() if one.get("deletionVector"))
    gone = {key: add[key] for key in ("path", "size", "deletionVector")}
    whole = {key: value for key, value in add.items() if key != "deletionVector"}
    write(table, {"remove": {**gone, "deletionTimestamp": 2, "dataChange": False}}, {"add": whole})


CASES: dict[str, tuple[Change, Change, str, str]] = {
    "constraint": (add_constraint, drop_constraint, "the constraint small (n < 100)", "DROP CONSTRAINT small"),
    "rowTracking": (feature("rowTracking"), plain, "the feature rowTracking", "DROP FEATURE rowTracking"),
    "typeWidening": (feature("typeWidening"), plain, "the feature typeWidening", "DROP FEATURE typeWidening"),
    "mapping": (
        lambda table: configure(table, delta__columnMapping__mode="name"),
        lambda table: configure(table, delta__columnMapping__mode="none"),
        "delta.columnMapping.mode = name",
        "SET TBLPROPERTIES ('delta.columnMapping.mode' = 'none')",
    ),
    "times": (
        lambda table: configure(table, delta__enableInCommitTimestamps="true"),
        lambda table: configure(table, delta__enableInCommitTimestamps=None),
        "delta.enableInCommitTimestamps = true",
        "SET TBLPROPERTIES",
    ),
    "invariant": (mark_column("delta.invariants", "{}"), mark_column("", None), "an invariant of column n", "write"),
    "generated": (
        mark_column("delta.generationExpression", "id + 1"),
        mark_column("", None),
        "a generation expression of column n",
        "rewrite the table",
    ),
    "identity": (
        mark_column("delta.identity.start", 1),
        mark_column("", None),
        "generated numbers of column n",
        "n of",
    ),
    "clustering": (cluster("id"), cluster(), "clustering", "CLUSTER BY NONE"),
    "vectors": (delete_by_vector, purge, "deletion vectors of 1 files", "REORG TABLE"),
}


def files(table: Path) -> list[str]:
    return sorted(str(path) for path in table.rglob("*") if LOG_FOLDER not in path.parts)


def numbers(table: Path) -> list[int]:
    """Column ``n`` as plain readers see it, and as the log counts it; deltalake reads no table that lists vectors."""
    seen = sorted(row["n"] for row in read_with_duckdb(table))
    logged = [n for file in read_log(table).files() for n in pq.read_table(table / file.path)["n"].to_pylist()]
    assert sorted(logged) == seen
    return seen


@pytest.mark.parametrize("case", CASES)
def test_a_run_stops_before_it_reads_and_goes_on_once_it_is_taken_back(held: Held, case: str) -> None:
    turn_on, take_back, said, undo = CASES[case]
    table = held.paths.table
    turn_on(table)
    before = files(table), read_log(table).version
    with pytest.raises(DisagreementError) as refused:
        held.run("R2", MORE)
    error = refused.value
    assert (error.code, error.exit_code) == ("TABLE_FEATURE", 78)
    assert said in error.message and undo in str(error.fix)
    assert len(held.drained) == 1  # nothing was staged for it
    assert (files(table), read_log(table).version) == before
    told = repair_pipeline(held.project, "orders", dry_run=True)
    assert (told["code"], told["choices"]) == ("TABLE_FEATURE", [error.fix])
    take_back(table)
    held.run("R3", MORE)
    assert numbers(table) == [4, 5, 6, 7, 10, 11]


@pytest.mark.parametrize("case", ["constraint", "vectors"])
def test_an_increment_that_is_staged_already_stays_out_of_the_folder(
    held: Held, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    """Between the audit and the publish, and while the publish looks at its files."""
    turn_on, take_back, said, _ = CASES[case]
    table, real = held.paths.table, publish.check_files
    before = files(table)

    def check_files(*arguments: Any) -> Any:
        found = real(*arguments)
        turn_on(table)
        return found

    with monkeypatch.context() as patch:
        patch.setattr(publish, "check_files", check_files)
        with pytest.raises(DisagreementError, match="another program turned on"):
            held.run("R2", MORE)
    assert files(table) == before
    with pytest.raises(DisagreementError) as refused:
        held.run("R3")
    assert refused.value.code == "TABLE_FEATURE" and said in refused.value.message
    assert (files(table), len(pending_intents(held.paths))) == (before, 1)
    take_back(table)
    held.run("R4")
    assert numbers(table) == [4, 5, 6, 7, 10, 11]
    assert pending_intents(held.paths) == []


def test_a_column_that_is_never_null(held: Held) -> None:
    table, metadata = held.paths.table, read_log(held.paths.table).metadata
    schema = json.loads(metadata["schemaString"])
    schema["fields"][0]["nullable"] = False
    write(table, {"metaData": {**metadata, "schemaString": json.dumps(schema)}})
    held.run("R2", MORE)  # no row of these is without it
    with pytest.raises(HeldError):
        held.run("R3", [{"id": None, "n": 30}])
    before = files(table)
    with pytest.raises(DisagreementError) as refused:
        held.decide("release", "R3")
    assert refused.value.code == "TABLE_FEATURE" and "NOT NULL of column id" in refused.value.message
    assert "ALTER COLUMN id DROP NOT NULL" in str(refused.value.fix)
    assert files(table) == before
    write(table, {"metaData": metadata})
    held.run("R4")
    assert numbers(table) == [4, 5, 6, 7, 10, 11, 30]


def test_features_that_ask_for_nothing_are_gone_on_with(held: Held) -> None:
    table = held.paths.table
    names = ["appendOnly", "checkConstraints", "deletionVectors", "domainMetadata", "vacuumProtocolCheck"]
    readers = ["deletionVectors", "vacuumProtocolCheck"]
    write(table, {"protocol": {**V7, "readerFeatures": readers, "writerFeatures": names}})
    held.run("R2", MORE)
    assert len(read_log(table).files()) == 2


def test_the_quarantine_table_too(held: Held) -> None:
    held.malformed = 1
    held.run("R2", MORE)
    quarantine = held.paths.quarantine
    DeltaTable(str(quarantine)).alter.add_constraint({"named": "reason = 'malformed'"})
    before = files(quarantine)
    with pytest.raises(DisagreementError) as refused:
        held.run("R3", GOOD)
    assert refused.value.code == "TABLE_FEATURE" and str(quarantine) in str(refused.value)
    assert files(quarantine) == before and len(held.drained) == 2
    DeltaTable(str(quarantine)).alter.drop_constraint("named")
    held.run("R4", GOOD)
    assert len(held.quarantined()) == 2


def changes(table: Path, since: int) -> dict[tuple[int, int], int]:
    """By (id, n): how often the change feed of deltalake brings such a row, less how often it takes one."""
    net: dict[tuple[int, int], int] = {}
    for row in pa.table(DeltaTable(str(table)).load_cdf(starting_version=since)).to_pylist():
        sign = {"insert": 1, "update_postimage": 1}.get(row["_change_type"], -1)
        net[(row["id"], row["n"])] = net.get((row["id"], row["n"]), 0) + sign
    return {key: count for key, count in net.items() if count}


def test_the_change_feed_has_what_runs_add_and_replace(tmp_path: Path) -> None:
    keyed = Keyed(tmp_path)
    table = keyed.paths.table
    keyed.stage([{"id": 9, "city": "x", "n": 9}])
    keyed.run()
    DeltaTable(str(table)).alter.set_table_properties({"delta.enableChangeDataFeed": "true"})
    keyed.stage([{"id": n, "city": "x", "n": 0} for n in range(4)])
    keyed.run()
    assert changes(table, 1) == {(n, 0): 1 for n in range(4)}
    before = read_log(table).version
    keyed.stage([{"id": n, "city": "x", "n": 1} for n in (1, 7)])  # one replaces, one is new, three are carried over
    keyed.run()
    expected = {0: 0, 1: 1, 2: 0, 3: 0, 7: 1, 9: 9}
    rows = read_agreed(table)
    assert canonical(rows) == canonical([{"id": id_, "city": "x", "n": n} for id_, n in expected.items()])
    assert changes(table, before + 1) == {(1, 1): 1, (1, 0): -1, (7, 1): 1}


def test_a_table_that_only_takes_further_rows(tmp_path: Path) -> None:
    keyed = Keyed(tmp_path)
    keyed.stage([{"id": 1, "city": "x", "n": 0}])
    keyed.run()
    configure(keyed.paths.table, delta__appendOnly="true")
    keyed.stage([{"id": 1, "city": "x", "n": 1}])
    before = files(keyed.paths.table)
    with pytest.raises(DisagreementError) as refused:
        keyed.run()
    assert (refused.value.code, refused.value.exit_code) == ("TABLE_FEATURE", 78)
    assert "('delta.appendOnly' = 'false')" in str(refused.value.fix)
    assert files(keyed.paths.table) == before
    assert not any("remove" in one for one in read_actions(keyed.paths.table, read_log(keyed.paths.table).version))
    configure(keyed.paths.table, delta__appendOnly="false")
    keyed.run()
    assert read_agreed(keyed.paths.table) == [{"id": 1, "city": "x", "n": 1}]
