"""JSON over several lines: each record of a file is in the table or in quarantine, as it stands in the file."""

from __future__ import annotations

import gzip
import json
import os
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.readers import read_agreed
from tests.support.streaming import make_streaming, source
from tidegate.sources.bounds import LONGEST_RECORD_BYTES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "id STRING, n DECIMAL(20,2), a STRUCT<b: INT>, day STRING"
DEEP = '{"id": "k", "deep": ' + "[" * 70 + "]" * 70 + "}"


def test_each_record_is_accounted_for(spark: SparkSession, tmp_path: Path) -> None:
    more = {"options": {"multiLine": True}, "unknown_fields": "quarantine"}
    flow = make_streaming(tmp_path, spark, "sources:\n" + source("docs", SCHEMA, **more))
    folder = tmp_path / "data/in/docs/day=1"
    folder.mkdir(parents=True)
    wrong = {
        "number.json": '{\n "id": "n", "n": 1.239}',
        "unknown.json": '{"id": "u", "a": {\n"b": 1, "c": 2}}',
        "open.json": '[{"id": "x"}, {"id": ',
        "comma.json": '{"id": "x"} {"id": "y"}',
        "deep.json": DEEP,
        "word.json": "word",
        "text_behind.json": '[{"id": "x"}] ]',
    }
    good = {
        "one.json": '{\n  "id": "a\\"]}", "n": 12345678901234567.25,\n  "a": {"b": 1}\n}\n',
        "array.json": '\ufeff[\n  {"id": "b"},\n  {"id": "{[\\\\"}\n,{}]',
        "lines.json": '{"id": "d"}\n{"id": "e"}\n\n{"id":\n"f"}',
        "empty.json": " [ ] \n",
        "blank.json": "\n \n",
        "mixed.json": '[{"id": "g"}, 5, null, [{"id": "x"}], "t", {"id": "h"}]',
    }
    for name, text in {**good, **wrong}.items():
        (folder / name).write_text(f"[{text}]" if name == "comma.json" else text)
    (folder / "packed.json.gz").write_bytes(gzip.compress(b'[{"id":\n"i"},\n{"id": "j"}]'))
    (folder / "torn.json.gz").write_bytes(gzip.compress(b'[{"id":\n"x"},\n{"id": "y"}]' + os.urandom(99))[:-30])
    (folder / "latin.json").write_bytes(b'[{"id": "gr\xfc\xdfe"},\n{"id": "x"}]')
    (folder / "large.json").write_text(json.dumps([{"id": "x" * LONGEST_RECORD_BYTES}, {"id": "l"}], indent=1))
    report = flow.run()
    ids = ['a"]}', "b", "{[\\", None, *"defghijl", "x"]
    flow.expect("id day", [(one, "1") for one in ids])
    assert (Decimal("12345678901234567.25"),) in flow.rows("n")
    rows = report["rows"]
    assert (rows["read"], rows["malformed"], rows["published"]) == (len(ids) + 14, 14, len(ids))
    aside = read_agreed(tmp_path / "data/quarantine/flow", spark)
    found = {(Path(json.loads(row["position"])["file"]).name, row["raw"]): row["detail"] for row in aside}
    assert len(found) == len(aside) == 14
    for name, text in wrong.items():
        assert (name, text) in found, "as it stands in the file"
    for raw in ("5", "null", '[{"id": "x"}]', '"t"'):
        assert found["mixed.json", raw] == "not a JSON object"
    details = {name: detail for (name, _), detail in found.items()}
    assert "n: " in details["number.json"] and "a.c" in details["unknown.json"]
    assert details["latin.json"] == "not valid UTF-8" and "breaks off" in details["torn.json.gz"]
    assert "the limit is 8,388,608 bytes; the file is kept as" in details["large.json"]
    assert details["open.json"].startswith("not valid JSON from line 1 on: ")
    assert details["deep.json"] == "fields that the schema lacks: deep"


def test_its_columns_are_inferred_and_it_is_taken_at_once(spark: SparkSession, tmp_path: Path) -> None:
    """Half a document cannot be told from a whole one by its last line."""
    flow = make_streaming(tmp_path, spark, "sources:\n" + source("docs", "infer", options={"multiLine": True}))
    folder = tmp_path / "data/in/docs"
    folder.mkdir(parents=True)
    (folder / "one.json").write_text('[{"id": 1,\n"s": "a"},\n{"id": 2}]')
    assert flow.run()["rows"]["published"] == 2
    flow.expect("id s", [(1, "a"), (2, None)])
