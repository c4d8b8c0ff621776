"""Partition folders: every reader has the same values, of the same type, as plain readers had or better."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from tests.support.plain_jobs import write_parquet
from tests.support.project import PipelineProject
from tests.support.readers import read_agreed
from tidegate.rework.adopt.adoption import adopt_table, preview_adoption
from tidegate.table.log.state import read_table_state

SPEC = """version: 1
name: orders
sources:
  orders: {type: files, path: data/inbox, format: json, start: now, schema: "id BIGINT"}
transform: transform.sql
table: {partition_by: [%s]}
"""
NULL = "__HIVE_DEFAULT_PARTITION__"


def adopt(root: Path, folders: list[str], partition_by: str) -> tuple[list[dict[str, Any]], dict[str, str], list[str]]:
    """The rows of the adopted table, the types of its columns, and what a dry run noted."""
    made = PipelineProject(root)
    made.create()
    made.write("jobs/orders/pipeline.yaml", SPEC % partition_by)
    made.write("jobs/orders/transform.sql", "SELECT id FROM orders")
    for number, folder in enumerate(folders):
        write_parquet(made.table / folder / f"part-{number}.parquet", [{"id": number}], {"id": "long"})
    notes = preview_adoption(made.project, "orders", made.table, None)["notes"]
    adopt_table(made.project, "orders", "adopt-1", made.table, None)
    state = read_table_state(made.table)
    assert state is not None
    kinds = {field["name"]: field["type"] for field in json.loads(state.schema_json)["fields"]}
    return sorted(read_agreed(made.table), key=lambda row: row["id"]), kinds, notes


@pytest.mark.parametrize(
    ("values", "kind", "read"),
    [
        (["2026-01-01", "2026-02-28", NULL], "date", [date(2026, 1, 1), date(2026, 2, 28), None]),
        (["2026-01-01", "2026-02-30"], "string", ["2026-01-01", "2026-02-30"]),
        (["1", "-20", NULL], "integer", [1, -20, None]),
        (["1", "3000000000"], "long", [1, 3_000_000_000]),
        (["01", "02"], "string", ["01", "02"]),
        (["7", "x"], "string", ["7", "x"]),
        (["nan", "1.5"], "string", ["nan", "1.5"]),
        (["x y", "a%2Fb", "ü", NULL], "string", ["x y", "a/b", "ü", None]),
    ],
)
def test_the_type_of_a_column_that_no_source_declares(
    tmp_path: Path, values: list[str], kind: str, read: list[object]
) -> None:
    rows, kinds, notes = adopt(tmp_path, [f"k={value}" for value in values], "k")
    assert kinds == {"id": "long", "k": kind}
    assert [row["k"] for row in rows] == read
    assert f"partition column k is taken for {kind.upper()} by its folders" in " ".join(notes)


def test_folders_in_folders_are_renamed_from_the_inside(tmp_path: Path) -> None:
    rows, kinds, _ = adopt(tmp_path, ["a=01/b=02", "a=01/b=x", "a=y/b=03"], "a, b")
    assert kinds == {"id": "long", "a": "string", "b": "string"}
    assert [(row["a"], row["b"]) for row in rows] == [("01", "02"), ("01", "x"), ("y", "03")]
    assert (tmp_path / "data/warehouse/orders/a=%301/b=%302/part-0.parquet").exists()


def test_folders_of_dates_and_whole_numbers_keep_their_names_beside_other_texts(tmp_path: Path) -> None:
    rows, kinds, _ = adopt(tmp_path, ["k=2026-01-01", "k=7", "k=%32026-01-02"], "k")
    assert kinds == {"id": "long", "k": "string"}
    assert [row["k"] for row in rows] == ["2026-01-01", "7", "2026-01-02"]
    folders = {path.parent.name for path in (tmp_path / "data/warehouse/orders").glob("*/*.parquet")}
    assert folders == {"k=2026-01-01", "k=7", "k=%32026-01-02"}
