"""Spark's Delta writes to our table between any two steps of ours, and every reader has exactly the rows expected.

One Spark with Delta for all of these, in a process of its own. The runs are the real ones, without their driver.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from tests.support.delta_spark import DeltaSpark
from tests.support.held import GOOD, Held, commands
from tests.support.readers import read_with_duckdb
from tests.support.sweep import choose
from tidegate.core.errors import DisagreementError
from tidegate.rework.maintain.command import maintain_pipeline
from tidegate.table.log.commit import CONFIGURATION
from tidegate.table.log.features import name_in_sql
from tidegate.table.log.files import list_names, list_versions
from tidegate.table.log.state import read_table_state
from tidegate.table.publish import publish


@pytest.fixture
def held(tmp_path: Path) -> Iterator[Held]:
    """A pipeline that has published four rows, and then two."""
    made = Held(tmp_path)
    with commands(lambda: made):
        made.run("R1", GOOD)
        made.run("R2", [{"id": n, "n": n} for n in (8, 9)])
        yield made


class Other:
    """The other team at the table, with the rows that should be in it."""

    def __init__(self, delta: DeltaSpark, table: Path) -> None:
        self.delta, self.table, self.rows, self._next = delta, table, {4, 5, 6, 7, 8, 9}, 1000

    def sql(self, *statements: str) -> list[dict[str, Any]]:
        return self.delta.sql(*(one.replace("TABLE_", name_in_sql(self.table)) for one in statements))

    def insert(self) -> None:
        self._next += 1
        self.sql(f"INSERT INTO TABLE_ VALUES ({self._next}, {self._next})")
        self.rows.add(self._next)

    def delete(self) -> None:
        gone = max(n for n in self.rows if n < 10)
        self.sql(f"DELETE FROM TABLE_ WHERE n = {gone}")
        self.rows.remove(gone)

    def update(self) -> None:
        self.sql("UPDATE TABLE_ SET n = n + 5000 WHERE n = 4")
        if 4 in self.rows:
            self.rows = self.rows - {4} | {5004}

    def merge(self) -> None:
        self._next += 1
        self.sql(
            f"MERGE INTO TABLE_ t USING (SELECT explode(array(5, {self._next})) AS n) s ON t.n = s.n "
            "WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT (id, n) VALUES (s.n, s.n)"
        )
        self.rows = {n for n in self.rows if n != 5} | {self._next} | (set() if 5 in self.rows else {5})

    def optimize(self) -> None:
        self.sql("OPTIMIZE TABLE_")

    def vacuum(self) -> None:
        self.sql("VACUUM TABLE_ RETAIN 168 HOURS")

    def checkpoint(self) -> None:
        """One version with a checkpoint, and the clean-up of the log that follows on it, as the other team likes it."""
        eager = "'delta.checkpointInterval' = '1', 'delta.enableExpiredLogCleanup' = 'true'"
        self.sql(f"ALTER TABLE TABLE_ SET TBLPROPERTIES ({eager})")
        self.insert()

    @property
    def acts(self) -> list[Callable[[], None]]:
        return [self.insert, self.delete, self.update, self.merge, self.optimize, self.vacuum, self.checkpoint]


def assert_agreed(held: Held, other: Other) -> None:
    """Spark's Delta, deltalake and a DuckDB glob have exactly these rows."""
    expected, table = sorted(other.rows), held.paths.table
    assert sorted(row["n"] for row in other.delta.read(table)) == expected
    assert sorted(DeltaTable(str(table)).to_pyarrow_table()["n"].to_pylist()) == expected
    assert sorted(row["n"] for row in read_with_duckdb(table)) == expected


STEPS = ["between runs", "check_files", "_move_files", "commit_files", "before maintenance"]


@pytest.mark.parametrize("step", STEPS)
def test_it_writes_between_two_of_our_steps(
    held: Held, delta: DeltaSpark, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    other = Other(delta, held.paths.table)
    for number, act in enumerate(choose(other.acts, 4)):
        if step in ("between runs", "before maintenance"):
            act()
        with monkeypatch.context() as patch:
            if hasattr(publish, step):
                real = getattr(publish, step)
                todo = [act]

                def beside(*arguments: Any, real: Any = real, todo: Any = todo, **more: Any) -> Any:
                    while todo:
                        todo.pop()()
                    return real(*arguments, **more)

                patch.setattr(publish, step, beside)
            if step == "before maintenance":
                maintain_pipeline(held.project, "orders", f"M{number}")
            else:
                held.run(f"S{number}", [{"id": 100 + number, "n": 100 + number}])
                other.rows.add(100 + number)
        held.run(f"T{number}")  # an idle one: what was left behind is hidden
        assert_agreed(held, other)
    assert list_versions(held.paths.table)[0] == 0
    assert not [name for name in list_names(held.paths.table) if name.endswith(".parquet")]


def test_checkpoints_and_log_clean_up_stay_away(held: Held, delta: DeltaSpark) -> None:
    other = Other(delta, held.paths.table)
    for _ in range(11):
        other.insert()
    assert not [name for name in list_names(held.paths.table) if name.endswith(".parquet")]
    other.checkpoint()
    assert [name for name in list_names(held.paths.table) if name.endswith(".parquet")]
    held.run("S1", [{"id": 100, "n": 100}])
    other.rows.add(100)
    assert_agreed(held, other)
    assert DeltaTable(str(held.paths.table)).metadata().configuration == CONFIGURATION
    other.insert()
    assert not [name for name in list_names(held.paths.table) if name.endswith(".parquet")]


FEATURES = {
    "constraint": (["ALTER TABLE TABLE_ ADD CONSTRAINT small CHECK (n < 100000)"], "the constraint small"),
    "deletion vectors": (
        [
            "ALTER TABLE TABLE_ SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')",
            "DELETE FROM TABLE_ WHERE n = 5",
        ],
        "deletion vectors of 1 files",
    ),
    "row tracking": (["ALTER TABLE TABLE_ SET TBLPROPERTIES ('delta.enableRowTracking' = 'true')"], "rowTracking"),
    "column mapping": (
        ["ALTER TABLE TABLE_ SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"],
        "delta.columnMapping.mode = name",
    ),
    "commit times": (
        ["ALTER TABLE TABLE_ SET TBLPROPERTIES ('delta.enableInCommitTimestamps' = 'true')"],
        "delta.enableInCommitTimestamps = true",
    ),
}


@pytest.mark.parametrize("case", FEATURES)
def test_a_feature_is_refused_and_the_fix_takes_it_back(held: Held, delta: DeltaSpark, case: str) -> None:
    statements, said = FEATURES[case]
    other = Other(delta, held.paths.table)
    other.sql(*statements)
    with pytest.raises(DisagreementError) as refused:
        held.run("S1", [{"id": 100, "n": 100}])
    assert refused.value.code == "TABLE_FEATURE" and said in refused.value.message
    state = read_table_state(held.paths.table)
    assert state is not None
    for one in state.unsupported:
        assert one.undo in str(refused.value.fix)
        other.sql(*one.undo.split("; "))
    held.run("S2", [{"id": 100, "n": 100}])
    other.rows = (other.rows | {100}) - ({5} if case == "deletion vectors" else set())
    expected = sorted(other.rows)
    assert sorted(row["n"] for row in delta.read(held.paths.table)) == expected
    assert sorted(row["n"] for row in read_with_duckdb(held.paths.table)) == expected


def test_the_change_feed_has_the_rows_of_runs(held: Held, delta: DeltaSpark) -> None:
    other = Other(delta, held.paths.table)
    other.sql("ALTER TABLE TABLE_ SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')")
    since = list_versions(held.paths.table)[-1]
    held.run("S1", [{"id": 100, "n": 100}, {"id": 101, "n": 101}])
    feed = other.sql(f"SELECT n, _change_type FROM table_changes_by_path('{held.paths.table}', {since})")
    assert sorted((row["n"], row["_change_type"]) for row in feed) == [(100, "insert"), (101, "insert")]
