"""Csv and text: headers, quotes, too many and too few columns, lines of every length, one batch of everything."""

from __future__ import annotations

import gzip
import json

from tests.e2e.conftest import RANGE_RULE, MakePipeline

SCHEMA = "id STRING NOT NULL, amount INT, note STRING, day DATE"


def _row(key: str, note: str | None = None) -> dict[str, object]:
    return {"id": key, "amount": 1, "note": note, "day": None}


def test_without_a_header(make_pipeline: MakePipeline) -> None:
    """Each line is kept as it came, with its number and what is wrong with it; also when a rule rejects the row."""
    pipeline = make_pipeline(
        f"path: data/inbox\nformat: csv\nschema: '{SCHEMA}'\noptions: {{comment: '#', escape: '\"'}}", rules=RANGE_RULE
    )
    faults = {
        "too,few": "not 4 columns",
        "too,1,many,,columns": "not 4 columns",
        "wrong type,one,,": "amount: not an INT",
        "overflow,2147483648,,": "amount: not an INT",
        ",1,no id,": "id: missing or null, but NOT NULL",
        "no day,1,,2026-02-30": "day: not a DATE",
        "far day,1,,+12345-01-01": "day: ",
    }
    lines = ["# a comment, and a blank line", "", 'a,1,"with, comma and ""quotes""",']
    pipeline.expect_rows([_row("a", 'with, comma and "quotes"')])
    for fault in faults:
        lines.append(fault)
        pipeline.expect_aside("data/inbox/plain.csv", len(lines), fault)
        pipeline.expect_aside("data/inbox/packed.csv.gz", len(lines), fault)
    lines.append("r,5000,,")
    for path in ("data/inbox/plain.csv", "data/inbox/packed.csv.gz"):
        pipeline.expect_aside(path, len(lines), "r,5000,,", "amount_in_range")
    lines.append("last,1,é日本,")
    pipeline.expect_rows([_row("last", "é日本"), _row("a", 'with, comma and "quotes"'), _row("last", "é日本")])
    pipeline.put("plain.csv", "\n".join(lines))
    pipeline.put("packed.csv.gz", gzip.compress(("\r\n".join(lines) + "\r\n").encode()))
    pipeline.run()
    pipeline.check()
    details = pipeline.details()
    for fault, detail in faults.items():
        assert details[fault].startswith(detail), (fault, details[fault])


def test_with_a_header_and_records_over_lines(make_pipeline: MakePipeline) -> None:
    """A file whose header is another one is quarantined whole; a header that is quoted, alone, or behind a BOM is
    one."""
    pipeline = make_pipeline(
        f"path: data/inbox\nformat: csv\nschema: '{SCHEMA}'\noptions: {{header: true, multiLine: true}}"
    )
    header = "id,amount,note,day\n"
    pipeline.put("plain.csv", header + 'a,1,"two\nlines",\nb,1,,\n')
    pipeline.put("quoted.csv", '"id","amount","note","day"\nc,1,,')
    pipeline.put("bom.csv", b"\xef\xbb\xbf" + header.encode() + b"d,1,,\n")
    pipeline.put("upper.csv", header.upper() + "e,1,,\n")
    pipeline.put("crlf.csv", (header + "f,1,,\n").replace("\n", "\r\n"))
    pipeline.put("alone.csv", header)
    pipeline.put("packed.csv.gz", gzip.compress((header + "g,1,,\n").encode()))
    pipeline.expect_rows([_row("a", "two\nlines"), *(_row(key) for key in "bcdefg")])
    wrong = {
        "other_order.csv": "id,note,amount,day\nx,1,2,\n",
        "one_less.csv": "id,amount,note\nx,1,2\n",
        "one_more.csv": "id,amount,note,day,more\nx,1,2,,3\n",
        "no_header.csv": "x,1,,\n",
    }
    for name, content in wrong.items():
        pipeline.expect_aside(pipeline.put(name, content), None, None)
    bad = pipeline.put("bad.csv", header + 'good,1,,\nshort,1\nh,one,,\n,1,"no\nid",\n')
    pipeline.expect_rows([_row("good")])
    pipeline.expect_aside(bad, 3, "short,1")
    pipeline.expect_aside(bad, 4, "h,one,,")
    pipeline.expect_aside(bad, 5, ',1,"no\nid",')
    pipeline.run()
    aside = pipeline.check()
    for row in aside:
        file = json.loads(row["position"])["file"].rsplit("/", 1)[-1]
        if file in wrong:
            told = f"its header is {', '.join(wrong[file].splitlines()[0].split(','))}; the schema wants"
            assert row["detail"].startswith(told), row["detail"]
            kept = pipeline.state / "unreadable" / row["detail"].rsplit("/", 1)[-1]
            assert kept.read_text() == wrong[file]
    assert pipeline.details()["h,one,,"] == "amount: not an INT"


def test_text_in_one_batch_through_sql(make_pipeline: MakePipeline) -> None:
    """Lines of text, blank ones too, through SQL, with ``trigger: once``; bytes that are not UTF-8 are quarantined."""
    pipeline = make_pipeline("path: data/inbox\nformat: text", more="transform: transform.sql\ntrigger: once\n")
    pipeline.write_transform("SELECT value, length(value) AS letters FROM orders -- all of them\n;", "transform.sql")
    texts = ["first", "", "  indented ", '{"no": "json parsed"}', "L" * 100_000, "last, without an end"]
    pipeline.put("a.txt", "\n".join(texts))
    pipeline.expect_rows({"value": text, "letters": len(text)} for text in texts)
    for number in range(20):
        pipeline.put(f"more{number}.log", f"line {number}\r\n")
        pipeline.expect_rows([{"value": f"line {number}", "letters": len(f"line {number}")}])
    pipeline.put("latin.txt", "fine\ncaf\xe9\n".encode("latin-1"))
    pipeline.expect_rows([{"value": "fine", "letters": 4}])
    pipeline.expect_aside("data/inbox/latin.txt", 2, "Y2Fm6Q==")
    report = pipeline.run()
    pipeline.check()
    assert report["batches"] == 1
    assert list(pipeline.details().values()) == ["not valid UTF-8"]
