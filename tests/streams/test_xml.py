"""XML files: each record is in the table or in quarantine, as it stands in its file; judged by plain Python."""

from __future__ import annotations

import gzip
import json
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.readers import read_agreed
from tests.support.streaming import make_streaming, source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "_id INT, name STRING, price DECIMAL(6,2), due DATE, tags ARRAY<STRING>, at STRUCT<_unit: STRING, _VALUE: INT>"
GOOD = {
    "<o id='1'><name>é &lt;b&gt;</name><price>1.50</price></o>": (1, "é <b>", Decimal("1.50"), None, None, None),
    "<o id='2'><price>+0012</price><due>2026-01-02</due></o>": (
        2,
        None,
        Decimal("12.00"),
        date(2026, 1, 2),
        None,
        None,
    ),
    "<o id='3'><tags>a</tags><name/><tags>b</tags></o>": (3, "", None, None, ("a", "b"), None),
    "<o id='4'><at unit='km'>7</at></o>": (4, None, None, None, None, ("km", 7)),
    "<o id='5'><name><![CDATA[</o>]]></name></o>": (5, "</o>", None, None, None, None),
    "<o/>": (None, None, None, None, None, None),
}
BAD = {
    "<o id='6'><price>1.505</price></o>": "price: ",
    "<o id='7'><price>1,50</price></o>": "price: ",
    "<o id='x'/>": "_id: not an INT",
    "<o id='8'><due>2026-02-30</due></o>": "due: not a DATE",
    "<o id='9'><name>a</name><name>b</name></o>": "name: ",
    "<o id='9999999999'/>": "_id: not an INT",
    "<o id='10'><colour>red</colour></o>": "fields that the schema lacks: colour",
    "<o id='11'><name lang='en'>a</name></o>": "fields that the schema lacks: name._lang",
    "<o id='12'><at><x>1</x></at></o>": "fields that the schema lacks: at.x",
}
WHOLE = {
    "torn.xml": "<all><o id='13'/><o id='14'>",
    "two.xml": "<all><o id='15'/></all><all/>",
    "other.xml": "<all><p id='16'/></all>",
    "entity.xml": "<!DOCTYPE o [<!ENTITY e SYSTEM 'file:///etc/hostname'>]><o><name>&e;</name></o>",
}


def test_each_record_is_accounted_for(spark: SparkSession, tmp_path: Path) -> None:
    more = {"format": "xml", "options": {"rowTag": "o"}, "unknown_fields": "quarantine"}
    flow = make_streaming(tmp_path, spark, "sources:\n" + source("docs", f"{SCHEMA}, day INT", **more))
    folder = tmp_path / "data/in/docs/day=1"
    folder.mkdir(parents=True)
    lines = [*GOOD, *BAD]
    (folder / "all.xml").write_text("<?xml version='1.0'?>\n<all head='h'>\n" + "\n".join(lines) + "\n</all>\n")
    (folder / "packed.xml.gz").write_bytes(gzip.compress("<o id='17'/>".encode("utf-16")))
    (folder / "torn.xml.gz").write_bytes(gzip.compress(b"<o id='18'/>" * 99)[:-5])
    for name, text in WHOLE.items():
        (folder / name).write_text(text)
    report = flow.run()
    rows = report["rows"]
    wanted = len(GOOD) + 1 + len(BAD) + len(WHOLE) + 1
    assert (rows["read"], rows["malformed"]) == (wanted, len(BAD) + len(WHOLE) + 1)
    assert report["sources"]["docs"]["unknown_fields"]["/all/@head"] == "data/in/docs/day=1/all.xml"
    found = flow.rows("_id", "name", "price", "due", "tags", "at", "day")
    plain = [
        (
            *row[:4],
            tuple(row[4]) if row[4] is not None else None,
            tuple(dict(row[5]).values()) if row[5] else None,
            row[6],
        )
        for row in found
    ]
    expected = [(*row, 1) for row in [*GOOD.values(), (17, None, None, None, None, None)]]
    assert sorted(plain, key=str) == sorted(expected, key=str)
    aside = read_agreed(tmp_path / "data/quarantine/flow", spark)
    details = {row["raw"]: row["detail"] for row in aside}
    for raw, why in BAD.items():
        assert why in details[raw], (raw, details[raw])
    places = {row["raw"]: json.loads(row["position"]) for row in aside}
    for number, raw in enumerate(lines, start=3):
        if raw in BAD:
            assert places[raw] == {"file": "data/in/docs/day=1/all.xml", "line": number}
    for name, text in WHOLE.items():
        assert places[text]["file"].endswith(name)
    assert len(aside) == len(BAD) + len(WHOLE) + 1
