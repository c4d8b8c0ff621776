"""Output mode by operator: each combination built as the product builds it and, where it is let through, run.

    python -m tools.streaming_table          writes docs/reference/streaming.md

tests/spark/test_operations.py compares the page with what it finds. A combination counts as working when it is not
refused before anything starts, and two runs over it end without an error.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tidegate.core.errors import UsageError
from tidegate.core.paths import PipelinePaths
from tidegate.spark.catalyst.state import set_state_conf
from tidegate.spark.driver.order import IngestOrder
from tidegate.spark.ingest.query import PreparedQuery, prepare_query
from tidegate.spark.ingest.read import SourceReader
from tidegate.spec.pipeline import load_pipeline
from tidegate.spec.project import load_project
from tidegate.state.batch_files import BatchFile, BatchFiles
from tidegate.state.topics import FilePart

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MODES = ("append", "update", "complete")
PAGE = Path(__file__).resolve().parents[1] / "docs/reference/streaming.md"

_SQL = "sql:"
_TIMED = ("watermark",)


@dataclass(frozen=True)
class Operator:
    """``body`` is what the transform returns (or a SELECT after ``sql:``). ``before`` are lines above ``transform``.

    ``sources`` names them: a and b are streams of (id INT, t TIMESTAMP, n INT), with a watermark where the name is
    followed by ``*``; ``s`` is a static source.
    """

    name: str
    body: str
    sources: str = "a*"
    before: str = ""
    keys: str = "id"


_STATE = """\
import pandas as pd
from pyspark.sql.streaming.state import GroupStateTimeout


def count_up(key, batches, state):
    total = (state.get[0] if state.exists else 0) + sum(len(batch) for batch in batches)
    state.update((total,))
    yield pd.DataFrame({"id": [key[0]], "total": [total]})
"""
_WITH_STATE = (
    "a.groupBy('id').applyInPandasWithState(count_up, 'id INT, total LONG', 'total LONG', {mode!r}, "
    "GroupStateTimeout.NoTimeout)"
)
_PROCESSOR = """\
import pandas as pd
from pyspark.sql.streaming import StatefulProcessor


class CountUp(StatefulProcessor):
    def init(self, handle):
        self.total = handle.getValueState("total", "total LONG")

    def handleInputRows(self, key, rows, timerValues):
        total = (self.total.get()[0] if self.total.exists() else 0) + sum(len(batch) for batch in rows)
        self.total.update((total,))
        yield pd.DataFrame({"id": [key[0]], "total": [total]})

    def close(self):
        pass
"""
_WITH_PROCESSOR = "a.groupBy('id').transformWithStateInPandas(CountUp(), 'id INT, total LONG', {mode!r}, 'None')"
_PAIR = "a.select(F.col('id').alias('ia'), F.col('t').alias('ta'))"
_PAIR_B = "b.select(F.col('id').alias('ib'), F.col('t').alias('tb'))"
_RANGE = "F.expr('ia = ib AND tb BETWEEN ta AND ta + INTERVAL 1 HOUR')"
_WINDOW = "F.window('t', '10 minutes')"
_COUNTED = f"a.groupBy({_WINDOW}).count()"
_OUT = ".select('window.start', 'count')"

OPERATORS = (
    Operator("select, filter, withColumn", "a.where('n > 0').select('id', (F.col('n') * 2).alias('n'))"),
    Operator("SQL: SELECT, WHERE", _SQL + "SELECT id, n * 2 AS n FROM a WHERE n > 0"),
    Operator("explode", "a.select('id', F.explode(F.array('n', 'n')).alias('n'))"),
    Operator("UDF, pandas UDF", "a.select(F.udf('int')(lambda n: n + 1)('n').alias('n'), plus('n').alias('m'))",
             before="import pandas as pd\n\n\n@F.pandas_udf('int')\ndef plus(n: pd.Series) -> pd.Series:\n"
                    "    return n + 1\n", keys="n"),
    Operator("union of two sources", "a.unionByName(b)", "a b"),
    Operator("union of a source with itself", "a.where('n > 0').union(a)", "a"),
    Operator("SQL: UNION ALL of a source with itself", _SQL + "SELECT id FROM a WHERE n > 0 UNION ALL SELECT id "
             "FROM a", "a"),
    Operator("window over a source united with itself",
             f"a.union(a).groupBy({_WINDOW}).count(){_OUT}", keys="start"),
    Operator("aggregation without watermark", "a.groupBy('id').count()", "a"),
    Operator("aggregation of everything", "a.groupBy().count()", "a", keys="count"),
    Operator("tumbling window, watermark", _COUNTED + _OUT, keys="start"),
    Operator("sliding window, watermark",
             f"a.groupBy(F.window('t', '10 minutes', '5 minutes')).count(){_OUT}", keys="start"),
    Operator("session window, watermark", "a.groupBy(F.session_window('t', '5 minutes'), 'id').count()"
             ".select('session_window.start', 'id', 'count')"),
    Operator("session window without another key", "a.groupBy(F.session_window('t', '5 minutes')).count()"
             ".select('session_window.start', 'count')", keys="start"),
    Operator("SQL: window, watermark", _SQL + "SELECT window.start AS start, count(*) AS n FROM a "
             "GROUP BY window(t, '10 minutes')", keys="start"),
    Operator("grouped by the event time itself", "a.groupBy('t').count()", keys="t"),
    Operator("window without watermark", _COUNTED + _OUT, "a", keys="start"),
    Operator("window of windows",
             f"{_COUNTED}.groupBy(F.window(F.window_time('window'), '1 hour')).count(){_OUT}", keys="start"),
    Operator("aggregation of an aggregation", "a.groupBy('id').count().groupBy('count').agg(F.count('*').alias('n'))",
             "a", keys="count"),
    Operator("distinct aggregate",
             f"a.groupBy({_WINDOW}).agg(F.count_distinct('id').alias('count')){_OUT}", keys="start"),
    Operator("dropDuplicates, without watermark", "a.dropDuplicates(['id'])", "a"),
    Operator("dropDuplicates, with the event time", "a.dropDuplicates(['id', 't'])"),
    Operator("dropDuplicatesWithinWatermark", "a.dropDuplicatesWithinWatermark(['id'])"),
    Operator("distinct()", "a.select('id').distinct()", "a"),
    Operator("SQL: SELECT DISTINCT", _SQL + "SELECT DISTINCT id FROM a", "a"),
    Operator("sort", "a.orderBy('id')", "a"),
    Operator("sort of an aggregation", "a.groupBy('id').count().orderBy('count')", "a"),
    Operator("limit", "a.limit(3)", "a"),
    Operator("limit of an aggregation", "a.groupBy('id').count().limit(3)", "a"),
    Operator("window function (OVER)", "a.select('id', F.row_number().over(Window.partitionBy('id').orderBy('t'))"
             ".alias('n'))", before="from pyspark.sql import Window\n"),
    Operator("static join, inner", "a.join(s, 'id')", "a s"),
    Operator("static join, left (stream on the left)", "a.join(s, 'id', 'left')", "a s"),
    Operator("static join, semi", "a.join(s, 'id', 'left_semi')", "a s"),
    Operator("static join, anti", "a.join(s, 'id', 'left_anti')", "a s"),
    Operator("static join, right (stream on the right)", "s.join(a, 'id', 'right')", "a s"),
    Operator("static join, right (stream on the left)", "a.join(s, 'id', 'right')", "a s"),
    Operator("static join, full", "a.join(s, 'id', 'full')", "a s"),
    Operator("stream join, inner", f"{_PAIR}.join({_PAIR_B}, F.expr('ia = ib'))", "a b", keys="ia"),
    Operator("stream join, inner, range", f"{_PAIR}.join({_PAIR_B}, {_RANGE})", "a* b*", keys="ia"),
    Operator("join of a stream with itself, left, range",
             f"{_PAIR}.join({_PAIR_B.replace('b.', 'a.')}, {_RANGE}, 'left')", keys="ia"),
    Operator("stream join, left, range", f"{_PAIR}.join({_PAIR_B}, {_RANGE}, 'left')", "a* b*", keys="ia"),
    Operator("stream join, right, range", f"{_PAIR}.join({_PAIR_B}, {_RANGE}, 'right')", "a* b*", keys="ib"),
    Operator("stream join, full, range", f"{_PAIR}.join({_PAIR_B}, {_RANGE}, 'full')", "a* b*", keys="ia"),
    Operator("stream join, semi, range", f"{_PAIR}.join({_PAIR_B}, {_RANGE}, 'left_semi')", "a* b*", keys="ia"),
    Operator("stream join, anti, range", f"{_PAIR}.join({_PAIR_B}, {_RANGE}, 'left_anti')", "a* b*", keys="ia"),
    Operator("stream join, left, without watermark", f"{_PAIR}.join({_PAIR_B}, {_RANGE}, 'left')", "a b", keys="ia"),
    Operator("join, then a window",
             f"{_PAIR}.join({_PAIR_B}, {_RANGE}).groupBy(F.window('ta', '10 minutes')).count(){_OUT}", "a* b*",
             keys="start"),
    Operator("two event times in one operator",
             "a.join(b.select('id', F.col('t').alias('t2')), 'id').dropDuplicates(['id', 't', 't2'])", "a* b*"),
    Operator("applyInPandasWithState", _WITH_STATE, "a", _STATE),
    Operator("transformWithStateInPandas", _WITH_PROCESSOR, "a", _PROCESSOR),
    Operator("applyInPandas (grouped map)", "a.groupBy('id').applyInPandas(lambda g: g, a.schema)", "a"),
    Operator("EXCEPT", "a.exceptAll(b)", "a b"),
    Operator("an action: count()", "a.limit(a.count())", "a"),
    Operator("observe()", "a.observe('mine', F.count(F.lit(1)).alias('n'))", "a"),
)  # fmt: skip


def try_operator(spark: SparkSession, operator: Operator, mode: str, folder: Path) -> str:
    """What comes of one combination: "" when it works, else what the error says."""
    shutil.rmtree(folder, ignore_errors=True)
    _write_project(folder, operator, mode)
    project = load_project(folder)
    spec = load_pipeline(project, "tried")
    statics = {name: _static(folder, name) for name in spec.statics}
    order = IngestOrder(str(folder), "tried", "run", 1, statics=statics)
    reader = SourceReader(spark, project, project.paths("tried"), order, spec)
    try:
        prepared = prepare_query(spark, project, spec, order, reader.streams() | reader.statics())
    except UsageError as refused:
        if refused.code not in ("UNSUPPORTED_OPERATION", "SOURCE_NOT_USED"):
            raise
        return f"{refused.message.replace(f' with output_mode: {mode}', '')}: {refused.fix}"
    if prepared.keeps_state:
        set_state_conf(spark, prepared.out, spec.watermark_policy)
    for number in range(2):
        for name in spec.streams:
            _offer(project.paths("tried"), name, number)
        _run(prepared, mode, folder / "checkpoint")
    return ""


def _write_project(folder: Path, operator: Operator, mode: str) -> None:
    job = folder / "jobs/tried"
    job.mkdir(parents=True)
    (folder / "tidegate.yaml").write_text("version: 1\n")
    lines = ["version: 1", "name: tried", "schedule: null", f"output_mode: {mode}", "sources:"]
    for word in operator.sources.split():
        name, more = word.rstrip("*"), ""
        if word.endswith("*"):
            more = ", event_time: t, watermark: 10 minutes"
        if name == "s":
            more = ", static: true"
        lines.append(f"  {name}: {{type: files, path: in/{name}, format: json, schema: '{_COLUMNS[name]}'{more}}}")
    if mode == "update":
        lines.append(f"table: {{keys: [{operator.keys}]}}")
    if operator.body.startswith(_SQL):
        (job / "transform.sql").write_text(operator.body.removeprefix(_SQL))
        lines.append("transform: transform.sql")
    else:
        arguments = ", ".join(word.rstrip("*") for word in operator.sources.split())
        body = operator.body.format(mode=mode) if "{mode!r}" in operator.body else operator.body
        (job / "transform.py").write_text(
            f"from pyspark.sql import functions as F\n{operator.before}\n\n"
            f"def transform({arguments}):\n    out = {body}\n    return out\n"
        )
        lines.append("transform: transform.py")
    (job / "pipeline.yaml").write_text("\n".join(lines) + "\n")
    for word in operator.sources.split():
        for kind in ("intake", "batches"):
            (folder / "data/state/tried" / kind / word.rstrip("*")).mkdir(parents=True)


_COLUMNS = {"a": "id INT, t TIMESTAMP, n INT", "b": "id INT, t TIMESTAMP, n INT", "s": "id INT, word STRING"}


def _static(folder: Path, name: str) -> dict[str, object]:
    here = folder / "in" / name
    here.mkdir(parents=True)
    (here / "words.json").write_text('{"id": 1, "word": "one"}\n{"id": 9, "word": "nine"}\n')
    return {"folder": str(here), "links": ["words.json"], "partition_columns": []}


def _offer(paths: PipelinePaths, source: str, number: int) -> None:
    rows = [{"id": n, "t": f"2026-01-01T{10 + number}:{n:02d}:00Z", "n": n} for n in range(3)]
    link = f"{number}.json"
    (paths.intake(source) / link).write_text("".join(json.dumps(row) + "\n" for row in rows))
    BatchFiles(paths.checkpoint, source).put(BatchFile(number, parts=[FilePart(link)]))


def _run(prepared: PreparedQuery, mode: str, checkpoint: Path) -> None:
    query = (
        prepared.rows.writeStream.outputMode(mode)
        .foreachBatch(lambda frame, batch_id: frame.write.format("noop").mode("overwrite").save())
        .trigger(availableNow=True)
        .option("checkpointLocation", str(checkpoint))
        .start()
    )
    query.awaitTermination()


def try_all(spark: SparkSession, folder: Path) -> dict[str, dict[str, str]]:
    """{operator: {mode: "" or why not}} of every combination."""
    provider = "spark.sql.streaming.stateStore.providerClass"
    usual = spark.conf.get(provider)
    found: dict[str, dict[str, str]] = {}
    for operator in OPERATORS:
        for mode in MODES:
            try:
                outcome = try_operator(spark, operator, mode, folder / "tried")
            except Exception as error:  # noqa: BLE001 - let through, and then it failed: the table must not hide it
                outcome = f"FAILS: {str(error).splitlines()[0]}"
            found.setdefault(operator.name, {})[mode] = outcome
            spark.conf.set(provider, usual)
    return found


def render(found: dict[str, dict[str, str]]) -> str:
    """The page."""
    lines = [
        "# Streaming queries",
        "",
        "Output mode by operator, as `python -m tools.streaming_table` found it: every combination was built as a run "
        "builds it, and those that are not refused were run twice. A refused one ends `tidegate validate --spark` and "
        "`tidegate run` with exit code 64 (UNSUPPORTED_OPERATION) before anything is started or read.",
        "",
        "| operator | append | update | complete |",
        "|---|---|---|---|",
    ]
    notes: list[str] = []
    for name, modes in found.items():
        cells = []
        for mode in MODES:
            why = modes[mode]
            if why and why not in notes:
                notes.append(why)
            cells.append(f"refused ({notes.index(why) + 1})" if why else "works")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    lines += ["", "What is said when one is refused, and what to do instead:", ""]
    lines += [f"{number}. {why}" for number, why in enumerate(notes, 1)]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write the page."""
    from pyspark.sql import SparkSession

    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.streaming.queryEvolution.enableSourceEvolution", "true")
        .config("spark.sql.streaming.offsetLog.formatVersion", "2")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .getOrCreate()
    )
    with tempfile.TemporaryDirectory() as folder:
        PAGE.write_text(render(try_all(spark, Path(folder))), encoding="utf-8")
    spark.stop()
    print(f"wrote {PAGE.name}")


if __name__ == "__main__":
    main()
