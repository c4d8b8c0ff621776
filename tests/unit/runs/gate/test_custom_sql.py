"""Custom SQL at the gate: on the increment, and on the table as the publish will leave it."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.keyed import Keyed
from tests.support.readers import read_agreed
from tidegate.core.errors import HeldError, TryAgainError
from tidegate.quality.queries import Relation, _open
from tidegate.runs.gate_steps import audit_step, publish_step
from tidegate.runs.opening import recover_run
from tidegate.runs.reports.verdicts import load_verdict
from tidegate.table.log.state import list_data_files, read_table_state
from tidegate.table.upsert.folded import fold_unpublished

ONCE = "SELECT id FROM {table} GROUP BY id HAVING count(*) > 1"


def row(id_: int | None, n: int = 0) -> dict[str, Any]:
    return {"id": id_, "city": "Oslo", "n": n}


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Keyed]:
    def make_keyed(query: str, mode: str = "append", **more: Any) -> Keyed:
        keyed = Keyed(tmp_path, mode=mode, **more)
        (tmp_path / "expectations").mkdir()
        rule = (
            f"{{type: unexpected_rows_expectation, kwargs: {{unexpected_rows_query: '{query}'}}, meta: {{rule: sql}}}}"
        )
        (tmp_path / "expectations/orders.yaml").write_text(f"name: orders\nexpectations:\n  - {rule}\n")
        return keyed

    return make_keyed


def ids(keyed: Keyed) -> list[int]:
    return sorted(one["id"] for one in read_agreed(keyed.paths.table))


def test_a_query_on_the_increment_holds_it(make: Callable[..., Keyed]) -> None:
    keyed = make("SELECT * FROM {batch} WHERE n > 5", partition_by=["city"])
    keyed.stage([row(1), row(2, 5)])
    spill = keyed.paths.spill("first")
    spill.mkdir(parents=True)
    (spill / "of_a_killed_audit").touch()
    report = keyed.run("first")
    assert not spill.exists()
    assert report.quality is not None and report.quality["verdict"] == "passed"
    keyed.stage([row(3, 6), row(4)], [row(5, 7)])
    with pytest.raises(HeldError, match="sql: 2 rows break it"):
        keyed.run("second")
    assert ids(keyed) == [1, 2]


def test_a_key_that_an_earlier_run_has_published_is_found(make: Callable[..., Keyed]) -> None:
    keyed = make(ONCE)
    keyed.stage([row(1), row(2)])
    keyed.run("first")
    keyed.stage([row(3)])
    keyed.run("second")
    keyed.stage([row(4), row(2)])
    with pytest.raises(HeldError, match="sql: 1 row breaks it"):
        keyed.run("third")
    assert ids(keyed) == [1, 2, 3]


@pytest.mark.parametrize(("mode", "total"), [("update", 4), ("complete", 2)])
def test_rows_that_the_publish_replaces_are_not_in_the_table(make: Callable[..., Keyed], mode: str, total: int) -> None:
    keyed = make(f"{ONCE} UNION ALL SELECT count(*) FROM {{table}} HAVING count(*) NOT IN (3, {total})", mode)
    keyed.stage([row(1), row(2), row(9)])
    keyed.run("first")
    keyed.stage([row(2, 1), row(3)], [row(2, 2), row(3, 2)])
    keyed.run("second")
    published = read_agreed(keyed.paths.table)
    assert Counter(one["n"] for one in published)[2] == 2 and len(published) == total


@pytest.mark.parametrize(("kind", "lowest"), [("double", math.nan), ("double", None), ("long", None)])
def test_the_table_has_the_newest_row_of_a_key(make: Callable[..., Keyed], kind: str, lowest: float | None) -> None:
    """The rows that the gate saw in the table are those that the publish leaves, row by row."""
    columns = {"id": "long", "n": "long", "v": kind}
    keyed = make("SELECT 1 FROM {table} WHERE false", "update", columns=columns, order_by=["v", "n"])
    values = [lowest, 1, 2]
    pairs = [(old, new) for old in itertools.product(values, (0, 1)) for new in itertools.product(values, (0, 1))]
    keyed.stage([{"id": number, "v": old[0], "n": old[1]} for number, (old, _) in enumerate(pairs)])
    keyed.run("first")
    keyed.stage([{"id": number, "v": new[0], "n": new[1]} for number, (_, new) in enumerate(pairs)])
    context = keyed.context("second")
    facts = recover_run(context)
    audit_step(context)
    folded = fold_unpublished(keyed.paths, facts.unpublished, keyed.spec)
    state = read_table_state(keyed.paths.table)
    assert folded is not None and state is not None
    batch = Relation(state.schema_json, [(keyed.paths.state / file.path, {}) for file in folded[0].files])
    files = [(keyed.paths.table / file.path, {}) for file in list_data_files(keyed.paths.table)]
    with _open(batch, Relation(state.schema_json, files, folded[0].columns)) as connection:
        seen = connection.execute("SELECT id, n, v FROM published ORDER BY id").fetchall()
    publish_step(keyed.context("second"))
    assert str(seen) == str(sorted((one["id"], one["n"], one["v"]) for one in read_agreed(keyed.paths.table)))


def test_a_verdict_holds_for_the_table_that_it_was_given_on(make: Callable[..., Keyed]) -> None:
    keyed = make(ONCE)
    keyed.stage([row(1)])
    keyed.run("first")
    first = keyed.context("judged")
    [late] = keyed.stage([row(2)])
    recover_run(first)
    audit_step(first)
    passed = load_verdict(keyed.paths, "judged")
    assert passed is not None and passed.passed
    # Another publish brings the same key between the audit and the publish: a replay, a backfill, another program.
    path = keyed.root / "warehouse/orders"
    write_rows(path, [row(2)])
    with pytest.raises(TryAgainError, match=r"NOT_AUDITED.*the table, which custom SQL reads, was changed"):
        publish_step(keyed.context("judged"))
    with pytest.raises(HeldError, match="sql: 1 row breaks it"):
        audit_step(keyed.context("judged"))
    assert ids(keyed) == [1, 2] and late.staged == 1


def write_rows(path: Path, rows: list[dict[str, Any]]) -> None:
    """Append rows by another program."""
    import deltalake
    import pyarrow as pa

    deltalake.write_deltalake(str(path), pa.Table.from_pylist(rows), mode="append")
