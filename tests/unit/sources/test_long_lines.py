"""Lines too long for a record, against a plain split of the whole text."""

from __future__ import annotations

import gzip
import random
import tracemalloc
from pathlib import Path

import pytest

from tidegate.sources.files import long_lines
from tidegate.sources.files.long_lines import LONGEST_LINE_BYTES, why_too_long, write_other_lines
from tidegate.spec.models import FilesSource


def source(format_: str = "json", **options: str) -> FilesSource:
    return FilesSource.model_validate({"type": "files", "path": "x", "format": format_, "options": options})


@pytest.mark.parametrize("line_break", [b"\n", b"\r\n", b"\r", b"||"])
@pytest.mark.parametrize("seed", range(8))
def test_as_a_plain_split_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, line_break: bytes) -> None:
    """Lines around the limit, in chunks as long as it is at most."""
    draw = random.Random(seed)
    monkeypatch.setattr(long_lines, "LONGEST_LINE_BYTES", 40)
    monkeypatch.setattr(long_lines, "_CHUNK_BYTES", draw.choice([1, 7, 39, 40]))
    lines = [b"x" * draw.choice([0, 1, 5, 39, 40, 41, 80, 400]) for _ in range(draw.randrange(1, 40))]
    spec = source("json", **({"lineSep": "||"} if line_break == b"||" else {}))
    path, target = tmp_path / "a.json", tmp_path / "b.json"
    path.write_bytes(line_break.join(lines) + draw.choice([b"", line_break]))
    long = [(number, len(line)) for number, line in enumerate(lines, 1) if len(line) > 40]
    why = why_too_long(path, spec)
    assert (why is not None) == bool(long)
    for number, size in long[:10] if why else []:
        assert f"line {number:,} has {size:,} bytes" in why
    write_other_lines(path, target, spec)
    found = target.read_bytes().replace(b"\r\n", b"\n").replace(b"\r", b"\n").replace(b"||", b"\n")
    wanted = [line if len(line) <= 40 else b"" for line in lines]
    assert found.rstrip(b"\n") == b"\n".join(wanted).rstrip(b"\n")


@pytest.mark.parametrize("chunk", range(1, 9))
def test_a_separator_is_looked_for_from_the_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    """The first two of three bars are the separator, wherever a chunk ends."""
    monkeypatch.setattr(long_lines, "LONGEST_LINE_BYTES", 8)
    monkeypatch.setattr(long_lines, "_CHUNK_BYTES", chunk)
    (tmp_path / "a.txt").write_bytes(b"one|||two||" + b"|" + b"x" * 9 + b"||three")
    write_other_lines(tmp_path / "a.txt", tmp_path / "b.txt", source("json", lineSep="||"))
    assert (tmp_path / "b.txt").read_bytes() == b"one|||two||||three"


def test_text_keeps_no_empty_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There it would be a record."""
    monkeypatch.setattr(long_lines, "LONGEST_LINE_BYTES", 10)
    monkeypatch.setattr(long_lines, "_CHUNK_BYTES", 8)
    (tmp_path / "a.txt").write_bytes(b"one\n" + b"x" * 11 + b"\nthree\n")
    write_other_lines(tmp_path / "a.txt", tmp_path / "b.txt", source("text"))
    assert (tmp_path / "b.txt").read_bytes() == b"one\nthree\n"


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_ten_times_the_longest_line(tmp_path: Path, suffix: str) -> None:
    """80 MiB without a line break, between two records: found, and never held whole."""
    path, target = tmp_path / f"a.json{suffix}", tmp_path / f"b.json{suffix}"
    size = 10 * LONGEST_LINE_BYTES
    with gzip.open(path, "wb", compresslevel=1) if suffix else open(path, "wb") as out:
        out.write(b'{"id": 1}\n' + b"x" * size + b'\n{"id": 3}\n')
    tracemalloc.start()
    why = why_too_long(path, source())
    write_other_lines(path, target, source())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert why == f"line 2 has {size:,} bytes; the limit is 8,388,608 bytes, and the other lines of this file are read"
    text = gzip.decompress(target.read_bytes()) if suffix else target.read_bytes()
    assert text == b'{"id": 1}\n\n{"id": 3}\n'
    assert peak < 4 * LONGEST_LINE_BYTES


def test_a_file_that_is_not_larger_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b"x" * LONGEST_LINE_BYTES)
    path.chmod(0)  # what cannot be opened gives None as well: the size alone must do
    assert why_too_long(path, source()) is None
    assert why_too_long(path.with_name("gone"), source()) is None
