"""Avro files as record batches: values of every type against files made by hand, blocks as parts, damage."""

from __future__ import annotations

import datetime as dt
import zlib
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support import avro_files
from tests.support.parts import faults, read
from tests.support.sweep import examples
from tidegate.sources.readers import avro_records
from tidegate.sources.readers.unreadable import PartUnreadable

_LONGS = st.integers(-(2**63), 2**63 - 1) | st.sampled_from(
    [s * (1 << n) + d for n in range(62) for s in (1, -1) for d in (0, -1)]
)
_DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}
_INNER = avro_files.record({"a": ["null", "long"], "b": {"type": "array", "items": ["null", "string"]}}, "inner")
_ROW = avro_files.record(
    {
        "n": "long",
        "skipped": {"type": "map", "values": _INNER},
        "t": ["string", "null"],
        "x": "double",
        "f": "float",
        "y": "boolean",
        "o": ["null", "inner"],
        "l": {"type": "array", "items": "inner"},
        "m": {"type": "map", "values": "double"},
        "e": {"type": "enum", "name": "kind", "symbols": ["A", "B"]},
        "p": {"type": "fixed", "name": "four", "size": 4},
        "d": _DECIMAL,
        "u": ["int", "null", "string", "inner"],
        "w": ["null", "int", "long"],
    }
)
_DDL = (
    "n BIGINT, t STRING, x DOUBLE, f FLOAT, y BOOLEAN, o STRUCT<a: BIGINT, b: ARRAY<STRING>>, "
    "l ARRAY<STRUCT<a: BIGINT, b: ARRAY<STRING>>>, m MAP<STRING, DOUBLE>, e STRING, p BINARY, d DECIMAL(12,2), "
    "u STRUCT<member0: INT, member1: STRING, member2: STRUCT<a: BIGINT>>, w BIGINT"
)
_TEXT = st.text(st.characters(codec="utf-8"), max_size=5)
_RECORD = st.fixed_dictionaries({"a": _LONGS | st.none(), "b": st.lists(_TEXT | st.none(), max_size=3)})
_FLOATS = st.floats(allow_nan=False, width=32)
_RECORDS = st.fixed_dictionaries(
    {
        "n": _LONGS,
        "skipped": st.dictionaries(_TEXT, _RECORD, max_size=2),
        "t": _TEXT | st.none(),
        "x": st.floats(allow_nan=False),
        "f": _FLOATS,
        "y": st.booleans(),
        "o": _RECORD | st.none(),
        "l": st.lists(_RECORD, max_size=3),
        "m": st.dictionaries(_TEXT, st.floats(allow_nan=False), max_size=3),
        "e": st.sampled_from(["A", "B"]),
        "p": st.binary(min_size=4, max_size=4),
        "d": st.integers(-(10**12) + 1, 10**12 - 1),
        "u": st.integers(-(2**31), 2**31 - 1) | st.none() | _TEXT | _RECORD,
        "w": st.none() | _LONGS,
    }
)


def _expand(schema: Any) -> Any:
    """A schema that says what the record ``inner`` is wherever it names it."""
    if isinstance(schema, dict):
        return {key: one if key == "name" else _expand(one) for key, one in schema.items()}
    return [_expand(one) for one in schema] if isinstance(schema, list) else _INNER if schema == "inner" else schema


def _written_record(value: dict[str, Any]) -> dict[str, Any]:
    a, b = value["a"], value["b"]
    return {
        "a": (0, None) if a is None else (1, a),
        "b": [(0, None) if one is None else (1, one) for one in b],
    }


def _written(row: dict[str, Any]) -> dict[str, Any]:
    u = row["u"]
    choice = 1 if u is None else 0 if isinstance(u, int) else 2 if isinstance(u, str) else 3
    return {
        **row,
        "skipped": {key: _written_record(one) for key, one in row["skipped"].items()},
        "t": (1, None) if row["t"] is None else (0, row["t"]),
        "o": (0, None) if row["o"] is None else (1, _written_record(row["o"])),
        "l": [_written_record(one) for one in row["l"]],
        "d": row["d"].to_bytes(6, signed=True),
        "u": (choice, _written_record(u) if choice == 3 else u),
        "w": (0, None) if row["w"] is None else (2, row["w"]),
    }


def _wanted(row: dict[str, Any]) -> dict[str, Any]:
    u = row["u"]
    members = {
        "member0": u if isinstance(u, int) else None,
        "member1": u if isinstance(u, str) else None,
        "member2": {"a": u["a"]} if isinstance(u, dict) else None,
    }
    row = {key: value for key, value in row.items() if key != "skipped"}
    return {**row, "m": list(row["m"].items()), "d": Decimal(row["d"]).scaleb(-2), "u": None if u is None else members}


@pytest.mark.parametrize("codec", avro_files.PACK)
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(40))
@given(rows=st.lists(_RECORDS, max_size=6), in_block=st.integers(1, 4))
def test_values(codec: str, tmp_path: Path, rows: list[dict[str, Any]], in_block: int) -> None:
    path = tmp_path / "a.avro"
    expanded = _expand(_ROW)
    blocks = avro_files.pack(expanded, [_written(row) for row in rows], codec, in_block)
    path.write_bytes(avro_files.header(_ROW, codec) + blocks[len(avro_files.header(expanded, codec)) :])
    found = read(path, _DDL)
    assert not faults(found)
    names = list(_wanted(rows[0])) if rows else []
    assert [{name: row[name] for name in names} for row in found] == [_wanted(row) for row in rows]
    assert [row["_position"] for row in found] == [f"{path.as_uri()}#row+{n + 1}" for n in range(len(rows))]
    assert [row["_unknown"] for row in found] == [["skipped", "u.member2.b"]] * len(rows)


def test_codecs_of_arrow(tmp_path: Path) -> None:
    long, path = avro_files.record({"n": "long"}), tmp_path / "a.avro"
    plain = b"".join(avro_files.number(n) for n in range(1000))
    snappy = pa.Codec("snappy").compress(plain, asbytes=True) + zlib.crc32(plain).to_bytes(4)
    for codec, content in (("zstandard", pa.Codec("zstd").compress(plain, asbytes=True)), ("snappy", snappy)):
        block = avro_files.number(1000) + avro_files.number(len(content)) + content + avro_files.SYNC
        path.write_bytes(avro_files.header(long, codec) + block)
        assert [row["n"] for row in read(path, "n INT")] == list(range(1000))
    path.write_bytes(path.read_bytes().replace(snappy, snappy[:-1] + b"?"))
    with pytest.raises(PartUnreadable, match="the checksum of a block is wrong"):
        read(path, "n INT")


def test_blocks_are_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(avro_records, "BATCH_ROWS", 100)
    long, path = avro_files.record({"n": "long"}), tmp_path / "a.avro"
    path.write_bytes(avro_files.pack(long, [{"n": n} for n in range(5000)], rows_in_block=37))
    size = path.stat().st_size
    whole = read(path, "n INT")
    assert [row["n"] for row in whole] == list(range(5000)) and whole[-1]["_position"].endswith("#row+5000")
    for cuts in ([size // 2], [size * n // 9 for n in range(1, 9)], list(range(1, size, size // 200))):
        assert read(path, "n INT", cuts) == whole


def test_items_in_parts_and_empty_blocks(tmp_path: Path) -> None:
    """A part of an array may say how many bytes it has; a block may have no records."""
    path = tmp_path / "a.avro"
    number, schema = avro_files.number, avro_files.record({"l": {"type": "array", "items": "long"}, "n": "long"})
    parts = number(-2) + number(2) + number(1) + number(2) + number(1) + number(3) + b"\0" + number(7)
    empty = number(0) * 2 + avro_files.SYNC
    block = number(1) + number(len(parts)) + parts + avro_files.SYNC
    path.write_bytes(avro_files.header(schema) + empty * 3 + block)
    assert [(row["l"], row["n"]) for row in read(path, "l ARRAY<INT>, n INT")] == [([1, 2, 3], 7)]
    assert [row["n"] for row in read(path, "n INT")] == [7]


def test_faults_of_values(tmp_path: Path) -> None:
    time = {"type": "long", "logicalType": "timestamp-millis"}
    local = {"type": "long", "logicalType": "local-timestamp-micros"}
    schema = avro_files.record({"t": "string", "n": "long", "d": _DECIMAL, "at": ["null", time], "l": local})
    good = {"t": b"a", "n": 1, "d": b"\x7b", "at": (1, 1000), "l": 1}
    rows = [good]
    rows += [good | one for one in ({"t": b"\xff"}, {"n": 1 << 40}, {"d": b"\x7f" * 40}, {"d": b"\x30\x39"})]
    rows += [good | {"at": (1, 1 << 60)}, good | {"at": (0, None), "d": b""}]
    path = tmp_path / "a.avro"
    path.write_bytes(avro_files.pack(schema, rows))
    found = read(path, "t STRING, n INT, d DECIMAL(4,2), at TIMESTAMP NOT NULL, l TIMESTAMP_NTZ")
    assert faults(found) == {
        2: "t: not valid UTF-8",
        3: "n: not an INT",
        4: "d: not a DECIMAL(4,2)",
        5: "d: not a DECIMAL(4,2)",
        6: "at: TIMESTAMP outside the years 1 to 9999",
        7: "at: missing or null, but NOT NULL",
    }
    assert found[0]["d"] == Decimal("1.23") and found[0]["at"] == dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=dt.UTC)
    assert found[0]["l"] == dt.datetime(1970, 1, 1, microsecond=1)
    assert found[2]["_raw"] == (
        '{"t":"a","n":1099511627776,"d":1.23,"at":"1970-01-01T00:00:01.000Z","l":"1970-01-01T00:00:00.000001"}'
    )
    with pytest.raises(PartUnreadable, match=r"at is timestamp.ms, tz=UTC., the schema wants TIMESTAMP_NTZ"):
        read(path, "at TIMESTAMP_NTZ")


def test_a_record_that_is_too_large_is_refused_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.avro"
    rows = [{"t": "a"}, {"t": "x" * ((8 << 20) + 1)}, {"t": "b"}]
    path.write_bytes(avro_files.pack(avro_files.record({"t": "string"}), rows, "deflate", rows_in_block=3))
    found = read(path, "t STRING")
    assert faults(found) == {2: "t: has 8,388,609 bytes; the limit is 8,388,608 bytes"}
    assert [row["t"] for row in found] == ["a", None, "b"]
    monkeypatch.setattr(avro_records, "_LARGEST_BLOCK_BYTES", 8 << 20)
    with pytest.raises(PartUnreadable, match="the block of records 1 to 3 has more than 8,388,608 bytes"):
        read(path, "t STRING")


@pytest.mark.parametrize("codec", ["null", "deflate"])
def test_damage_anywhere_is_a_fault_of_the_file(tmp_path: Path, codec: str) -> None:
    path = tmp_path / "a.avro"
    schema = avro_files.record(
        {"t": ["null", "string"], "l": {"type": "array", "items": {"type": "array", "items": "null"}}}
    )
    rows = [{"t": (n % 2, None if n % 2 == 0 else "x"), "l": [[None] * n]} for n in range(20)]
    whole = avro_files.pack(schema, rows, codec, rows_in_block=8)
    header, outcomes = len(avro_files.header(schema, codec)), set()
    for place in range(header, len(whole)):
        wrong = (0xFF, 0x80, 0x01)[place % 3]
        path.write_bytes(whole[:place] + bytes([whole[place] ^ wrong]) + whole[place + 1 :])
        try:
            outcomes.add(len(read(path, "t STRING, l ARRAY<ARRAY<INT>>")))
        except PartUnreadable:
            outcomes.add(-1)
    assert outcomes == {-1, 20}
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        try:
            assert len(read(path, "t STRING")) in (0, 8, 16)
        except PartUnreadable as error:
            assert "cut off" in error.reason or "damaged" in error.reason or "begin as an Avro" in error.reason


_DATE = {"type": "int", "logicalType": "date"}
_MISFIT = "records 1 to 2: column n has a value that its type in the file does not hold"


@pytest.mark.parametrize(
    ("kind", "content", "ddl", "why"),
    [
        ("int", b"\x02" + avro_files.number(1 << 40), "n BIGINT", _MISFIT),
        (_DATE, b"\x02" + avro_files.number(1 << 40), "n DATE", _MISFIT),
        ({"type": "array", "items": "int"}, b"\0\x02" + avro_files.number(1 << 40) + b"\0", "n ARRAY<INT>", _MISFIT),
        ("long", b"\x02" + b"\xff" * 9 + b"\x7f", "n BIGINT", r"the block before byte [\d,]+ is damaged"),
    ],
    ids=["int", "date", "items", "long"],
)
def test_numbers_that_a_type_does_not_hold_are_damage(
    tmp_path: Path, kind: Any, content: bytes, ddl: str, why: str
) -> None:
    schema, path = avro_files.record({"n": kind}), tmp_path / "a.avro"
    block = avro_files.number(2) + avro_files.number(len(content)) + content + avro_files.SYNC
    path.write_bytes(avro_files.header(schema) + block)
    with pytest.raises(PartUnreadable, match=why):
        read(path, ddl)


def test_records_without_bytes_have_a_bound(tmp_path: Path) -> None:
    schema, path = avro_files.record({"n": "null"}), tmp_path / "a.avro"
    path.write_bytes(avro_files.header(schema) + avro_files.number(1 << 50) + b"\0" + avro_files.SYNC)
    with pytest.raises(PartUnreadable, match="the block before byte"):
        read(path, "n INT")


@pytest.mark.parametrize("levels", [1, 10, 11, 12, 25, 50])
@pytest.mark.parametrize("wrap", ["array", "map", "struct", "all"])
def test_values_nested_deeply(tmp_path: Path, levels: int, wrap: str) -> None:
    """As deep as a schema may be, with a null possible at each level."""
    kind, ddl, value, wanted = ["null", "long"], "BIGINT", (1, 7), 7
    for level in range(levels - 1):
        how = wrap if wrap != "all" else ("array", "struct", "map")[level % 3]
        if how == "array":
            kind, ddl = ["null", {"type": "array", "items": kind}], f"ARRAY<{ddl}>"
            value, wanted = (1, [value, (0, None)]), [wanted, None]
        elif how == "map":
            kind, ddl = ["null", {"type": "map", "values": kind}], f"MAP<STRING, {ddl}>"
            value, wanted = (1, {"k": value, "l": (0, None)}), [("k", wanted), ("l", None)]
        else:
            kind, ddl = ["null", avro_files.record({"a": kind, "b": "long"}, f"r{level}")], f"STRUCT<a: {ddl}, b: INT>"
            value, wanted = (1, {"a": value, "b": level}), {"a": wanted, "b": level}
    path = tmp_path / "a.avro"
    path.write_bytes(avro_files.pack(avro_files.record({"n": kind, "m": "long"}), [{"n": value, "m": 5}] * 3))
    assert [(row["n"], row["m"]) for row in read(path, f"n {ddl}, m INT")] == [(wanted, 5)] * 3
    assert [row["m"] for row in read(path, "m INT")] == [5] * 3


def test_a_union_of_very_many_types_is_a_fault_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.avro"
    kinds = [{"type": "enum", "name": f"e{number}", "symbols": ["A"]} for number in range(5000)]
    path.write_bytes(avro_files.pack(avro_files.record({"m": "long", "n": kinds}), [{"m": 1, "n": (0, "A")}]))
    with pytest.raises(PartUnreadable, match="its schema has unions of too many types to be read"):
        read(path, "m INT")
