"""The line of a raw record in its file."""

from __future__ import annotations

import bz2
import gzip
from collections.abc import Callable
from pathlib import Path

import pytest

from tidegate.sources.files.line_numbers import line_numbers

TEXT = b'{"a": 1}\n\n{"a": oops}\r\n{"a": 1}\n\xc3\xa9\xe2\x80\xa8x\nlast'


@pytest.mark.parametrize(("suffix", "pack"), [("", bytes), (".gz", gzip.compress), (".bz2", bz2.compress)])
def test_lines_are_found_as_spark_counts_them(tmp_path: Path, suffix: str, pack: Callable[[bytes], bytes]) -> None:
    path = tmp_path / f"a.json{suffix}"
    path.write_bytes(pack(TEXT))
    wanted = ['{"a": oops}', "last", '{"a": 1}', "é\u2028x", '{"a": 1}', "absent", '{"a": 1}']
    assert line_numbers(path, wanted) == [3, 6, 1, 5, 4, None, None]
    assert line_numbers(path, ['{"a": 1}'], start=2) == [4]
    assert line_numbers(path, []) == []


def test_a_byte_order_mark_and_bad_bytes_do_not_hide_a_line(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b"\xef\xbb\xbffirst\nbad \xf0\x9f\x92 \xff\xfe end\n")
    assert line_numbers(path, ["bad \ufffd \ufffd\ufffd\ufffd end", "first"]) == [2, 1]


def test_lines_over_the_borders_of_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"one\r\ntwo\rthree\n\r\nfive\r")
    for size in range(1, 12):
        monkeypatch.setattr("tidegate.sources.files.line_numbers._CHUNK_BYTES", size)
        assert line_numbers(path, ["one", "two", "three", "five", ""]) == [1, 2, 3, 5, 4], size
    assert line_numbers(path, ["one\r\ntwo\rthree\n\r\nfive\r"], line_separator="|") == [1]


def test_the_work_is_bounded_and_a_torn_file_gives_what_it_has(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b"x" * 100 + b"\nnear\n" + b"y\n" * 1000 + b"far\n")
    assert line_numbers(path, ["near", "far"], limit_bytes=500) == [2, None]
    torn = tmp_path / "b.json.gz"
    noise = b"".join(b"%d %d\n" % (number, number * number * 7919) for number in range(50000))
    torn.write_bytes(gzip.compress(b"near\n" + noise + b"far\n")[:-2000])
    found = line_numbers(torn, ["far"])
    assert found == [None]
    assert line_numbers(tmp_path / "missing", ["a"]) == [None]
    assert line_numbers(tmp_path / "a.zst", ["a"]) == [None]
