"""Lines of texts in other encodings, against Python's own decoders; only the JVM's part is tried in tests/streams."""

from __future__ import annotations

import base64
import random
import re
from pathlib import Path

import pytest

from tidegate.sources.files.line_numbers import line_numbers
from tidegate.spec.encodings import ENCODINGS, find_encoding, line_pattern, wide_codec

LETTERS = "a\n\r\u0a0d\u0d0a\u010a\u0a00\u4e00\u0100\u2028\x85\x0c|é\U0001f600"


def _lines_of(text: str, separator: str | None) -> list[str]:
    lines = re.split("\r\n|\n|\r" if separator is None else re.escape(separator), text)
    return lines if lines[-1] else lines[:-1]


@pytest.mark.parametrize("separator", [None, "|", "\n"])
@pytest.mark.parametrize("encoding", [name for name in ENCODINGS if name.startswith(("UTF-16", "UTF-32"))])
def test_lines_are_cut_between_characters(tmp_path: Path, encoding: str, separator: str | None) -> None:
    draw = random.Random(encoding)
    for turn in range(40):
        text = "".join(draw.choices(LETTERS, k=draw.randrange(12)))
        data = text.encode(encoding) if turn % 2 else text.encode(_plain(encoding))
        codec, mark = wide_codec(encoding, data[:4])
        pattern = re.compile(line_pattern(codec, separator).encode("latin-1"))
        found = [one[1].decode(codec) for one in pattern.finditer(data[mark:])]
        wanted = _lines_of(text, separator)
        assert found == [*wanted, ""]
        (tmp_path / "a.txt").write_bytes(data)
        numbers = line_numbers(tmp_path / "a.txt", wanted, line_separator=separator, encoding=encoding)
        assert sorted(number or 0 for number in numbers) == list(range(1, len(wanted) + 1))


def _plain(encoding: str) -> str:
    """The codec that writes no byte order mark, as Java takes a text without one."""
    return encoding if encoding.endswith("E") else f"{encoding}BE"


def test_lines_that_cannot_be_decoded_are_found_by_their_bytes(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"gr\xfcn\nb\x81d\n\nred")
    bad = base64.b64encode(b"b\x81d").decode()
    assert line_numbers(tmp_path / "a.txt", [bad, "grün", "red"], encoding="windows-1252") == [2, 1, 4]
    (tmp_path / "b.txt").write_bytes("a\nb".encode("utf-16-le") + b"\0\xd8\n\0odd")
    bads = [base64.b64encode(line).decode() for line in (b"b\0\0\xd8", b"odd")]
    assert line_numbers(tmp_path / "b.txt", [*bads, "a"], encoding="UTF-16LE") == [2, 3, 1]


def test_python_knows_each_encoding() -> None:
    for name in ENCODINGS:
        assert "a\n".encode(name).decode(name) == "a\n" and find_encoding(name.lower().replace("-", "_")) == name
    assert find_encoding("EBCDIC") is None
