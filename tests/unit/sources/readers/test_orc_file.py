"""ORC files as record batches: times of every year, calendars, stripes as parts."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import orc

from tests.support.parts import faults, read
from tests.support.sweep import examples
from tidegate.sources.readers import orc_file
from tidegate.sources.readers.orc_format import NanosecondStream, OrcFooter, read_message, write_message
from tidegate.sources.readers.unreadable import PartUnreadable

_FIRST, _LAST = -62135596800 * 10**6, 253402300800 * 10**6 - 1
_EPOCH = dt.datetime(1970, 1, 1)
_MICROS = (
    st.integers(_FIRST, _LAST)
    | st.integers(_FIRST // 10**6, _LAST // 10**6).map(lambda value: value * 10**6)
    | st.integers(-3_000_000, 3_000_000)
)


def _time(micros: int | None) -> dt.datetime | None:
    return None if micros is None else _EPOCH + dt.timedelta(microseconds=micros)


@pytest.mark.parametrize("codec", ["uncompressed", "zlib", "snappy", "lz4", "zstd"])
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(30))
@given(micros=st.lists(_MICROS | st.none(), min_size=1, max_size=60), repeat=st.integers(1, 30))
def test_times(codec: str, tmp_path: Path, micros: list[int | None], repeat: int) -> None:
    micros = micros * repeat
    plain = pa.array(micros, pa.timestamp("us"))
    lists = [[one, None, one] if number % 3 else None for number, one in enumerate(micros)]
    table = pa.table(
        {
            "at": plain,
            "o": pa.array([{"l": one} for one in lists], pa.struct([("l", pa.list_(pa.timestamp("us")))])),
            "m": pa.array([[("k", one)] for one in micros], pa.map_(pa.string(), pa.timestamp("us", "UTC"))),
        }
    )
    orc.write_table(table, str(tmp_path / "a.orc"), compression=codec)
    rows = read(tmp_path / "a.orc", "at TIMESTAMP_NTZ, o STRUCT<l: ARRAY<TIMESTAMP_NTZ>>, m MAP<STRING, TIMESTAMP>")
    assert not faults(rows)
    assert [row["at"] for row in rows] == list(map(_time, micros))
    assert [row["o"]["l"] for row in rows] == [None if one is None else list(map(_time, one)) for one in lists]
    naive = [row["m"][0][1] for row in rows]
    assert [one and one.replace(tzinfo=None) for one in naive] == list(map(_time, micros))


def test_half_a_second_before_1970_and_other_records(tmp_path: Path) -> None:
    """Report 9: no value stops its file, or others."""
    micros = [-500_000, 10**18, 0, _LAST + 1, _FIRST]
    table = pa.table({"id": pa.array(range(5)), "at": pa.array(micros, pa.timestamp("us"))})
    orc.write_table(table, str(tmp_path / "a.orc"))
    rows = read(tmp_path / "a.orc", "id INT, at TIMESTAMP")
    assert rows[0]["at"] == dt.datetime(1969, 12, 31, 23, 59, 59, 500_000, tzinfo=dt.UTC)
    assert faults(rows) == dict.fromkeys((2, 4), "at: TIMESTAMP outside the years 1 to 9999")
    assert rows[3]["_raw"] == '{"id":3,"at":"10000-01-01T00:00:00.000000"}'


def test_nanoseconds(tmp_path: Path) -> None:
    moments = np.array(["2026-01-31T12:00:00.123456001", "2026-01-31T12:00:00.123456", "NaT"], "datetime64[ns]")
    orc.write_table(
        pa.table({"at": pa.array(moments), "l": pa.array([[one] for one in moments])}), str(tmp_path / "a.orc")
    )
    rows = read(tmp_path / "a.orc", "at TIMESTAMP, l ARRAY<TIMESTAMP>")
    assert faults(rows) == {1: "at: finer than a microsecond; l[]: finer than a microsecond"}
    assert rows[1]["at"] == rows[1]["l"][0] == dt.datetime(2026, 1, 31, 12, 0, 0, 123456, tzinfo=dt.UTC)


def test_instants_are_not_times_without_a_zone(tmp_path: Path) -> None:
    orc.write_table(pa.table({"at": pa.array([0], pa.timestamp("us", "UTC"))}), str(tmp_path / "a.orc"))
    assert read(tmp_path / "a.orc", "at TIMESTAMP")[0]["at"] == dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    with pytest.raises(PartUnreadable, match="the schema wants TIMESTAMP_NTZ"):
        read(tmp_path / "a.orc", "at TIMESTAMP_NTZ")


def _change(path: Path, *, footer: dict[int, int | bytes], zone: bytes | None = None) -> None:
    """Rewrite the footer of a file without compression, and the zone in those of its stripes."""
    with path.open("rb") as file:
        found = OrcFooter(file)
        fields = [(field, value) for field, value in found._fields if field not in footer]
        content = path.read_bytes()
    if zone is not None:
        [stripe] = found.stripes
        begin = stripe.begin + stripe.index + stripe.data
        told = [(f, zone if f == 3 else v) for f, v in read_message(content[begin : begin + stripe.footer])]
        changed = write_message(told)
        content = content[:begin] + changed
        fields = [
            (
                f,
                write_message([(n, len(changed) if n == 4 else v) for n, v in read_message(stripe.message)])
                if f == 3
                else v,
            )
            for f, v in fields
        ]
    else:
        content = content[: found.data_end]
    tail = write_message([*fields, *footer.items()])
    script = write_message([(f, {1: len(tail), 5: 0}.get(f, v)) for f, v in found._postscript])
    path.write_bytes(content + tail + script + bytes([len(script)]))


@pytest.mark.parametrize(
    ("footer", "day"),
    [
        ({}, "1000-01-01"),
        ({11: 1}, "0999-12-27"),
        ({11: 2}, "1000-01-01"),
        ({9: 0}, "0999-12-27"),
        ({9: 0, 11: 2}, "1000-01-01"),
    ],
)
def test_calendars(tmp_path: Path, footer: dict[int, int | bytes], day: str) -> None:
    """9 is who wrote the file (0: Java), 11 the calendar (1: Julian before 1582)."""
    old = dt.datetime(1000, 1, 1, 6)
    path = tmp_path / "a.orc"
    orc.write_table(pa.table({"d": [old.date()], "t": pa.array([old], pa.timestamp("us"))}), str(path))
    _change(path, footer=footer)
    [row] = read(path, "d DATE, t TIMESTAMP_NTZ")
    assert (row["d"].isoformat(), row["t"].isoformat()) == (day, f"{day}T06:00:00")


def test_zones_of_writers(tmp_path: Path) -> None:
    """A time is what the writer's clock showed."""
    path = tmp_path / "a.orc"
    seconds = pa.array(["2015-01-01T00:00:00", "2015-07-01T00:00:00.25", None], pa.string()).cast(pa.timestamp("us"))
    orc.write_table(pa.table({"t": seconds}), str(path))
    _change(path, footer={}, zone=b"Europe/Berlin")
    # The file counts from midnight of 2015 in Berlin; in July its clock is an hour ahead of what was counted.
    assert [row["t"] and row["t"].isoformat() for row in read(path, "t TIMESTAMP_NTZ")] == [
        "2015-01-01T00:00:00", "2015-07-01T01:00:00.250000", None,
    ]  # fmt: skip


def test_stripes_are_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(orc_file, "BATCH_ROWS", 999)
    path = tmp_path / "a.orc"
    micros = [n * 1_000_003 for n in range(30_000)]
    table = pa.table(
        {"id": pa.array(range(30_000)), "at": pa.array(micros, pa.timestamp("us")), "t": ["x" * 30] * 30_000}
    )
    orc.write_table(table, str(path), stripe_size=20_000, compression="zlib", batch_size=1000)
    assert len(OrcFooter(path.open("rb")).stripes) > 1
    whole = read(path, "id INT, at TIMESTAMP_NTZ")
    assert [row["id"] for row in whole] == list(range(30_000))
    assert [row["at"] for row in whole] == list(map(_time, micros))
    assert whole[-1]["_position"] == f"{path.as_uri()}#row+30000"
    cuts = [path.stat().st_size * n // 7 for n in range(1, 7)]
    assert [{**row, "_unknown": None} for row in read(path, "id INT, at TIMESTAMP_NTZ", cuts)] == [
        {**row, "_unknown": None} for row in whole
    ]


def test_values_and_columns(tmp_path: Path) -> None:
    table = pa.table({"ID": pa.array([1, 300, None]), "o": [{"a": "x", "more": 1}, None, {"a": None, "more": 2}]})
    orc.write_table(table, str(tmp_path / "a.orc"))
    rows = read(tmp_path / "a.orc", "id TINYINT NOT NULL, o STRUCT<a: STRING>, d DATE")
    assert faults(rows) == {2: "id: not a TINYINT", 3: "id: missing or null, but NOT NULL"}
    assert rows[0]["o"] == {"a": "x"} and rows[0]["_unknown"] == ["o.more"] and rows[0]["d"] is None
    assert rows[1]["_raw"] == '{"id":300,"o":null,"d":null}'
    assert len(read(tmp_path / "a.orc", "other INT")) == 3


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda content: b"", "it has no footer: it is cut off, or not an orc file"),
        (lambda content: b"id,name\n1,2\n" * 50, "it has no footer: it is cut off, or not an orc file"),
        (lambda content: content[:-9], "it has no footer: it is cut off, or not an orc file"),
        (lambda content: content[: len(content) // 2], "it has no footer: it is cut off, or not an orc file"),
        (lambda content: content[:-60] + bytes(30) + content[-30:], "its footer is damaged"),
    ],
)
def test_what_cannot_be_read(tmp_path: Path, change: Any, reason: str) -> None:
    path = tmp_path / "a.orc"
    orc.write_table(pa.table({"id": pa.array(range(1000))}), str(path))
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(PartUnreadable) as caught:
        read(path, "id INT")
    assert caught.value.reason == reason


@pytest.mark.parametrize(
    ("run", "values"),
    [
        (b"\x0a\x27\x10", [10000] * 5),
        (b"\x5e\x03\x5c\xa1\xab\x1e\xde\xad\xbe\xef", [23713, 43806, 57005, 48879]),
        (
            b"\x8e\x13\x2b\x21\x07\xd0\x1e\x00\x14\x70\x28\x32\x3c\x46\x50\x5a\x64\x6e\x78\x82\x8c\x96\xa0\xaa\xb4\xbe\xfc\xe8",
            [2030, 2000, 2020, 1000000, *range(2040, 2200, 10)],
        ),
        (b"\xc6\x09\x02\x02\x22\x42\x42\x46", [2, 3, 5, 7, 11, 13, 17, 19, 23, 29]),
    ],
)
def test_runs_of_numbers(run: bytes, values: list[int]) -> None:
    """The examples of ORC's specification; the low three bits of nanoseconds say how many zeros were left out."""
    stream, wanted = NanosecondStream(run), []
    for value in values:
        wanted.append((value >> 3) * (1 if value & 7 == 0 else 10 ** ((value & 7) + 1)))
    assert [*stream.take(1).tolist(), *stream.take(len(values) - 1).tolist()] == wanted
    with pytest.raises(ValueError):
        stream.take(1)


@pytest.mark.parametrize("codec", ["uncompressed", "zlib"])
def test_damage_behind_the_data_loses_no_record(tmp_path: Path, codec: str) -> None:
    """In what this module reads itself. (pyarrow's own reader ends the process for some damage of the data.)"""
    path = tmp_path / "a.orc"
    table = pa.table({"id": pa.array(range(300)), "at": pa.array(range(300), pa.timestamp("us"))})
    orc.write_table(table, str(path), compression=codec)
    whole = path.read_bytes()
    with path.open("rb") as file:
        [stripe] = OrcFooter(file).stripes
    outcomes = set()
    for place in range(stripe.begin + stripe.index + stripe.data, len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        try:
            outcomes.add(len(read(path, "id INT, at TIMESTAMP")))
        except PartUnreadable:
            outcomes.add(-1)
    assert outcomes == {-1, 300}


@pytest.mark.parametrize("codec", ["uncompressed", "zlib"])
@pytest.mark.parametrize(
    ("values", "ddl", "options"),
    [
        (["abc"] * 30, "n STRING", {}),
        (["abc", "de"] * 15, "n STRING", {"dictionary_key_size_threshold": 1.0}),
        ([[1, 2]] * 30, "n ARRAY<INT>", {}),
        ([{"k": 1}.items()] * 30, "n MAP<STRING, INT>", {}),
    ],
    ids=["texts", "dictionary", "lists", "maps"],
)
def test_lengths_that_are_damaged_do_not_end_the_process(
    tmp_path: Path, codec: str, values: list[Any], ddl: str, options: dict[str, Any]
) -> None:
    """pyarrow believes them: a negative one was a violation of memory."""
    path, is_map = tmp_path / "a.orc", "MAP" in ddl
    kind = pa.map_(pa.string(), pa.int64()) if is_map else None
    orc.write_table(
        pa.table({"n": pa.array([list(one) if is_map else one for one in values], kind)}),
        path,
        compression=codec,
        **options,
    )
    assert len(read(path, ddl)) == 30
    whole = path.read_bytes()
    with path.open("rb") as file:
        footer = OrcFooter(file)
        [stripe] = footer.stripes
        file.seek(stripe.begin + stripe.index + stripe.data)
        at, streams = stripe.begin, []
        for field, value in read_message(footer.unpack(file.read(stripe.footer))):
            if field == 1 and isinstance(value, bytes):
                told = dict(read_message(value))
                streams.append((told.get(1, 0), at, at + int(told.get(3, 0))))
                at = streams[-1][2]
    seen = set()
    for place in [at for kind_, begin, end in streams if kind_ == 2 for at in range(begin, end)]:
        for value in (0, 15, 127, 255):
            path.write_bytes(whole[:place] + bytes([value]) + whole[place + 1 :])
            try:
                seen.add(len(read(path, ddl)))
            except PartUnreadable as error:
                seen.add(error.reason)
    assert seen - {30}
    if codec == "uncompressed":
        assert "a stripe has lengths that are negative, or reach behind its data" in seen


@pytest.mark.parametrize("digits", [10, 30])
def test_scales_that_are_damaged_are_not_counted_up_to(tmp_path: Path, digits: int) -> None:
    path = tmp_path / "a.orc"
    orc.write_table(pa.table({"n": pa.array([Decimal("1.25")] * 40, pa.decimal128(digits, 2))}), path)
    assert [row["n"] for row in read(path, "n DECIMAL(30,2)")] == [Decimal("1.25")] * 40
    whole, scales = path.read_bytes(), bytes.fromhex("c0270400")
    assert whole.count(scales) == 1
    path.write_bytes(whole.replace(scales, bytes.fromhex("c0270440")))
    with pytest.raises(PartUnreadable, match="a stripe has decimals with digits that no type has"):
        read(path, "n DECIMAL(30,2)")
