"""Changing a living query: what fits old state goes on, what would give wrong numbers is refused."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.streaming import Streaming, make_streaming, source
from tidegate.core.errors import DisagreementError
from tidegate.runs.restart.repair import repair_pipeline
from tidegate.views.outlook import plan_pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPEC = "output_mode: update\ntable: {keys: [word]}\nsources:\n" + source("words", "word STRING, n INT")


def _transform(body: str) -> str:
    return f"from pyspark.sql import functions as F\n\n\ndef transform(words):\n    return {body}\n"


SUM = "words.groupBy('word').agg(F.sum('n').alias('total'))"


def make(root: Path, spark: SparkSession, body: str = SUM) -> Streaming:
    flow = make_streaming(root, spark, SPEC, "")
    flow.write("jobs/flow/transform.py", _transform(body))
    flow.offer("words", {"word": "a", "n": 1}, {"word": "b", "n": 2})
    flow.run()
    return flow


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("words.groupBy('word').agg(F.max('n').cast('long').alias('total'))", "the values of its Aggregate"),
        ("words.groupBy('word').agg(F.sum(F.col('n') * 2).alias('total'))", "the values of its Aggregate"),
        ("words.groupBy(F.upper('word').alias('word')).agg(F.sum('n').alias('total'))", "the keys of its Aggregate"),
        ("words.dropDuplicates(['word']).select('word', F.col('n').cast('long').alias('total'))", "Deduplicate"),
        ("words.select('word', F.col('n').cast('long').alias('total'))", "a query without state"),
        ("words.union(words).groupBy('word').agg(F.sum('n').alias('total'))", "the keys of its Aggregate"),
    ],
)
def test_another_meaning_of_the_state_is_refused(spark: SparkSession, tmp_path: Path, body: str, says: str) -> None:
    flow = make(tmp_path, spark)
    flow.write("jobs/flow/transform.py", _transform(body))
    flow.offer("words", {"word": "a", "n": 5})
    with pytest.raises(DisagreementError, match=says) as caught:
        flow.run()
    assert caught.value.code == "STATE_CHANGED" and "--rebuild" in str(caught.value.fix)
    assert any("the transform was edited" in note for note in plan_pipeline(flow.project, "flow")["notes"])
    flow.write("jobs/flow/transform.py", _transform(SUM))
    flow.run()
    flow.expect("word total", [("a", 6), ("b", 2)])
    assert not any("the transform was edited" in note for note in plan_pipeline(flow.project, "flow")["notes"])


_UNION = "words.union(words.selectExpr('word', 'n * {} AS n')).groupBy('word').agg(F.sum('n').alias('total'))"


def test_another_side_of_a_union_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    flow = make(tmp_path / "python", spark, _UNION.format(2))
    flow.write("jobs/flow/transform.py", _transform(_UNION.format(3)))
    flow.offer("words", {"word": "a", "n": 5})
    with pytest.raises(DisagreementError, match="the values of its Aggregate"):
        flow.run()
    flow.write("jobs/flow/transform.py", _transform(_UNION.format(2)))
    flow.run()
    flow.expect("word total", [("a", 18), ("b", 6)])


def test_another_expression_of_a_with_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    sql = "WITH x AS (SELECT word, n * {} AS n FROM words) SELECT word, sum(n) AS total FROM x GROUP BY word"
    flow = make_streaming(tmp_path, spark, "transform: transform.sql\n" + SPEC)
    for number, factor in enumerate((2, 3, 2)):
        flow.write("jobs/flow/transform.sql", sql.format(factor))
        flow.offer("words", {"word": "a", "n": number})
        if factor == 3:
            with pytest.raises(DisagreementError, match="the values of its Aggregate"):
                flow.run()
        else:
            flow.run()
    flow.expect("word total", [("a", 6)])


def test_what_the_state_does_not_depend_on_may_change(spark: SparkSession, tmp_path: Path) -> None:
    flow = make(tmp_path, spark)
    flow.write("jobs/flow/transform.py", _transform(SUM.replace("words.", "words.where('n > 0').")))
    flow.offer("words", {"word": "a", "n": 5}, {"word": "a", "n": -5})
    flow.run()
    flow.write("jobs/flow/transform.py", _transform(SUM + ".withColumn('more', F.lit('x'))"))
    flow.offer("words", {"word": "b", "n": 1})
    flow.run()
    flow.expect("word total more", [("a", 6, None), ("b", 3, "x")])


def test_a_rebuild_makes_the_table_anew(spark: SparkSession, tmp_path: Path) -> None:
    """With the new transform, from all that the source still has; without it repair refuses to lose state."""
    flow = make(tmp_path, spark)
    flow.write("jobs/flow/transform.py", _transform(SUM.replace("F.sum('n')", "F.sum(F.col('n') * 10)")))
    flow.offer("words", {"word": "a", "n": 5})
    with pytest.raises(DisagreementError):
        flow.run()
    shown = repair_pipeline(flow.project, "flow", dry_run=True, rebuild=True)
    assert "back up table and quarantine" in shown["actions"][0]
    flow.expect("word total", [("a", 1), ("b", 2)])
    repair_pipeline(flow.project, "flow", dry_run=False, rebuild=True)
    flow.run()
    flow.expect("word total", [("a", 60), ("b", 20)])
    aside = [path.name for path in (tmp_path / "data/warehouse").iterdir()]
    assert sorted(name.partition(".2")[0] for name in aside) == [".flow", "flow"]


def test_a_lost_checkpoint_of_a_query_with_state(spark: SparkSession, tmp_path: Path) -> None:
    """A new checkpoint would lose what is in the state: only a rebuild goes on."""
    import shutil

    flow = make(tmp_path, spark)
    shutil.rmtree(flow.state / "checkpoint")
    with pytest.raises(DisagreementError, match=r"the checkpoint of query .* is gone"):
        flow.run()
    with pytest.raises(DisagreementError, match="a new checkpoint would lose it"):
        repair_pipeline(flow.project, "flow", dry_run=False)
    repair_pipeline(flow.project, "flow", dry_run=False, rebuild=True)
    flow.offer("words", {"word": "b", "n": 3})
    flow.run()
    flow.expect("word total", [("a", 1), ("b", 5)])


def test_sources_come_go_and_change_places(spark: SparkSession, tmp_path: Path) -> None:
    def spec(*names: str) -> str:
        listed = "".join(source(name, "word STRING") for name in names)
        return f"version: 1\nname: flow\nschedule: null\ntransform: transform.py\nsources:\n{listed}"

    def union(*names: str) -> str:
        return f"def transform({', '.join(names)}):\n    return {'.unionByName('.join(names)}{')' * (len(names) - 1)}\n"

    flow = make_streaming(tmp_path, spark, "sources:\n" + source("one", "word STRING"), union("one"))
    flow.offer("one", {"word": "a"})
    flow.run()
    for number, names in enumerate((("one", "two"), ("two", "one"), ("two",), ("three", "one", "two"))):
        flow.write("jobs/flow/pipeline.yaml", spec(*names))
        flow.write("jobs/flow/transform.py", union(*names))
        for name in names:
            flow.offer(name, {"word": f"{name}{number}"})
        flow.run()
    wanted = ["a", "one0", "two0", "two1", "one1", "two2", "three3", "one3", "two3"]
    flow.expect("word", [(word,) for word in wanted])


def test_a_change_in_a_late_field_of_a_wide_value_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """Spark's own text of an expression ends after 25 fields."""

    def newest(factor: int) -> str:
        fields = ", ".join(
            [*(f"F.col('n').alias('a{number}')" for number in range(29)), f"(F.col('n') * {factor}).alias('z')"]
        )
        return f"words.groupBy('word').agg(F.max_by(F.struct({fields}), 'n')['z'].alias('total'))"

    flow = make(tmp_path, spark, newest(2))
    flow.write("jobs/flow/transform.py", _transform(newest(30)))
    flow.offer("words", {"word": "a", "n": 5})
    with pytest.raises(DisagreementError, match="the values of its Aggregate") as caught:
        flow.run()
    assert caught.value.code == "STATE_CHANGED"
    flow.write("jobs/flow/transform.py", _transform(newest(2)))
    flow.run()
    flow.expect("word total", [("a", 10), ("b", 4)])
