"""Nasty partition values come back alike from every reader that needs no JVM (plain Spark: tests/spark)."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pandas
import pytest
from pyarrow.dataset import dataset

from tests.support.nasty_values import MIXED_COLUMNS, NAMED_AS_THEY_ARE, NAMED_WITH_AN_ESCAPE, NASTY_TEXTS
from tests.support.readers import read_agreed
from tests.support.staged import Stager, make_paths, make_schema, publish, publish_columns
from tidegate.state.files import partition_value
from tidegate.table.schema import partition_folder


@pytest.mark.parametrize("text", NASTY_TEXTS, ids=[f"{number}-{text!a}" for number, text in enumerate(NASTY_TEXTS)])
def test_each_text_alone_is_read_back(tmp_path: Path, text: str) -> None:
    # Alone, so that no other value in the folder keeps a reader from guessing a type.
    stager = Stager(make_paths(tmp_path), {"id": "long", "k": "string"}, ["k"])
    publish(stager, [{"id": 1, "k": text}])
    assert read_agreed(stager.paths.table) == [{"id": 1, "k": text}]


def test_all_texts_together_with_null(tmp_path: Path) -> None:
    stager = Stager(make_paths(tmp_path), {"id": "long", "k": "string"}, ["k"])
    rows: list[dict[str, Any]] = [{"id": number, "k": text} for number, text in enumerate([*NASTY_TEXTS, None])]
    publish(stager, rows)
    assert sorted(read_agreed(stager.paths.table), key=lambda row: int(row["id"])) == rows


def test_two_columns_dates_and_numbers(tmp_path: Path) -> None:
    columns = {"id": "long", "day": "date", "shop": "integer"}
    stager = Stager(make_paths(tmp_path), columns, ["day", "shop"])
    rows: list[dict[str, Any]] = [
        {"id": 1, "day": date(2026, 1, 31), "shop": 7},
        {"id": 2, "day": date(1999, 12, 1), "shop": -1},
        {"id": 3, "day": None, "shop": 7},
        {"id": 4, "day": date(2026, 1, 31), "shop": None},
    ]
    publish(stager, rows)
    assert sorted(read_agreed(stager.paths.table), key=lambda row: int(row["id"])) == rows
    assert (stager.paths.table / "day=2026-01-31" / "shop=7").is_dir()


def test_the_empty_text_is_null_in_every_reader(tmp_path: Path) -> None:
    stager = Stager(make_paths(tmp_path), {"id": "long", "k": "string"}, ["k"])
    publish(stager, [{"id": 1, "k": ""}, {"id": 2, "k": "a"}])
    assert {row["k"] for row in read_agreed(stager.paths.table)} == {None, "a"}


@pytest.mark.parametrize(
    ("value", "folder"),
    [
        ("Oslo", "k=Oslo"),
        ("a b", "k=a b"),
        ("a/b", "k=a%2Fb"),
        ("100%", "k=100%25"),
        ("01", "k=%301"),
        (" 7", "k= %37"),
        ("٣d", "k=٣%64"),
        ("2026-01-01", "k=2026-01-01"),
        ("__HIVE_DEFAULT_PARTITION__", "k=%5F_HIVE_DEFAULT_PARTITION__"),
        (None, "k=__HIVE_DEFAULT_PARTITION__"),
    ],
)
def test_folder_names(value: str | None, folder: str) -> None:
    assert partition_folder(["k"], {"k": value}, make_schema(id="long", k="string")) == folder


@pytest.mark.parametrize("text", NAMED_AS_THEY_ARE)
def test_dates_and_whole_numbers_keep_their_names(text: str) -> None:
    assert partition_folder(["k"], {"k": text}, make_schema(id="long", k="string")) == f"k={text}"


@pytest.mark.parametrize("text", NAMED_WITH_AN_ESCAPE)
def test_what_a_reader_would_change_is_escaped(text: str) -> None:
    folder = partition_folder(["k"], {"k": text}, make_schema(id="long", k="string"))
    assert "%" in folder and partition_value(folder) == ("k", text)


def test_each_of_these_texts_alone_is_read_back_with_its_text(tmp_path: Path) -> None:
    """A column for each value, so that no other value keeps a reader from guessing (plain Spark: tests/spark)."""
    table, row = publish_columns(tmp_path, [(text,) for text in [*NAMED_AS_THEY_ARE, *NAMED_WITH_AN_ESCAPE]])
    assert read_agreed(table) == row
    by_arrow = dataset(table, partitioning="hive").to_table().to_pylist()
    for one in (*by_arrow, *pandas.read_parquet(table).to_dict("records")):
        changed = {row[0][name] for name in row[0] if str(one[name]) != str(row[0][name])}
        # Arrow decodes a name before it guesses a type: no name of these texts keeps it from a number.
        assert changed == {"01", "00", "007", "-0", "-05", "0x10"}


def test_columns_with_values_of_several_kinds_are_read_back(tmp_path: Path) -> None:
    table, rows = publish_columns(tmp_path, MIXED_COLUMNS)
    assert sorted(read_agreed(table), key=lambda row: int(row["id"])) == rows


def test_only_text_columns_are_guarded_against_guessing() -> None:
    schema = make_schema(id="long", day="date", n="integer")
    assert partition_folder(["day", "n"], {"day": "2026-01-01", "n": "1"}, schema) == "day=2026-01-01/n=1"
    assert partition_folder([], {}, schema) == ""


@pytest.mark.parametrize(
    ("folder", "value"),
    [
        ("k=__HIVE_DEFAULT_PARTITION__", None),
        ("k=__HIVE_DEFAULT_PARTITION__~", "__HIVE_DEFAULT_PARTITION__"),
        ("k=__HIVE_DEFAULT_PARTITION__~~", "__HIVE_DEFAULT_PARTITION__~"),
        ("k=__HIVE_DEFAULT_PARTITION__x~", "__HIVE_DEFAULT_PARTITION__x"),
        ("k=a~", "a~"),
        ("k=a%2Fb", "a/b"),
    ],
)
def test_a_staged_folder_tells_its_value(folder: str, value: str | None) -> None:
    assert partition_value(folder) == ("k", value)


def test_the_name_of_nulls_folder_is_a_text_for_every_reader(tmp_path: Path) -> None:
    stager = Stager(make_paths(tmp_path), {"id": "long", "k": "string"}, ["k"])
    publish(stager, [{"id": 1, "k": "__HIVE_DEFAULT_PARTITION__"}, {"id": 2, "k": None}])
    rows = sorted(read_agreed(stager.paths.table), key=lambda row: int(row["id"]))
    assert rows == [{"id": 1, "k": "__HIVE_DEFAULT_PARTITION__"}, {"id": 2, "k": None}]
