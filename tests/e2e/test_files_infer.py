"""``schema: infer``: the first run finds the columns, the later ones keep them, and what does not fit is named."""

from __future__ import annotations

import datetime
import io
import json
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

from tests.e2e.conftest import MakePipeline, Pipeline
from tests.support.readers import read_agreed
from tests.support.scene import NAME
from tidegate.core.errors import DisagreementError, UsageError

_DAY = datetime.date(2026, 1, 1)


def _pack(kind: str, **columns: Any) -> bytes:
    sink, table = io.BytesIO(), pa.table(columns)
    if kind == "parquet":
        pq.write_table(table, sink)
    else:
        orc.write_table(table, sink)
    return sink.getvalue()


def _schema(pipeline: Pipeline) -> str:
    return str(json.loads(pipeline.call("plan", NAME, "--json"))["sources"]["orders"]["schema"])


def test_json(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline("path: data/inbox\nformat: json\nschema: infer")
    assert _schema(pipeline) == "infer"
    failed = pipeline.put("day=2026-01-01/bad.json", "no JSON\n")
    pipeline.expect_aside(failed, 1, "no JSON")
    with pytest.raises(UsageError, match=f"none of 1 files, first {failed}, holds a record") as refused:
        pipeline.run()
    assert refused.value.code == "SCHEMA_NOT_INFERRED"

    pipeline.put("day=2026-01-01/a.json", '{"id": 1, "tags": ["x"], "at": {"lat": 1.5}}\n{"id": 2, "none": null}\n')
    rows = [{"at": {"lat": 1.5}, "id": 1, "none": None, "tags": ["x"], "day": _DAY}]
    rows.append({"at": None, "id": 2, "none": None, "tags": None, "day": _DAY})
    pipeline.expect_rows(rows)
    pipeline.tidegate("validate", "--spark")
    report = pipeline.run()
    pipeline.check()
    schema = "at STRUCT<lat: DOUBLE>,id BIGINT,none STRING,tags ARRAY<STRING>, day DATE"
    assert report["sources"]["orders"]["schema"] == schema
    assert report["notes"] == [f"source orders: its columns were inferred, and are kept: {schema}"]
    assert _schema(pipeline) == schema

    later = pipeline.put("day=2026-01-02/b.json", '{"id": "text"}\n{"id": 3, "more": 1}\n')
    pipeline.expect_aside(later, 1, '{"id": "text"}')
    named = pipeline.put("day=soon/c.json", '{"id": 4}\n')
    pipeline.expect_rows([{**rows[1], "id": 3, "day": datetime.date(2026, 1, 2)}])
    report = pipeline.run()
    pipeline.check()
    assert report["sources"]["orders"]["unknown_fields"] == {"more": later}
    assert report["sources"]["orders"]["skipped"][0]["why"] == "its folder says day=soon, and day is DATE", named
    assert pipeline.details()['{"id": "text"}'] == "id: not a BIGINT"

    # The same columns written down go on; others are a change of the spec, which repair accepts.
    (pipeline.inbox / "day=soon/c.json").unlink()
    pipeline.put("day=2026-01-02/d.json", '{"id": 5}\n')
    pipeline.write_spec(f"path: data/inbox\nformat: json\nschema: '{schema.lower()}'")
    pipeline.expect_rows([{**rows[1], "id": 5, "day": datetime.date(2026, 1, 2)}])
    pipeline.run()
    pipeline.check()
    pipeline.write_spec(f"path: data/inbox\nformat: json\nschema: '{schema}, more INT'")
    with pytest.raises(DisagreementError, match=r"sources\.orders\.schema: ") as disagreed:
        pipeline.run()
    assert disagreed.value.code == "SPEC_CHANGED"
    pipeline.call("repair", NAME)
    pipeline.put("day=2026-01-03/e.json", '{"id": 6, "more": 7}\n')
    pipeline.run()
    found = {row["id"]: row.get("more") for row in read_agreed(pipeline.table)}
    assert found == {1: None, 2: None, 3: None, 5: None, 6: 7}


def test_csv_with_a_header(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline("path: data/inbox\nformat: csv\nschema: infer\noptions: {header: true}")
    for run in range(3):
        pipeline.put(f"hour=0{run}/a.csv", f"id,note,at\n{run},x,2026-01-01\n{run}5,,\n")
        pipeline.expect_rows([{"id": run, "note": "x", "at": _DAY, "hour": f"0{run}"}])
        pipeline.expect_rows([{"id": run * 10 + 5, "note": None, "at": None, "hour": f"0{run}"}])
        if run:
            path = pipeline.put(f"hour=0{run}/b.csv", f"id,note,at\n{run},x,soon\n")
            pipeline.expect_aside(path, 2, f"{run},x,soon")
        if run == 2:
            path = pipeline.put("hour=02/c.csv", "id,at,note\n1,2026-01-01,x\n")
            pipeline.expect_aside(path, None, None)
        pipeline.run()
        aside = pipeline.check()
    assert _schema(pipeline) == "id INT,note STRING,at DATE, hour STRING"
    details = sorted(row["detail"].partition(";")[0] for row in aside)
    assert details == ["at: not a DATE", "at: not a DATE", "its header is id, at, note"]


@pytest.mark.parametrize("kind", ["parquet", "orc"])
def test_columnar_files_that_contradict(make_pipeline: MakePipeline, kind: str) -> None:
    pipeline = make_pipeline(f"path: data/inbox\nformat: {kind}\nschema: infer")
    torn = pipeline.put(f"n=1/torn.{kind}", _pack(kind, id=[1])[:40])
    pipeline.expect_aside(torn, None, None)
    pipeline.put(f"n=1/a.{kind}", _pack(kind, id=[1], name=["x"]))
    other = pipeline.put(f"n=1/b.{kind}", _pack(kind, id=["one"]))
    error = pipeline.report("run", NAME, expect=64)["error"]
    assert error["code"] == "SCHEMA_NOT_INFERRED"
    assert f"id is int64 in data/inbox/n=1/a.{kind} and string in {other}" in error["message"]

    # Nothing was read and nothing lost: with the columns written down, what does not fit is quarantined.
    pipeline.write_spec(f"path: data/inbox\nformat: {kind}\nschema: id BIGINT, name STRING, n INT")
    pipeline.expect_aside(other, None, None)
    pipeline.expect_rows([{"id": 1, "name": "x", "n": 1}])
    pipeline.run()
    pipeline.check()


@pytest.mark.parametrize("kind", ["parquet", "orc"])
def test_columnar_over_three_runs(make_pipeline: MakePipeline, kind: str) -> None:
    pipeline = make_pipeline(f"path: data/inbox\nformat: {kind}\nschema: infer")
    torn = pipeline.put(f"n=1/torn.{kind}", _pack(kind, id=[1])[:40])
    pipeline.expect_aside(torn, None, None)
    when = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    pipeline.put(f"n=1/a.{kind}", _pack(kind, id=pa.array([1], pa.int32()), at=pa.array([when])))
    pipeline.put(f"n=2/b.{kind}", _pack(kind, id=pa.array([2], pa.int32()), name=["x"]))
    pipeline.expect_rows([{"id": 1, "at": when, "name": None, "n": 1}, {"id": 2, "at": None, "name": "x", "n": 2}])
    pipeline.run()
    pipeline.check()
    columns = [part.strip() for part in _schema(pipeline).split(",")]
    assert sorted(columns) == ["at TIMESTAMP", "id INT", "n INT", "name STRING"]

    wide = pipeline.put(f"n=3/c.{kind}", _pack(kind, id=pa.array([3], pa.int32()), name=[7]))
    pipeline.put(f"n=3/d.{kind}", _pack(kind, id=pa.array([4], pa.int32()), more=[True]))
    pipeline.expect_aside(wide, None, None)
    pipeline.expect_rows([{"id": 4, "at": None, "name": None, "n": 3}])
    told = pipeline.tidegate("validate", "--spark", expect=64)
    assert f"{wide}: name is int64, the schema wants STRING" in told
    report = pipeline.run()
    (aside,) = [row for row in pipeline.check() if json.loads(row["position"])["file"] == wide]
    assert aside["detail"].startswith("name is int64, the schema wants STRING; the file is kept as")
    assert report["sources"]["orders"]["unknown_fields"] == {"more": f"data/inbox/n=3/d.{kind}"}

    pipeline.put(f"n=3/e.{kind}", _pack(kind, id=pa.array([5], pa.int32())))
    pipeline.expect_rows([{"id": 5, "at": None, "name": None, "n": 3}])
    pipeline.run()
    pipeline.check()
