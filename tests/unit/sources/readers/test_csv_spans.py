"""Records of csv over several lines: found as the definition of a row finds them, wherever a block of the file ends."""

from __future__ import annotations

import io
import re
import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.sweep import examples
from tidegate.sources.readers import csv_file as module
from tidegate.sources.readers import lines as line_module
from tidegate.sources.readers.csv_file import read_spans
from tidegate.sources.readers.csv_rows import Splitter
from tidegate.sources.readers.csv_values import CsvOptions
from tidegate.sources.readers.lines import Records, Refused

_PIECES = st.sampled_from(
    [
        "a",
        "b,",
        '"',
        '""',
        ',"',
        '",',
        '"\n',
        '\n"',
        "\n",
        "\r\n",
        "\r",
        '\\"',
        "\\",
        " ",
        "#",
        "\n#",
        "é",
        ";",
        "|",
        "'",
    ]
)
_OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "sep": st.sampled_from([";", "b,", " "]),
        "quote": st.sampled_from(["'", "", "é"]),
        "escape": st.sampled_from(['"', "#", "", "é"]),
        "charToEscapeQuoteEscaping": st.just("#"),
        "comment": st.just("#"),
        "ignoreLeadingWhiteSpace": st.just("true"),
        "lineSep": st.sampled_from(["\n", "|"]),
        "unescapedQuoteHandling": st.sampled_from(
            ["STOP_AT_CLOSING_QUOTE", "BACK_TO_DELIMITER", "STOP_AT_DELIMITER", "SKIP_VALUE"]
        ),
    },
)


def _by_definition(text: str, options: CsvOptions) -> list[tuple[str, int]]:
    splitter, breaks = Splitter(options), re.compile(rf"{options.breaks}|\Z")
    found, at, number = [], 0, 1
    while at < len(text):
        row = splitter.split(text, at)
        is_comment = options.comment and text.startswith(options.comment, at)
        end = breaks.search(text, at if is_comment or row.fault is not None else row.end)
        assert end is not None
        found.append((text[at : end.start()], number))
        number += len(breaks.findall(text, at, end.end())) - 1
        at = end.end()
    return found


def _read(text: bytes, options: CsvOptions) -> list[tuple[str, int]]:
    found = []
    for records in read_spans(io.BytesIO(text), options):
        assert isinstance(records, Records)
        block, texts, numbers = records
        assert all(one in block for one in texts)
        found += list(zip((one.decode() for one in texts), numbers, strict=True))
    return found


@settings(max_examples=examples(2500), deadline=None)
@given(text=st.lists(_PIECES, max_size=25).map("".join), size=st.integers(1, 40), options=_OPTIONS)
@example(text='"\n",""', size=1, options={"unescapedQuoteHandling": "BACK_TO_DELIMITER"})
def test_records_are_those_of_the_definition(text: str, size: int, options: dict[str, str]) -> None:
    made = CsvOptions.of({"escape": '"', **options, "multiLine": "true"})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BLOCK_BYTES", size)
        assert _read(text.encode(), made) == _by_definition(text, made)


def test_an_open_quote_takes_no_other_record_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    made = CsvOptions.of({"multiLine": "true", "escape": '"'})
    text = b'k1,x\nk2,"abc\nk3,def\n"k4",ghi\nk5,"two\r\nlines"\nk6,"end\n'
    wanted = [
        *(("k1,x", 1), ('k2,"abc', 2), ("k3,def", 3), ('"k4",ghi', 4)),
        *(('k5,"two\r\nlines"', 5), ('k6,"end', 7)),
    ]
    assert _read(text, made) == wanted
    for one in (module, line_module):
        monkeypatch.setattr(one, "LONGEST_RECORD_BYTES", 100)
    monkeypatch.setattr(module, "BLOCK_BYTES", 30)
    lines = "swallowed,1\n" * 50
    found = _read(f'before,1\n"open,2\n{lines}"last",3'.encode(), made)
    assert found[:3] == [("before,1", 1), ('"open,2', 2), ("swallowed,1", 3)] and found[-1] == ('"last",3', 53)


@pytest.mark.parametrize("quote", [b"", b'"'])
@pytest.mark.parametrize("size", [101, 129, 300, 5000])
def test_a_line_that_is_too_long_is_alone(monkeypatch: pytest.MonkeyPatch, quote: bytes, size: int) -> None:
    made = CsvOptions.of({"multiLine": "true", "escape": '"'})
    for one in (module, line_module):
        monkeypatch.setattr(one, "LONGEST_RECORD_BYTES", 100)
    monkeypatch.setattr(module, "BLOCK_BYTES", 30)
    text = b"before,1\n" + quote + b"x" * size + b'\n"behind\nit",2\nlast,3'
    found = list(read_spans(io.BytesIO(text), made))
    [refused] = [one for one in found if isinstance(one, Refused)]
    assert refused.text[:10] == (quote + b"x" * 10)[:10] and refused.number == 2
    counted = int(refused.detail.split()[3].replace(",", ""))  # perhaps with its line end
    assert refused.detail.startswith(("a line of", "a record of")) and counted - size - len(quote) in (0, 1)
    others = [pair for one in found if isinstance(one, Records) for pair in zip(one.texts, one.numbers, strict=True)]
    assert others == [(b"before,1", 1), (b'"behind\nit",2', 3), (b"last,3", 5)]


def test_many_open_quotes_cost_no_more_than_their_text() -> None:
    text = b'k,"abc\n' * 20_000 + b'k,"' + b'\\"a\n' * 80_000
    began = time.process_time()
    assert len(_read(text, CsvOptions.of({"multiLine": "true"}))) == 100_000
    assert time.process_time() - began < 30, "with each open quote read to its bound it would be an hour"
