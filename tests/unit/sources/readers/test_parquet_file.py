"""parquet files of several writers as record batches: rows with their numbers, faults of values and of files."""

from __future__ import annotations

import datetime as dt
import json
import struct
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from tests.support.parts import faults, lines_of, read
from tidegate.sources.readers import columnar, parquet_file
from tidegate.sources.readers.form import Form
from tidegate.sources.readers.unreadable import PartUnreadable
from tidegate.sources.readers.worker import PartsReader

_AT = dt.datetime(2026, 1, 31, 12, 0, 0, 123456)


def _write(path: Path, columns: dict[str, pa.Array], **how: Any) -> Path:
    pq.write_table(pa.table(columns), path, **how)
    return path


def _why(path: Path, ddl: str, **options: str) -> str:
    with pytest.raises(PartUnreadable) as caught:
        read(path, ddl, **options)
    found = caught.value
    assert found.path == str(path)
    assert not any(word in found.reason for word in ("arrow", "Error", "Exception", "std::")), found.reason
    return found.reason


def test_a_file_in_parts(tmp_path: Path) -> None:
    columns = {"id": pa.array(range(1000)), "note": pa.array([f"{n}" * (n % 50) for n in range(1000)])}
    path = _write(tmp_path / "a b%.parquet", columns, row_group_size=70)
    size = path.stat().st_size
    whole = read(path, "id INT, note STRING")
    assert [row["id"] for row in whole] == list(range(1000))
    assert [row["_position"] for row in whole] == [f"{path.as_uri()}#row+{n + 1}" for n in range(1000)]
    for count in (2, 5, 40):
        parts = [_read_range(path, size * n // count, size * (n + 1) // count) for n in range(count)]
        assert [row for part in parts for row in part] == whole
        assert sum(map(bool, parts)) == min(count, 15)


def _read_range(path: Path, begin: int, end: int) -> list[dict[str, Any]]:
    batches = PartsReader(Form("parquet", "id INT, note STRING"))(iter([lines_of(path, begin, end)]))
    return [row for batch in batches for row in batch.to_pylist()]


def test_missing_and_unknown_columns(tmp_path: Path) -> None:
    inner = pa.array([{"b": 1, "lost": 2}] * 3)
    path = _write(tmp_path / "a.parquet", {"ID": pa.array([1, None, 3]), "o": inner, "more": pa.array("xyz")})
    rows = read(path, "id INT NOT NULL, note STRING, o STRUCT<b: INT, c: INT>")
    assert [row["id"] for row in rows] == [1, None, 3] and {row["note"] for row in rows} == {None}
    assert rows[0]["o"] == {"b": 1, "c": None}
    assert faults(rows) == {2: "id: missing or null, but NOT NULL"}
    assert [row["_unknown"] for row in rows] == [["more", "o.lost"], None, ["more", "o.lost"]]
    assert json.loads(rows[1]["_raw"]) == {"id": None, "note": None, "o": {"b": 1, "lost": 2}}
    assert [row["_raw"] for row in rows[::2]] == [None, None]
    assert faults(read(path, "id INT, absent INT NOT NULL")) == dict.fromkeys(
        (1, 2, 3), "absent: missing or null, but NOT NULL"
    )
    assert [row["absent"] for row in read(path, "absent INT")] == [None] * 3


def test_one_value_out_of_range_is_refused_alone(tmp_path: Path) -> None:
    """Report 12, and 1: at every depth."""
    columns = {
        "n": pa.array([1, 2**40, 3, 4]),
        "d": pa.array([Decimal("1.10"), Decimal("1.20"), Decimal("1.234"), Decimal("1.40")], pa.decimal128(10, 3)),
        "o": pa.array([{"v": 0}, {"v": 1}, {"v": 2}, {"v": 253402300800000}], pa.struct([("v", pa.timestamp("ms"))])),
    }
    path = _write(tmp_path / "a.parquet", columns)
    rows = read(path, "n INT, d DECIMAL(5,2), o STRUCT<v: TIMESTAMP>")
    assert faults(rows) == {
        2: "n: not an INT",
        3: "d: more decimals than DECIMAL(5,2) holds",
        4: "o.v: TIMESTAMP outside the years 1 to 9999",
    }
    assert rows[0]["d"] == Decimal("1.10") and rows[0]["o"]["v"] == dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    assert [row["n"] for row in rows] == [1, None, None, None]
    assert rows[1]["_raw"] == '{"n":1099511627776,"d":1.200,"o":{"v":"1970-01-01T00:00:00.001"}}'


def test_texts_that_are_not_utf8(tmp_path: Path) -> None:
    texts = pa.array([b"a", b"\xff\xfe", "é".encode()], pa.binary()).view(pa.string())
    path = _write(tmp_path / "a.parquet", {"t": texts, "l": pa.array([["x"], ["y"], None])})
    rows = read(path, "t STRING, l ARRAY<STRING>")
    assert [row["t"] for row in rows] == ["a", None, "é"] and faults(rows) == {2: "t: not valid UTF-8"}
    assert rows[1]["_raw"] == '{"t":"\ufffd\ufffd","l":["y"]}'


def test_files_of_pandas(tmp_path: Path) -> None:
    frame = pd.DataFrame(
        {
            "at": pd.to_datetime([_AT, _AT, None]) + pd.to_timedelta([0, 1, 0], unit="ns"),
            "nothing": [None, None, None],
            "kind": pd.Categorical(["a", None, "b"]),
            "small": np.array([1, 2, 255], np.uint8),
        }
    )
    frame.to_parquet(tmp_path / "a.parquet")
    rows = read(tmp_path / "a.parquet", "at TIMESTAMP, nothing STRUCT<a: INT>, kind STRING, small TINYINT")
    finer = "at: finer than a microsecond; as BIGINT the column has nanoseconds"
    assert faults(rows) == {2: finer, 3: "small: not a TINYINT"}
    assert (rows[0]["at"], rows[0]["nothing"], rows[0]["kind"]) == (_AT.replace(tzinfo=dt.UTC), None, "a")
    assert rows[1]["_raw"] == '{"at":"2026-01-31T12:00:00.123456001","nothing":null,"kind":null,"small":2}'


def test_files_of_duckdb(tmp_path: Path) -> None:
    """Report 13: UUID and TIME are texts."""
    path = tmp_path / "a.parquet"
    uuid = "b8377571-6ba8-4107-b83c-334fee7f3b67"
    duckdb.sql(
        f"COPY (SELECT '{uuid}'::UUID u, NULL::UUID none, TIME '12:34:56.789' t, 200::UTINYINT b, "
        "18446744073709551615::UBIGINT q, MAP {'k': [1, 2]} m, {'a': 'x'} s, 'infinity'::DATE d, INTERVAL 3 DAYS i) "
        f"TO '{path}' (FORMAT parquet)"
    )
    ddl = "u STRING, none STRING, t STRING, b SMALLINT, q DECIMAL(20,0), m MAP<STRING, ARRAY<INT>>, s STRUCT<a: STRING>"
    [row] = read(path, ddl)
    assert (row["u"], row["none"], row["t"]) == (uuid, None, "12:34:56.789000")
    assert (row["b"], row["q"]) == (200, Decimal(18446744073709551615))
    assert (row["m"], row["s"]) == ([("k", [1, 2])], {"a": "x"})
    assert read(path, "u BINARY, t BIGINT")[0]["u"] == bytes.fromhex(uuid.replace("-", ""))
    assert faults(read(path, "q BIGINT, d DATE")) == {1: "q: not a BIGINT; d: DATE outside the years 1 to 9999"}
    assert read(path, "d DATE")[0]["_raw"] == '{"d":"5881580-07-11"}'
    assert _why(path, "i STRING") == "column i is an interval, which no column holds"


def test_files_of_deltalake(tmp_path: Path) -> None:
    """Written by the parquet library of Rust."""
    table = pa.table({"id": pa.array(range(50)), "t": pa.array(["x", None] * 25), "l": pa.array([[1], None] * 25)})
    write_deltalake(str(tmp_path / "t"), table)
    [path] = (tmp_path / "t").glob("*.parquet")
    rows = read(path, "id INT, t STRING, l ARRAY<INT>")
    assert [{name: row[name] for name in ("id", "t", "l")} for row in rows] == table.to_pylist()


@pytest.mark.parametrize("codec", ["none", "snappy", "gzip", "brotli", "zstd", "lz4"])
@pytest.mark.parametrize("encoding", ["BYTE_STREAM_SPLIT", "PLAIN", "DELTA_BINARY_PACKED"])
def test_codecs_and_encodings(tmp_path: Path, codec: str, encoding: str) -> None:
    name = "n" if encoding.startswith("DELTA") else "x"
    columns = {"x": pa.array([0.5, None, 1.5]), "n": pa.array([1, 2, None])}
    how: dict[str, Any] = {"use_dictionary": False, "column_encoding": {name: encoding}, "compression": codec}
    rows = read(_write(tmp_path / "a.parquet", columns, **how), "x DOUBLE, n INT")
    assert [(row["x"], row["n"]) for row in rows] == [(0.5, 1), (None, 2), (1.5, None)]


def _write_96_bits(path: Path, moments: list[str | None], far: str = "") -> None:
    """Moments with nine decimals, alone and inside; those of 1816-03-30 are made a day of the year 9999."""
    flat = pa.array(np.array([one or "NaT" for one in moments], "datetime64[ns]"))
    ends = pa.array(range(len(moments) + 1), pa.int32())
    listed = pa.ListArray.from_arrays(ends, flat)
    table = pa.table({"at": flat, "o": pa.StructArray.from_arrays([flat, listed], ["at", "more"])})
    pq.write_table(table, path, use_deprecated_int96_timestamps=True, row_group_size=2)
    nanos = (5 * 3600 + 56 * 60 + 8) * 10**9 + 66277376
    written = struct.pack("<qi", nanos, dt.date(1816, 3, 30).toordinal() + 1721425)
    path.write_bytes(path.read_bytes().replace(written, struct.pack("<qi", 0, 5373484)))


def test_times_of_96_bits(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    moments = ["2026-01-31T12:00:00.123456000", None, "1950-06-01T00:00:00.000001999", "1816-03-30T05:56:08.066277376"]
    _write_96_bits(path, [*moments, "1950-06-01T00:00:00.000001000"])
    rows = read(path, "at TIMESTAMP, O STRUCT<at: TIMESTAMP_NTZ, more: ARRAY<TIMESTAMP>>")
    assert faults(rows) == {3: "; ".join(f"{p}: finer than a microsecond" for p in ("at", "O.at", "O.more[]"))}
    assert rows[3]["at"] == dt.datetime(9999, 12, 31, tzinfo=dt.UTC) == rows[3]["O"]["more"][0]
    assert rows[4]["O"]["at"] == dt.datetime(1950, 6, 1, microsecond=1)
    assert faults(read(path, "o STRUCT<more: ARRAY<TIMESTAMP>>")) == {3: "o.more[]: finer than a microsecond"}
    assert set(faults(read(path, "at TIMESTAMP", int96RebaseMode="EXCEPTION"))) == {3}


@pytest.mark.parametrize(
    ("told", "options", "day"),
    [
        ({}, {}, "1000-01-01"),
        ({}, {"datetimeRebaseMode": "CORRECTED"}, "1000-01-01"),
        ({}, {"datetimeRebaseMode": "LEGACY"}, "0999-12-27"),
        ({}, {"datetimeRebaseMode": "EXCEPTION"}, None),
        ({"version": "2.4.8"}, {"datetimeRebaseMode": "CORRECTED"}, "0999-12-27"),
        ({"version": "3.5.1"}, {"datetimeRebaseMode": "LEGACY"}, "1000-01-01"),
        ({"version": "3.5.1", "legacyDateTime": "", "timeZone": "UTC"}, {}, "0999-12-27"),
    ],
)
def test_calendars_of_writers(tmp_path: Path, told: dict[str, str], options: dict[str, str], day: str | None) -> None:
    schema = pa.schema(
        [("d", pa.date32()), ("t", pa.timestamp("us"))],
        metadata={f"org.apache.spark.{key}": value for key, value in told.items()},
    )
    old = dt.datetime(1000, 1, 1, 6)
    pq.write_table(pa.table({"d": [old.date(), _AT.date()], "t": [old, _AT]}, schema), tmp_path / "a.parquet")
    rows = read(tmp_path / "a.parquet", "d DATE, t TIMESTAMP_NTZ", **options)
    assert rows[1]["d"] == _AT.date()
    if day is None:
        assert list(faults(rows)) == [1] and "calendar is not known" in faults(rows)[1]
    else:
        assert (rows[0]["d"].isoformat(), rows[0]["t"].isoformat()) == (day, f"{day}T06:00:00")


def test_a_value_that_is_too_large_is_refused_alone(tmp_path: Path) -> None:
    texts = ["a", "x" * ((8 << 20) + 1), "c" * (8 << 20)]
    lists = [
        [1],
        [2],
        [3] * (2 << 20),
    ]
    path = _write(tmp_path / "a.parquet", {"t": pa.array(texts), "l": pa.array(lists, pa.list_(pa.int32()))})
    rows = read(path, "t STRING, l ARRAY<INT>")
    assert faults(rows) == {2: "t: has 8,388,609 bytes; the limit is 8,388,608 bytes"}
    assert rows[1]["_raw"] == '{"t":null,"l":[2]}' and len(rows[2]["l"]) == 2 << 20
    sevens = np.full((2 << 20) + 1, 7, dtype=np.int32)
    path = _write(tmp_path / "b.parquet", {"l": pa.array([sevens, [1]], pa.list_(pa.int32()))})
    assert faults(read(path, "l ARRAY<INT>")) == {1: "l: has 8,388,612 bytes; the limit is 8,388,608 bytes"}


def test_a_column_that_is_too_large_on_average_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_file, "_LARGEST_COLUMN_BYTES", 1000)
    monkeypatch.setattr(parquet_file, "LONGEST_RECORD_BYTES", 1000)
    path = _write(tmp_path / "a.parquet", {"l": pa.array([[7] * 1000, [1]], pa.list_(pa.int32()))})
    told = "rows 1 to 2: column l has 4,004 bytes; the limit is 1,000 bytes a value"
    assert _why(path, "l ARRAY<INT>") == told
    assert len(read(path, "other INT")) == 2


def test_batches_are_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columnar, "BATCH_BYTES", 1000)
    texts = [None, "x" * 900, "y" * 900, *(["z" * 100] * 50), "w" * 5000]
    path = _write(tmp_path / "a.parquet", {"t": pa.array(texts)})
    batches = list(PartsReader(Form("parquet", "t STRING"))(iter([lines_of(path, 0, None)])))
    assert [row["t"] for batch in batches for row in batch.to_pylist()] == texts
    assert len(batches) > 7 and all(len(batch) == 1 or batch.column("t").nbytes < 2200 for batch in batches)


def test_what_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    how: dict[str, Any] = {"write_page_checksum": True, "use_dictionary": False, "compression": "none"}
    _write(path, {"n": pa.array(range(1000)), "t": pa.array(["text"] * 1000)}, row_group_size=500, **how)
    whole = path.read_bytes()
    place = whole.rindex(b"text\x04")
    wrong = whole[:place] + b"TEXT" + whole[place + 4 :]
    for content, reason in (
        (b"", "it does not begin as a parquet file"),
        (b"id,name\n1,2\n3,4\n", "it does not begin as a parquet file"),
        (whole[:-10], "it has no footer: it is cut off, or not yet whole"),
        (whole[:-8] + b"\xff\xff\xff\x7fPAR1", "its footer is damaged"),
        (whole[:-100] + bytes(92) + whole[-8:], "its footer is damaged"),
        (wrong, "row group 2 of 2: a checksum is wrong"),
        (b"PARE" + whole[4:], "it is encrypted"),
    ):
        path.write_bytes(content)
        assert _why(path, "n INT, t STRING") == reason
    path.write_bytes(wrong)
    assert len(read(path, "n INT")) == 1000, "a column that nobody reads"
    path.write_bytes(whole)
    assert _why(path, "n DATE, t INT") == "n is int64, the schema wants DATE; t is string, the schema wants INT"


def test_damage_anywhere_is_a_fault_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    _write(path, {"n": pa.array(range(100)), "l": pa.array([["a"]] * 100)}, write_page_checksum=True)
    whole = path.read_bytes()
    outcomes = set()
    for place in range(4, len(whole) - 8, 3):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x15]) + whole[place + 1 :])
        try:
            outcomes.add(len(read(path, "n INT, l ARRAY<STRING>")))
        except PartUnreadable:
            outcomes.add(-1)
    assert outcomes == {100, -1}


def test_columns_of_the_same_name(tmp_path: Path) -> None:
    path, numbers = tmp_path / "a.parquet", pa.array([1])
    for names, why in {
        ("n", "n"): "the file has 2 columns called n",
        ("N", "N"): "the file has 2 columns called N",
        ("N", "N", "n"): None,
    }.items():
        pq.write_table(pa.Table.from_arrays([numbers] * len(names), list(names)), path)
        if why is None:
            assert [row["n"] for row in read(path, "n INT")] == [1]
            continue
        with pytest.raises(PartUnreadable, match=f'{why}"'):
            read(path, "n INT")
    pq.write_table(pa.Table.from_arrays([numbers] * 2, ["NO", "No"]), path)
    with pytest.raises(PartUnreadable, match="no matches several columns: NO, No"):
        read(path, "no INT")
