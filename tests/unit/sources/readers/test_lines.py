"""Lines of a file, in parts cut anywhere: each line once, in one part, whatever ends it."""

from __future__ import annotations

import io
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.sweep import examples
from tidegate.sources.readers import lines as module
from tidegate.sources.readers.lines import Records, Refused, read_blocks


def _lines_of(text: bytes, cuts: list[int], ending: bytes | None) -> list[bytes]:
    bounds = sorted({0, *(cut for cut in cuts if 0 < cut < len(text))})
    found: list[bytes] = []
    for begin, end in zip(bounds, [*bounds[1:], None], strict=True):
        before = len(found)
        for block in read_blocks(io.BytesIO(text), begin, end, ending):
            assert isinstance(block, Records)
            found += block.texts
            assert list(block.numbers) == list(range(1, len(found) - before + 1))[-len(block.texts) :]
    return found


def _sizes_in(block: Records | Refused) -> list[tuple[int, bytes]]:
    """The bytes of each line, and what is kept of it."""
    if isinstance(block, Records):
        return [(len(line), line) for line in block.texts]
    size = re.match("a line of ([0-9,]+) bytes", block.detail)
    assert size is not None
    return [(int(size[1].replace(",", "")), block.text)]


def _expected(text: bytes, ending: bytes | None) -> list[bytes]:
    text = text.removeprefix(b"\xef\xbb\xbf")
    lines = text.split(ending) if ending is not None else re.split(b"\r\n|\r|\n", text)
    return lines[:-1] if not lines[-1] else lines


@settings(max_examples=examples(400), deadline=None)
@given(
    text=st.lists(st.sampled_from([b"a", b"bc", b"\n", b"\r", b"\r\n", b"\xc3\xa9", b"dddd"]), max_size=40).map(
        b"".join
    ),
    cuts=st.lists(st.integers(1, 60), max_size=4),
    size=st.integers(1, 9),
)
def test_each_line_is_in_one_part(text: bytes, cuts: list[int], size: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BLOCK_BYTES", size)
        assert _lines_of(text, cuts, None) == _expected(text, None)


@settings(max_examples=examples(300), deadline=None)
@given(
    text=st.lists(st.sampled_from([b"a", b"\n", b"|", b"||", b"b|"]), max_size=30).map(b"".join),
    size=st.integers(1, 7),
    ending=st.sampled_from([b"\n", b"|", b"||"]),
    cuts=st.lists(st.integers(1, 40), max_size=3),
)
def test_an_ending_of_the_user(text: bytes, size: int, ending: bytes, cuts: list[int]) -> None:
    cuts = cuts if len(ending) == 1 else []  # a file with a longer one is one part
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BLOCK_BYTES", size)
        assert _lines_of(text, cuts, ending) == _expected(text, ending)


@settings(max_examples=examples(200), deadline=None)
@given(
    sizes=st.lists(st.sampled_from([0, 1, 5, 19, 20, 21, 22, 23, 24, 45, 90]), max_size=8),
    ending=st.sampled_from([b"\n", b"\r\n", b"\r"]),
    size=st.integers(1, 9),
    cuts=st.lists(st.integers(1, 200), max_size=3),
)
def test_a_line_that_is_too_long_is_a_block_alone(sizes: list[int], ending: bytes, size: int, cuts: list[int]) -> None:
    text = b"".join(bytes([97 + number]) * length + ending for number, length in enumerate(sizes))
    bounds = sorted({0, *(cut for cut in cuts if 0 < cut < len(text))})
    found: list[tuple[int, bytes]] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BLOCK_BYTES", size)
        patch.setattr(module, "LONGEST_RECORD_BYTES", 20)
        for begin, end in zip(bounds, [*bounds[1:], None], strict=True):
            for block in read_blocks(io.BytesIO(text), begin, end, None):
                found += _sizes_in(block)
    wanted = [(length, bytes([97 + number]) if length else b"") for number, length in enumerate(sizes)]
    assert [(length, kept[:1]) for length, kept in found] == wanted


@settings(max_examples=examples(300), deadline=None)
@given(
    pieces=st.lists(st.sampled_from([b"a", b"|", b"||", b"b|", b"x" * 7, b"x" * 9, b"x" * 30]), max_size=12),
    ending=st.sampled_from([b"|", b"||", b"||a"]),
    size=st.integers(1, 9),
)
def test_a_line_that_is_too_long_ends_where_the_user_says(pieces: list[bytes], ending: bytes, size: int) -> None:
    """The first two of three bars are the end, wherever a chunk ends."""
    text = b"".join(pieces)
    found: list[tuple[int, bytes]] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BLOCK_BYTES", size)
        patch.setattr(module, "LONGEST_RECORD_BYTES", 8)
        patch.setattr(module, "KEPT_BYTES", 3)
        for block in read_blocks(io.BytesIO(text), 0, None, ending):
            number = block.number if isinstance(block, Refused) else block.numbers[0]
            assert number == len(found) + 1
            found += _sizes_in(block)
    wanted = _expected(text, ending)
    assert [kept for _, kept in found] == [line if len(line) <= 8 else line[:3] for line in wanted]
    assert [length for length, _ in found] == [len(line) for line in wanted]


def test_a_mark_at_the_beginning_is_no_text() -> None:
    assert _lines_of(b"\xef\xbb\xbfa\nb", [], None) == [b"a", b"b"]
