"""Parts of files as record batches: every record with its line, whatever packs the file and wherever it is cut."""

from __future__ import annotations

import bz2
import gzip
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pytest

from tests.support.parts import lines_of
from tidegate.sources.readers import part_readers
from tidegate.sources.readers.form import Form
from tidegate.sources.readers.json_lines import JsonReader
from tidegate.sources.readers.unreadable import PartUnreadable
from tidegate.sources.readers.worker import PartsReader, TextsReader

DDL = "id INT NOT NULL, note STRING"
LINES = [
    *(b'{"id": 1, "note": "a"}', b"", b'{"id": 2, "more": 1}', b"  \t", b'{"note": "b"}', b'{"id": 3'),
    *(b'{"id": 4, "note": "\xff"}', b'{"id": 5, "note": "c"}'),
]


def _read(path: Path, cuts: tuple[int, ...] = (), format: str = "json", **how: Any) -> list[dict[str, Any]]:
    ddl = "value STRING" if format == "text" else DDL
    batches = list(PartsReader(Form(format, ddl, **how))(iter([lines_of(path, 0, *cuts, None)])))
    return [row for batch in batches for row in batch.to_pylist()]


def _hadoop(codec: str) -> Callable[[bytes], bytes]:
    def pack(text: bytes) -> bytes:
        packed = pa.Codec(codec).compress(text, asbytes=True)
        return len(text).to_bytes(4) + len(packed).to_bytes(4) + packed

    return pack


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".deflate": zlib.compress,
    ".zst": lambda text: pa.Codec("zstd").compress(text, asbytes=True),
    ".snappy": _hadoop("snappy"),
    ".lz4": _hadoop("lz4_raw"),
}


@pytest.mark.parametrize("suffix", PACKERS)
def test_records_with_their_lines(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a b%.json{suffix}"
    path.write_bytes(PACKERS[suffix](b"\n".join(LINES)))
    rows = _read(path)
    assert [row["_position"].rpartition("#")[2] for row in rows] == [f"0+{n}" for n in (1, 3, 5, 6, 7, 8)]
    assert [(row["id"], row["note"]) for row in rows if not row["_malformed"]] == [(1, "a"), (2, None), (5, "c")]
    assert [row["_detail"] for row in rows if row["_malformed"]] == [
        "id: missing or null, but NOT NULL",
        "not valid JSON",
        "not valid UTF-8",
    ]
    assert [row["_unknown"] for row in rows] == [None, ["more"], None, None, None, None]
    assert rows[3]["_raw"] == '{"id": 3' and rows[4]["_raw"].startswith("eyJpZCI6IDQ")


def test_unknown_fields_as_faults(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b"\n".join(LINES))
    [row] = [row for row in _read(path, policy="quarantine") if row["_unknown"]]
    assert (row["_malformed"], row["_detail"]) == (True, "fields that the schema lacks: more")


def test_a_file_in_parts_and_small_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(part_readers, "_ROWS_AT_MOST", 7)
    path = tmp_path / "a.json"
    path.write_text("".join(f'{{"id": {n}, "note": "{"x" * (n % 40)}"}}\r\n' for n in range(500)))
    cuts = tuple(range(97, path.stat().st_size, 1013))
    rows = _read(path, cuts)
    assert [row["id"] for row in rows] == list(range(500))
    begins = {int(row["_position"].rpartition("#")[2].partition("+")[0]) for row in rows}
    assert begins == {0, *cuts}


def test_text(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"one\n\n\xff\xfe\nlast")
    rows = _read(path, format="text")
    assert [(row["value"], row["_malformed"]) for row in rows] == [
        ("one", False),
        ("", False),
        (None, True),
        ("last", False),
    ]


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".deflate", ".zst"])
def test_a_torn_file_is_a_fault_of_the_part(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.json{suffix}"
    packed = PACKERS[suffix](b"\n".join(b'{"id": %d}' % n for n in range(5000)))
    path.write_bytes(packed[: len(packed) // 2])
    with pytest.raises(PartUnreadable) as caught:
        _read(path)
    raised = f"{PartUnreadable.__module__}.PartUnreadable: {caught.value}"
    found = PartUnreadable.find(f"An exception was thrown:\n{raised}\n\n\tat Spark")
    assert found is not None and found.path == str(path) and found.reason
    assert PartUnreadable.find(f"a transform printed {raised}") is None


def test_a_line_that_is_too_long_is_refused_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.json.zst"
    long = b'{"id": 2, "note": "' + b"x" * (10 << 20) + b'"}\n'
    path.write_bytes(PACKERS[".zst"](b'{"id": 1}\n' + long + b'{"id": 3}\n'))
    rows = _read(path)
    assert [(row["id"], row["_malformed"]) for row in rows] == [(1, False), (None, True), (3, False)]
    assert rows[1]["_detail"] == f"a line of {len(long) - 1:,} bytes; the limit is 8,388,608 bytes"
    assert rows[1]["_raw"] == long[:1000].decode() and rows[2]["_position"].endswith("#0+3")


def test_streams_behind_one_another(tmp_path: Path) -> None:
    for suffix in (".gz", ".bz2", ".deflate"):
        path = tmp_path / f"a.json{suffix}"
        first, second = PACKERS[suffix](b'{"id": 1}\n'), PACKERS[suffix](b'{"id": 2}\n')
        path.write_bytes(first + second)
        assert [row["id"] for row in _read(path)] == [1, 2], suffix
        for place in (0, 1, len(second) // 2):
            damaged = bytearray(second)
            damaged[place] ^= 0x55
            path.write_bytes(first + damaged)
            with pytest.raises(PartUnreadable):
                _read(path)


@pytest.mark.parametrize("codec", ["snappy", "lz4_raw"])
def test_blocks_of_several_pieces(tmp_path: Path, codec: str) -> None:
    path = tmp_path / f"a.json.{codec.removesuffix('_raw')}"
    texts = [b'{"id": 1}\n{"id": 2', b'}\n{"id": 3}\n']
    pieces = [pa.Codec(codec).compress(text, asbytes=True) for text in texts]
    block = sum(map(len, texts)).to_bytes(4) + b"".join(len(piece).to_bytes(4) + piece for piece in pieces)
    path.write_bytes(block)
    assert [row["id"] for row in _read(path)] == [1, 2, 3]


@pytest.mark.parametrize(
    "record",
    [
        '{"id": 1, "more": ' + "9" * 5000 + "}",
        '{"id": 1, "more": ' + "[" * 800 + "]" * 800 + "}",
        '{"id": 1, "note": ' + '{"a":' * 900 + "1" + "}" * 900 + "}",
    ],
)
def test_no_record_stops_the_others(tmp_path: Path, record: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(f'{{"id": 0}}\n{record}\n\x0c\n{{"id": 2}}\n')
    rows = _read(path)
    assert [row["id"] for row in rows if not row["_malformed"]] in ([0, 1, 2], [0, 2])
    assert len(rows) == 4 and rows[2]["_malformed"]


def test_a_defect_of_the_fast_way_changes_no_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b"\n".join(LINES))
    by_both = _read(path)
    monkeypatch.setattr(JsonReader, "read", Mock(side_effect=ValueError("a defect")))
    assert _read(path) == by_both


def test_texts_that_are_at_hand() -> None:
    texts = pa.RecordBatch.from_pydict(
        {"_raw": ['{"id": 1, "more": 2}', "torn", None], "_position": ["a", "b", "c"], "day": ["x", "y", "z"]}
    )
    [batch] = TextsReader(Form("json", DDL), ["day"])(iter([texts]))
    rows = batch.to_pylist()
    assert [(row["id"], row["_position"], row["day"]) for row in rows] == [
        (1, "a", "x"),
        (None, "b", "y"),
        (None, "c", "z"),
    ]
    assert [row["_detail"] for row in rows] == [None, "not a JSON object", "null value (tombstone)"]
