"""JSON over several lines: cut into records as a plain loop over its characters cuts it, wherever pieces end."""

from __future__ import annotations

import io
import json
import re
import tracemalloc
from typing import Any, BinaryIO, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.sweep import examples
from tidegate.sources.bounds import TOO_LARGE
from tidegate.sources.readers import json_documents as module
from tidegate.sources.readers import lines
from tidegate.sources.readers.json_documents import NO_VALUE, NOT_CLOSED, TEXT_BEHIND, Records, read_documents

Found = list[tuple[bytes, int, str]]
"""(text, line, why it is refused)"""


def _read(text: bytes, size: int = 1 << 20, longest: int = 8 << 20, kept: int = 1000) -> Found:
    found: Found = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BLOCK_BYTES", size)
        patch.setattr(module, "LONGEST_RECORD_BYTES", longest)
        patch.setattr(module, "KEPT_BYTES", kept)
        patch.setattr(lines, "KEPT_BYTES", kept)
        for one in read_documents(io.BytesIO(text)):
            if isinstance(one, Records):
                assert one.texts and all(text in one.block for text in one.texts)
                found += [(text, number, "") for text, number in zip(one.texts, one.numbers, strict=True)]
            else:
                found.append(one)
    return found


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.sampled_from(['"', "\\", '\\"', "[{", "}],"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
_BLANK = st.text(" \t\n\r", max_size=3)


@settings(max_examples=examples(300), deadline=None)
@given(
    values=st.lists(_VALUES, max_size=6),
    blanks=st.lists(_BLANK, min_size=15, max_size=15),
    indent=st.sampled_from([None, 1]),
    escapes=st.booleans(),
    mark=st.booleans(),
    is_array=st.booleans(),
    size=st.integers(1, 40),
)
def test_documents_of_known_records(
    values: list[Any], blanks: list[str], indent: int | None, escapes: bool, mark: bool, is_array: bool, size: int
) -> None:
    if not is_array:
        values = [value for value in values if isinstance(value, dict)] + ["text"]
    texts = [json.dumps(value, indent=indent, ensure_ascii=escapes) for value in values]
    text, wanted = "\ufeff" * mark + blanks[0] + "[" * is_array, []
    for number, (one, before, behind) in enumerate(zip(texts, blanks[1::2], blanks[2::2], strict=False)):
        text += "," * (is_array and number > 0) + before
        wanted.append((one.encode(), len(re.findall("\r\n|\r|\n", text)) + 1, ""))
        text += one + behind
    text += "]" * is_array + blanks[0]
    assert _read(text.encode(), size) == wanted
    assert [json.loads(found) for found, _, _ in wanted] == values


def _cut_slowly(text: bytes) -> Found:
    """The same, a character after the other."""
    text = text.removeprefix(b"\xef\xbb\xbf")
    at = len(text) - len(text.lstrip(b" \t\r\n"))
    if at == len(text):
        return []
    is_array = text[at : at + 1] == b"["
    at, mark, found = at + is_array, b"[" if is_array else b"", list[tuple[bytes, int, str]]()

    def add(begin: int, end: int, why: str) -> None:
        begin += len(text[begin:end]) - len(text[begin:end].lstrip(b" \t\r\n"))
        one, line = text[begin:end].rstrip(b" \t\r\n"), len(re.findall(b"\r\n|\r|\n", text[:begin])) + 1
        if why or (is_array and one):
            found.append((one or mark, line, why))
        elif is_array:
            found.append((mark, line, NO_VALUE))
        else:
            for match in re.finditer(rb'"(?:[^"\\]|\\.)*"|[{\[].*|[^ \t\r\n"{\[]+|"', one, re.DOTALL):
                found.append((match[0], line + len(re.findall(b"\r\n|\r|\n", one[: match.start()])), ""))

    begin, depth, in_text = at, 0, False
    while at < len(text):
        one = text[at : at + 1]
        if one == b"\\" and text[at + 1 : at + 2] in (b"\\", b'"'):
            at += 1
        elif one == b'"':
            in_text = not in_text
        elif not in_text and one in b"[{":
            depth += 1
        elif not in_text and one in b"]}":
            depth -= 1
            if is_array and depth < 0 and one == b"]":
                if text[begin:at].strip(b" \t\r\n") or mark != b"[":
                    add(begin, at, "")
                if text[at + 1 :].strip(b" \t\r\n"):
                    add(at + 1, len(text), TEXT_BEHIND)
                return found
            if depth < 0:
                add(begin, len(text), f"not valid JSON from here on: an unexpected {one.decode()}")
                return found
            if not is_array and depth == 0:
                add(begin, at + 1, "")
                begin = at + 1
        elif one == b"," and not in_text and depth == 0:
            if not is_array:
                add(begin, len(text), "not valid JSON from here on: an unexpected ,")
                return found
            add(begin, at, "")
            begin, mark = at + 1, b","
        at += 1
    if is_array or depth or in_text:
        add(begin, len(text), NOT_CLOSED)
    else:
        add(begin, len(text), "")
    return found


@settings(max_examples=examples(1500), deadline=None)
@given(
    text=st.lists(
        st.sampled_from(
            [*(bytes([one]) for one in b'{}[],"\\: \n\r\tx7'), b'{"a": 1}', b'\\"', b'"b"', b"\xff", b"\xc3\xa9", b"\f"]
        ),
        max_size=25,
    ).map(b"".join),
    begin=st.sampled_from([b"", b"[", b"{", b"\xef\xbb\xbf["]),
    size=st.integers(1, 12),
)
def test_any_text_is_cut_as_the_loop_cuts_it(text: bytes, begin: bytes, size: int) -> None:
    assert _read(begin + text, size) == _cut_slowly(begin + text)


@settings(max_examples=examples(300), deadline=None)
@given(
    lengths=st.lists(st.integers(0, 60), max_size=6),
    is_array=st.booleans(),
    is_broken=st.booleans(),
    size=st.integers(11, 30),
)
def test_a_record_that_is_too_long_is_refused_alone(
    lengths: list[int], is_array: bool, is_broken: bool, size: int
) -> None:
    """A record of up to 20 bytes is read; of others 10 are kept."""
    texts = [b'{"a":\n"%s"}' % (b"\n" * length) for length in lengths]
    text = b"[" * is_array + (b",\n" if is_array else b"\n").join(texts) + b"]" * (is_array and not is_broken)
    wanted, line, limit = list[tuple[bytes, int, str]](), 1, TOO_LARGE
    for one, length in zip(texts, lengths, strict=True):
        is_long = len(one) > 20
        wanted.append((one[: 10 if is_long else None], line, f"a record of {len(one)} bytes; {limit}" * is_long))
        line += length + 2
    if is_array and is_broken:
        [*wanted, (last, line, _)] = wanted or [(b"[", 1, "")]
        size_of_last = len(texts[-1]) if texts else 0
        more = f"; it has {size_of_last} bytes; {TOO_LARGE}" if size_of_last > 20 else ""
        wanted.append((last, line, NOT_CLOSED + more))
    assert _read(text, size, 20, 10) == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (b"", []),
        (b"\xef\xbb\xbf \n", []),
        (b" [ ] \n", []),
        (b'[{"id": "x"}, {"id": ', [(b'{"id": "x"}', 1, ""), (b'{"id":', 1, NOT_CLOSED)]),
        (b'[{"id": "x"} {"id": "y"}]', [(b'{"id": "x"} {"id": "y"}', 1, "")]),
        (b'[{"id": "x"}]\n ]', [(b'{"id": "x"}', 1, ""), (b"]", 2, TEXT_BEHIND)]),
        (b"[{},\n]", [(b"{}", 1, ""), (b",", 2, NO_VALUE)]),
        (b"word", [(b"word", 1, "")]),
        (b'{"a": "x}\n{"a": "y"}', [(b'{"a": "x}\n{"a": "y"}', 1, NOT_CLOSED)]),
        (b"{}}\n{}", [(b"{}", 1, ""), (b"}\n{}", 1, "not valid JSON from here on: an unexpected }")]),
        (b"[{}},\n{}]", [(b"{}},\n{}]", 1, "not valid JSON from here on: an unexpected }")]),
        (b"{},\n{}", [(b"{}", 1, ""), (b",\n{}", 1, "not valid JSON from here on: an unexpected ,")]),
        (b"1\n\xff {}", [(b"1", 1, ""), (b"\xff", 2, ""), (b"{}", 2, "")]),
        (b"[" * 100_000, [(b"[" * 99_999, 1, NOT_CLOSED)]),
    ],
)
def test_texts_that_break_off_or_go_on(text: bytes, wanted: Found) -> None:
    assert _read(text) == wanted


class _Generated(io.RawIOBase):
    """A file of ``count`` pieces that is nowhere whole."""

    def __init__(self, begin: bytes, piece: bytes, count: int, end: bytes) -> None:
        self._pieces = iter([begin, *[piece] * count, end])
        self._left = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._left = self._left or next(self._pieces, b"")
        count = min(len(buffer), len(self._left))
        buffer[:count], self._left = self._left[:count], self._left[count:]
        return count


@pytest.mark.parametrize("kind", ["records", "one record", "nothing but blanks", "broken", "quotes", "backslashes"])
def test_a_large_file_is_not_held(kind: str) -> None:
    line = json.dumps({"id": 1, "text": "é" * 400}).encode()
    begin, piece, end = {
        "records": (b"[" + line, b",\n" + line, b"]"),
        "one record": (b'{"a": [0', b",1" * 500, b"]}"),
        "nothing but blanks": (b"[", b" \n" * 500, b"{}]"),
        "broken": (b"]", line, b""),
        "quotes": (b'["', b'""' * 500, b'"]'),
        "backslashes": (b'["', b"\\" * 1001, b'"]'),
    }[kind]
    file = cast("BinaryIO", io.BufferedReader(_Generated(begin, piece, 40_000, end), 1 << 16))
    tracemalloc.start()
    try:
        records = refused = 0
        for one in read_documents(file):
            if isinstance(one, Records):
                records += len(one.texts)
            else:
                refused += 1
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()
    expected = {"records": (40_001, 0), "nothing but blanks": (1, 0), "quotes": (0, 1), "backslashes": (0, 1)}
    assert (records, refused) == expected.get(kind, (0, 1))
