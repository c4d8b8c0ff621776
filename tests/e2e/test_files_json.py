"""JSON lines: what does not parse or fit is quarantined with its line; fields that the schema lacks, by their
policy."""

from __future__ import annotations

import gzip
import json

import pyarrow as pa

from tests.e2e.conftest import RANGE_RULE, MakePipeline

BAD = {
    '{"id": "torn", "amount": 1': "not valid JSON",
    "not json at all": "not a JSON object",
    "null": "not a JSON object",
    '[{"id": "inside an array"}]': "not a JSON object",
    "17": "not a JSON object",
    '"text"': "not a JSON object",
    '{"id": "two", "amount": 1}{"id": "objects"}': "text after the JSON object",
    '{"id": "wrong type", "amount": "many"}': "amount: not an INT",
    '{"id": "overflow", "amount": 2147483648}': "amount: not an INT",
    '{"id": "too many digits", "price": 12345678901.5}': "price: not a DECIMAL(10,2)",
    '{"id": "no object", "nested": 7}': "nested: not a STRUCT<a: INT, b: ARRAY<STRING>>",
    '{"id": "deep inside", "nested": {"a": "x"}}': "nested.a: not an INT",
    '{"amount": 5}': "id: missing or null, but NOT NULL",
    '{"id": null, "amount": 5}': "id: missing or null, but NOT NULL",
    '{"id": "no such day", "day": "2026-02-30"}': "day: not a DATE",
    '{"id": "a day in the year 12000", "day": "+12000-01-01"}': "day: ",
}
_MANY = 4200  # over plan.CAPTURED_AT_MOST
SCHEMA = "id STRING NOT NULL, amount INT, price DECIMAL(10,2), day DATE, nested STRUCT<a: INT, b: ARRAY<STRING>>"


def _good(key: str, amount: int | None = 1) -> dict[str, object]:
    return {"id": key, "amount": amount, "price": None, "day": None, "nested": None}


def test_every_kind_of_fault(make_pipeline: MakePipeline) -> None:
    """Faults of all kinds between good records, in plain, gzip and torn gzip files, and rejected rows, in one run."""
    source = f"path: data/inbox\nformat: json\nschema: '{SCHEMA}'"
    pipeline = make_pipeline(source, rules=RANGE_RULE)
    for name, pack in {"plain.json": bytes, "packed.json.gz": gzip.compress}.items():
        lines = []
        for number, bad in enumerate(BAD):
            lines += [json.dumps({"id": f"{name}{number}", "amount": 1}), bad]
            pipeline.expect_rows([_good(f"{name}{number}")])
            pipeline.expect_aside(f"data/inbox/{name}", len(lines), bad)
        # A record that comes twice has two positions.
        lines += ["twice the same", "twice the same"]
        for line in (len(lines) - 1, len(lines)):
            pipeline.expect_aside(f"data/inbox/{name}", line, "twice the same")
        rejected = json.dumps({"id": f"{name} too large", "amount": 1001})
        lines.append(rejected)
        pipeline.expect_aside(f"data/inbox/{name}", len(lines), rejected, "amount_in_range")
        pipeline.put(name, pack(("\n".join(lines) + "\n").encode()))
    full = {"id": "full", "amount": -0, "price": "1.10", "day": "2026-01-31", "nested": {"a": 1, "b": ["x", None]}}
    pipeline.put("full.json", json.dumps(full))
    from datetime import date
    from decimal import Decimal

    pipeline.expect_rows([{**full, "price": Decimal("1.10"), "day": date(2026, 1, 31)}])
    unknown = {"id": "with more", "amount": 3, "new": 1, "other": {"deep": True}}
    pipeline.put("unknown.json", json.dumps({"id": "without", "amount": 3}) + "\n" + json.dumps(unknown))
    pipeline.expect_rows([_good("without", 3), _good("with more", 3)])

    # Random texts do not compress, so the tear leaves whole lines before it.
    import random

    random.seed(7)
    torn = [json.dumps({"id": f"torn{number}-{random.randbytes(400).hex()}", "amount": 1}) for number in range(200)]
    packed = gzip.compress("\n".join(torn).encode())
    cut = packed[: len(packed) // 2]
    path = pipeline.put("torn.json.gz", cut)
    import zlib

    readable = zlib.decompressobj(31).decompress(cut).decode().split("\n")[:-1]
    assert 20 < len(readable) < 180
    pipeline.expect_rows(_good(json.loads(line)["id"]) for line in readable)
    pipeline.expect_aside(path, None, None)
    # Of those behind the first Spark reads no record, and says nothing: it takes what it cannot make out for the end.
    text = "\n".join(torn).encode()
    unreadable = {
        "no_gzip.json.gz": b"this is no gzip file",
        "torn.json": cut,
        "no_bzip2.json.bz2": text,
        "frame.json.lz4": pa.compress(text, "lz4", asbytes=True),
        "block.json.snappy": pa.compress(text, "snappy", asbytes=True),
        "gzip.json": gzip.compress(text),
    }
    for name in unreadable.keys() - {"torn.json"}:
        pipeline.expect_aside(pipeline.put(name, unreadable[name]), None, None)

    report = pipeline.run()
    aside = pipeline.check()
    details = pipeline.details()
    for raw, detail in BAD.items():
        assert details[raw].startswith(detail), (raw, details[raw])
    assert report["rows"]["rejected"] == 2
    fields = report["sources"]["orders"]["unknown_fields"]
    assert set(fields) == {"new", "other"} and "unknown.json" in fields["new"]
    for row in aside:
        if row["raw"] is None:
            kept = pipeline.state / "unreadable" / row["detail"].rsplit("/", 1)[-1]
            name = next(name for name in unreadable if name in row["position"])
            assert kept.read_bytes() == unreadable[name]
    assert pipeline.run()["outcome"] == "nothing_new"


def test_unknown_fields_go_to_quarantine_and_a_batch_with_very_many_faults(make_pipeline: MakePipeline) -> None:
    """More quarantined records than a batch's metrics carry are all kept; a transform (a repartition) that loses where
    a row came from has its rejected rows kept as they left it. Reading a source twice counts its records once."""
    pipeline = make_pipeline(
        "path: data/inbox\nformat: json\nschema: id STRING, amount INT\nunknown_fields: quarantine",
        more="quality: {max_quarantine_share: 1.0}\n",
        rules=RANGE_RULE,
        transform="def transform(orders):\n    all = orders.selectExpr('id', 'amount', 'amount * 2 AS doubled')\n"
        "    return all.where('amount % 2 = 0').union(all.where('amount % 2 = 1')).repartition(2)\n",
    )
    lines = []
    for number in range(_MANY):
        amount = number % 1000
        lines.append(json.dumps({"id": f"k{number}", "amount": amount}))
        pipeline.expect_rows([{"id": f"k{number}", "amount": amount, "doubled": 2 * amount}])
        lines.append(json.dumps({"id": f"u{number}", "amount": number, "more": 1}))
        pipeline.expect_aside("data/inbox/many.json", len(lines), lines[-1])
        lines.append(json.dumps({"id": f"r{number}", "amount": 5000 + number}))
        kept = {"id": f"r{number}", "amount": 5000 + number, "doubled": 2 * (5000 + number)}
        pipeline.expect_aside(None, None, json.dumps(kept, separators=(",", ":")), "amount_in_range")
    pipeline.put("many.json", "\n".join(lines))
    report = pipeline.run()
    pipeline.check()
    assert report["rows"] | {"late": 0} == {
        "read": 3 * _MANY,
        "malformed": _MANY,
        "entered": 2 * _MANY,
        "late": 0,
        "transformed": 2 * _MANY,
        "rejected": _MANY,
        "staged": _MANY,
        "published": _MANY,
        "superseded": 0,
        "duplicates": 0,
    }
    assert list(report["sources"]["orders"]["unknown_fields"]) == ["more"]


def test_unknown_fields_are_rescued(make_pipeline: MakePipeline) -> None:
    """``rescue`` keeps them as JSON in a column, and still names them."""
    pipeline = make_pipeline("path: data/inbox\nformat: json\nschema: id STRING\nunknown_fields: rescue")
    pipeline.put("a.json", '{"id": "a", "x": {"y": [1, "z"]}, "n": null}\n{"id": "b"}\n')
    report = pipeline.run()
    from tests.support.readers import read_agreed

    rows = {row["id"]: row["_rescued"] for row in read_agreed(pipeline.table)}
    assert rows["b"] is None and json.loads(rows["a"]) == {"x": {"y": [1, "z"]}, "n": None}
    assert set(report["sources"]["orders"]["unknown_fields"]) == {"x", "n"}
