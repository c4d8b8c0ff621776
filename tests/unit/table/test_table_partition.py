"""Nasty partition values come back alike from every reader that needs no JVM (plain Spark: tests/spark)."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pytest

from tests.support.nasty_values import NASTY_TEXTS
from tests.support.readers import read_agreed
from tests.support.staged import Stager, make_paths, make_schema
from tidegate.state.files import partition_value
from tidegate.table.publish.intent import write_intent
from tidegate.table.publish.plan import plan_publish
from tidegate.table.publish.publish import finish_intent
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
        ("100%", "k=%3100%25"),
        ("01", "k=%301"),
        ("2026-01-01", "k=%32026-01-01"),
        ("__HIVE_DEFAULT_PARTITION__", "k=%5F_HIVE_DEFAULT_PARTITION__"),
        (None, "k=__HIVE_DEFAULT_PARTITION__"),
    ],
)
def test_folder_names(value: str | None, folder: str) -> None:
    assert partition_folder(["k"], {"k": value}, make_schema(id="long", k="string")) == folder


def test_only_text_columns_are_guarded_against_guessing() -> None:
    schema = make_schema(id="long", day="date", n="integer")
    assert partition_folder(["day", "n"], {"day": "2026-01-01", "n": "1"}, schema) == "day=2026-01-01/n=1"
    assert partition_folder([], {}, schema) == ""


def publish(stager: Stager, rows: list[dict[str, Any]]) -> None:
    manifest = stager.stage(0, rows)
    intent = plan_publish([manifest], run_id="r", partition_by=stager.partition_by, app_version_before=-1)
    finish_intent(stager.paths, write_intent(stager.paths, intent), is_current=lambda: True)


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
