"""Files that go away between being listed and being read, and files that are still being written."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from tests.e2e.conftest import MakePipeline
from tests.support.scene import NAME, kill_when
from tidegate.core.errors import TryAgainError

SOURCE = "path: {path}\nformat: json\nschema: id STRING, amount INT\noptions: {{maxFilesPerTrigger: 1}}"


def test_removed_before_it_was_read(make_pipeline: MakePipeline, other_device: Path) -> None:
    """What was taken is read, also from another device, where no hard link keeps it and the intake has a copy."""
    pipeline = make_pipeline(SOURCE.format(path=other_device))

    def offer(name: str) -> Path:
        path = other_device / name
        path.write_text(json.dumps({"id": name, "amount": 1}))
        pipeline.expect_rows([{"id": name, "amount": 1}])
        return path

    def taken() -> bool:
        return len(list((pipeline.state / "intake").rglob("*.json"))) == 2

    offered = [offer("planned.json"), offer("waiting.json")]
    assert kill_when(pipeline, pipeline.start("run", NAME, "--run-id", "first"), taken)
    for path in offered:
        path.unlink()
    pipeline.run()
    pipeline.check()
    assert pipeline.run()["outcome"] == "nothing_new"

    # Its name in the intake was taken away between being planned and being read.
    offer("planned.json").rename(other_device / "later.json")
    pipeline.rows.pop()
    offsets = pipeline.state / "checkpoint/offsets/2"
    assert kill_when(pipeline, pipeline.start("run", NAME, "--run-id", "second"), offsets.exists)
    (other_device / "later.json").unlink()
    for copy in (pipeline.state / "intake").rglob("*.json"):
        copy.unlink()
    pipeline.expect_aside(str(other_device / "later.json"), None, None)
    (other_device / "torn.json.gz").write_bytes(b"no gzip")
    pipeline.expect_aside(str(other_device / "torn.json.gz"), None, None)
    pipeline.run()
    aside = pipeline.check()
    assert any("vanished before it was read" in row["detail"] for row in aside)
    (kept,) = [row["detail"].rsplit("/", 1)[-1] for row in aside if "torn" in row["position"]]
    assert (pipeline.state / "unreadable" / kept).read_bytes() == b"no gzip"


def test_settle(make_pipeline: MakePipeline) -> None:
    """A file is left alone until it has not changed for so long, whatever its own time stamp says."""
    pipeline = make_pipeline("path: data/inbox\nformat: json\nschema: id STRING, amount INT\nsettle: 3 seconds")
    for name, mtime in {"now.json": None, "old.json": 5.0, "future.json": 4e9}.items():
        pipeline.put(name, json.dumps({"id": name, "amount": 1}), mtime=mtime)
        pipeline.expect_rows([{"id": name, "amount": 1}])
    first = pipeline.run()
    assert first["outcome"] == "nothing_new"
    assert {one["path"] for one in first["sources"]["orders"]["settling"]} == {
        f"data/inbox/{name}" for name in ("now.json", "old.json", "future.json")
    }
    assert first["sources"]["orders"]["backlog"] == 3
    time.sleep(3.1)
    with open(pipeline.inbox / "growing.json", "w") as handle:
        handle.write('{"id": "half')
    assert pipeline.run()["rows"]["read"] == 3
    pipeline.check()


GROW = """\
from pyspark.sql import functions as F


@F.udf("int")
def grow(amount):
    with open({path!r}, "a") as handle:
        if handle.tell() < {until}:
            handle.write('{{"id": "from %d", "amount": 1}}\\n' % handle.tell())
    return amount


def transform(orders):
    return orders.withColumn("amount", grow("amount"))
"""


def test_changed_while_it_was_read(make_pipeline: MakePipeline) -> None:
    """A file that grows under Spark's hands is read again, and not forever; half of it is never published."""
    pipeline = make_pipeline("path: data/inbox\nformat: json\nschema: id STRING, amount INT", transform="")
    path = pipeline.put("growing.json", '{"id": "first", "amount": 1}\n')
    growing = pipeline.root / path
    pipeline.write_transform(GROW.format(path=str(growing), until=1 << 20))
    with pytest.raises(TryAgainError, match=path) as refused:
        pipeline.run()
    assert refused.value.code == "FILE_CHANGING"
    assert not pipeline.table.exists()

    size = growing.stat().st_size
    pipeline.write_transform(GROW.format(path=str(growing), until=size + 1))  # again, then its writer is done
    pipeline.run()
    assert growing.stat().st_size > size
    pipeline.expect_rows(json.loads(line) for line in growing.read_text().splitlines())
    pipeline.check()
    assert pipeline.run()["outcome"] == "nothing_new"


def test_paths_with_values_in_folders_and_changes_of_the_schema(make_pipeline: MakePipeline) -> None:
    """Typed ``k=v`` values, a glob, a new column, and changes that are refused before anything is taken."""
    source = "path: data/inbox/part-?\nformat: json\nschema: id STRING, amount INT, code STRING, number INT, day DATE\n"
    pipeline = make_pipeline(source, more="transform: transform.py\ntable: {partition_by: [code]}\n")
    pipeline.write_transform("def transform(orders):\n    return orders\n")

    from datetime import date

    def offer(folder: str, key: str, code: str | None, number: int | None, day: date | None) -> None:
        path = f"{folder}/{key}.json"
        pipeline.put(path, json.dumps({"id": key, "amount": 1}))
        row = {"id": key, "amount": 1, "code": code, "number": number, "day": day}
        pipeline.expect_rows([row])

    new_year = date(2026, 1, 1)
    offer("part-a/code=001/number=7/day=2026-01-01", "typed", "001", 7, new_year)
    offer("part-b/code=é 日本/number=-1/day=2026-01-01", "unicode", "é 日本", -1, new_year)
    offer("part-b/code=a%2Fb%25/number=0/day=2026-01-01", "escaped", "a/b%", 0, new_year)
    null = "__HIVE_DEFAULT_PARTITION__"
    offer(f"part-b/code={null}/number={null}/day={null}", "null", None, None, None)
    offer("part-a/code=true/number=2147483647/day=0001-01-01", "ends", "true", 2147483647, date(1, 1, 1))
    pipeline.put("elsewhere/other.json", json.dumps({"id": "not in the glob"}))
    pipeline.put("part-a/code=x/flat.json", json.dumps({"id": "its folders give one column only"}))
    report = pipeline.run()
    pipeline.check()
    (skipped,) = report["sources"]["orders"]["skipped"]
    assert skipped["path"] == "data/inbox/part-a/code=x/flat.json"
    assert skipped["fix"], "a person has to move it"

    # A new nullable column is added; older rows have none.
    pipeline.write_transform("def transform(orders):\n    return orders.selectExpr('*', 'amount * 2 AS twice')\n")
    pipeline.rows = [{**row, "twice": None} for row in pipeline.rows]
    pipeline.put("part-a/code=n/number=1/day=2026-01-01/n.json", json.dumps({"id": "n", "amount": 4}))
    new = {"id": "n", "amount": 4, "code": "n", "number": 1, "day": new_year, "twice": 8}
    pipeline.expect_rows([new])
    pipeline.run()
    pipeline.check()

    # A removed or retyped one is not, and the file stays pending.
    pipeline.put("part-a/code=m/number=1/day=2026-01-01/m.json", json.dumps({"id": "m", "amount": 4}))
    pipeline.write_transform("def transform(orders):\n    return orders.selectExpr('*', 'amount * 2L AS twice')\n")
    refused = pipeline.report("run", NAME, expect=64)
    assert "twice" in refused["error"]["message"] and refused["rows"]["staged"] == 0
    pipeline.check()
    # The last batch of the right kind takes it.
    pipeline.write_transform("def transform(orders):\n    return orders.selectExpr('*', 'amount * 2 AS twice')\n")
    pipeline.expect_rows([{**new, "id": "m", "code": "m"}])
    pipeline.run()
    pipeline.check()


def test_appended_lines(make_pipeline: MakePipeline) -> None:
    """Each line of a growing csv file with a header reaches table or quarantine once, with its line in that file."""
    pipeline = make_pipeline(
        "path: data/inbox\nformat: csv\nschema: id STRING, amount INT\non_change: reread_tail\noptions: {header: true}"
    )
    path = pipeline.put("a.csv", "id,amount\nfirst,1\n")
    pipeline.expect_rows([{"id": "first", "amount": 1}])
    pipeline.run()
    with open(pipeline.root / path, "a") as handle:
        handle.write("second,2\nthird,many\n")
    # Killed when the tail is taken and Spark has planned it; the file grows on.
    offsets = pipeline.state / "checkpoint/offsets/1"
    assert kill_when(pipeline, pipeline.start("run", NAME), offsets.exists)
    with open(pipeline.root / path, "a") as handle:
        handle.write("fourth,4\n")
    pipeline.expect_rows([{"id": "second", "amount": 2}, {"id": "fourth", "amount": 4}])
    pipeline.run()
    pipeline.run()
    report = pipeline.run()
    assert report["outcome"] == "nothing_new" and "changed" not in report["sources"]["orders"]
    pipeline.expect_aside(path, 4, "third,many")
    pipeline.check()
