"""Update and complete mode across runs, with everything a transform may use."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.streams.windows import SCHEMA, TIMED, TUMBLING, at, row
from tests.support.streaming import Streaming, make_streaming, source
from tidegate.core.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COUNTS = "def transform(words):\n    return words.groupBy('word').agg(F.count('*').alias('times'))\n"
SUITE = """\
name: flow
expectations:
  - type: expect_column_values_to_be_between
    kwargs: {column: times, max_value: 3}
    severity: critical
    meta: {rule: not_too_often, on_failure: quarantine}
"""


def words(flow: Streaming, *found: str) -> None:
    flow.offer("words", *({"word": word} for word in found))


def test_update_replaces_the_row_of_a_key(spark: SparkSession, tmp_path: Path) -> None:
    spec = "output_mode: update\ntable: {keys: [word]}\nsources:\n" + source("words", "word STRING")
    flow = make_streaming(tmp_path, spark, spec, COUNTS)
    words(flow, "a", "b", "a")
    assert flow.run()["table"]["rows_removed"] == 0
    words(flow, "a", "c")
    report = flow.run()
    assert (report["rows"]["published"], report["table"]["rows_added"], report["table"]["rows_removed"]) == (2, 2, 1)
    flow.expect("word times", [("a", 3), ("b", 1), ("c", 1)])
    words(flow, "b")
    words(flow, "b")
    flow.run()
    flow.expect("word times", [("a", 3), ("b", 3), ("c", 1)])
    assert flow.run()["outcome"] == "nothing_new"


def test_several_batches_of_one_run(spark: SparkSession, tmp_path: Path) -> None:
    """Of each key the last batch's row is checked and published."""
    keys = source("words", "word STRING", options={"maxFilesPerTrigger": 1})
    flow = make_streaming(tmp_path, spark, f"output_mode: update\ntable: {{keys: [word]}}\nsources:\n{keys}", COUNTS)
    for _ in range(3):
        words(flow, "a", "b")
    report = flow.run()
    assert (report["rows"]["staged"], report["rows"]["superseded"], report["rows"]["published"]) == (6, 4, 2)
    flow.expect("word times", [("a", 3), ("b", 3)])


def test_a_rejected_update_leaves_the_older_row(spark: SparkSession, tmp_path: Path) -> None:
    spec = "output_mode: update\ntable: {keys: [word]}\nsources:\n" + source("words", "word STRING")
    flow = make_streaming(tmp_path, spark, spec, COUNTS)
    flow.write("expectations/flow.yaml", SUITE)
    words(flow, "a", "a", "b")
    flow.run()
    words(flow, "a", "a", "b")
    report = flow.run()
    assert (report["rows"]["rejected"], report["rows"]["published"]) == (1, 1)
    assert flow.aside("not_too_often") == [{"word": "a", "times": 4}]
    flow.expect("word times", [("a", 2), ("b", 2)])


def test_keys_that_are_not_unique(spark: SparkSession, tmp_path: Path) -> None:
    """The run says which, publishes nothing, and goes on once the keys are corrected."""
    body = "def transform(words):\n    return words.groupBy('word', 'place').count()\n"
    spec = "output_mode: update\ntable: {keys: [word]}\nsources:\n" + source("words", "word STRING, place STRING")
    flow = make_streaming(tmp_path, spark, spec, body)
    flow.offer("words", {"word": "a", "place": "x"}, {"word": "a", "place": "y"})
    with pytest.raises(UsageError, match="UPDATE_KEYS_NOT_UNIQUE"):
        flow.run()
    path = tmp_path / "jobs/flow/pipeline.yaml"
    path.write_text(path.read_text().replace("[word]", "[word, place]"))
    flow.run()
    flow.expect("word place count", [("a", "x", 1), ("a", "y", 1)])


def test_complete_replaces_the_table(spark: SparkSession, tmp_path: Path) -> None:
    body = COUNTS.replace("alias('times'))\n", "alias('times')).orderBy('times')\n")
    spec = "output_mode: complete\nsources:\n" + source("words", "word STRING")
    flow = make_streaming(tmp_path, spark, spec, body)
    for found, wanted in (
        ("aab", [("a", 2), ("b", 1)]),
        ("c", [("a", 2), ("b", 1), ("c", 1)]),
        ("ccb", [("a", 2), ("b", 2), ("c", 3)]),
    ):
        words(flow, *found)
        flow.run()
        flow.expect("word times", wanted)
    assert flow.reports[-1]["table"]["rows_removed"] == 3


def test_windows_in_update_mode(spark: SparkSession, tmp_path: Path) -> None:
    """A window is there from its first record on, and changes until the watermark has passed it."""
    spec = "output_mode: update\ntable: {keys: [start, end]}\nsources:\n" + source("trades", SCHEMA, **TIMED)
    flow = make_streaming(tmp_path, spark, spec, TUMBLING)
    flow.offer("trades", row("a", "10:01"))
    flow.run()
    flow.expect("start count", [(at("10:00"), 1)])
    flow.offer("trades", row("b", "10:02"), row("c", "11:00"))
    flow.run()
    flow.expect("start count", [(at("10:00"), 2), (at("11:00"), 1)])
    flow.offer("trades", row("late", "10:03"), row("d", "11:01"))
    assert flow.run()["rows"]["late"] == 1
    flow.expect("start count", [(at("10:00"), 2), (at("11:00"), 2)])


def test_an_upsert_without_state(spark: SparkSession, tmp_path: Path) -> None:
    """A change feed: update mode without an aggregation keeps the newest row of each key."""
    keys = "output_mode: update\ntable: {keys: [id]}\nsources:\n" + source("changes", "id INT, name STRING")
    flow = make_streaming(tmp_path, spark, keys)
    flow.offer("changes", {"id": 1, "name": "one"}, {"id": 2, "name": "two"})
    flow.run()
    flow.offer("changes", {"id": 2, "name": "zwei"}, {"id": 3, "name": "drei"})
    flow.run()
    flow.offer("changes", {"id": 3, "name": "trois"})
    flow.run()
    flow.expect("id name", [(1, "one"), (2, "zwei"), (3, "trois")])


_EVERYTHING = """\
import pandas as pd


@F.udf('string')
def shout(word):
    return word.upper()


@F.pandas_udf('long')
def length(word: pd.Series) -> pd.Series:
    return word.str.len()


def transform(words):
    words.createOrReplaceTempView('seen')
    long = words.sparkSession.sql("SELECT word FROM seen WHERE length(word) > 1")
    return long.select(shout('word').alias('word'), length('word').alias('n')).where('n < 9')
"""


def test_udfs_temp_views_and_sql_in_a_transform(spark: SparkSession, tmp_path: Path) -> None:
    flow = make_streaming(tmp_path, spark, "sources:\n" + source("words", "word STRING"), _EVERYTHING)
    for number, found in enumerate((("ab", "x"), ("abc",), ("abcdefghijk", "de"))):
        words(flow, *found)
        flow.run()
        assert flow.reports[-1]["outcome"] == "published", number
    flow.expect("word n", [("AB", 2), ("ABC", 3), ("DE", 2)])


def test_a_union_of_sources(spark: SparkSession, tmp_path: Path) -> None:
    sources = source("one", "word STRING") + source("two", "word STRING")
    flow = make_streaming(
        tmp_path, spark, f"sources:\n{sources}", "def transform(one, two):\n    return one.unionByName(two)\n"
    )
    (tmp_path / "data/in/two").mkdir(parents=True)
    flow.offer("one", {"word": "a"})
    flow.run()
    flow.offer("two", {"word": "b"}, {"word": 5, "x": {}})
    flow.run()
    flow.offer("one", {"word": "c"})
    flow.offer("two", {"word": "d"})
    flow.run()
    flow.expect("word", [("a",), ("b",), ("5",), ("c",), ("d",)])  # a number is taken for a STRING
    assert flow.run()["outcome"] == "nothing_new"
