"""Lines of a file, in parts cut anywhere: each line once, in one part, whatever ends it."""

from __future__ import annotations

import io
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.sources.readers import lines as module
from tidegate.sources.readers.lines import LineTooLong, read_blocks


def _lines_of(text: bytes, cuts: list[int], ending: bytes | None) -> list[bytes]:
    bounds = sorted({0, *(cut for cut in cuts if 0 < cut < len(text))})
    found = []
    for begin, end in zip(bounds, [*bounds[1:], None], strict=True):
        for block in read_blocks(io.BytesIO(text), begin, end, ending):
            assert len(block.lines) == len(list(block.lines))
            found += block.lines
    return found


def _expected(text: bytes, ending: bytes | None) -> list[bytes]:
    text = text.removeprefix(b"\xef\xbb\xbf")
    lines = text.split(ending) if ending is not None else re.split(b"\r\n|\r|\n", text)
    return lines[:-1] if not lines[-1] else lines


@settings(max_examples=400, deadline=None)
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


@settings(max_examples=300, deadline=None)
@given(
    text=st.lists(st.sampled_from([b"a", b"\n", b"|", b"||", b"b|"]), max_size=30).map(b"".join),
    size=st.integers(1, 7),
    ending=st.sampled_from([b"\n", b"|"]),
    cuts=st.lists(st.integers(1, 40), max_size=3),
)
def test_an_ending_of_the_user(text: bytes, size: int, ending: bytes, cuts: list[int]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BLOCK_BYTES", size)
        assert _lines_of(text, cuts, ending) == _expected(text, ending)


def test_a_line_without_an_end_is_refused() -> None:
    text = b"short\n" + b"x" * (module.LONGEST_RECORD_BYTES + module.BLOCK_BYTES + 1)
    with pytest.raises(LineTooLong, match="line 2"):
        list(read_blocks(io.BytesIO(text), 0, None, None))


def test_a_mark_at_the_beginning_is_no_text() -> None:
    assert _lines_of(b"\xef\xbb\xbfa\nb", [], None) == [b"a", b"b"]
