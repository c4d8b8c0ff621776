"""Common patterns of dates and times: whole columns are read as each text would be."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.support.sweep import examples
from tidegate.sources.readers.date_patterns import DatePattern
from tidegate.sources.readers.time_columns import Arrangement
from tidegate.sources.readers.times import read_date, read_time
from tidegate.sources.readers.ways import Ways


@pytest.mark.parametrize(
    ("pattern", "kind", "text", "wanted"),
    [
        ("dd/MM/yyyy", "date", "07/03/2026", "2026-03-07"),
        ("d/M/yyyy", "date", "7/3/2026", "2026-03-07"),
        ("d/M/yyyy", "date", "7/3/26", None),
        ("dd/MM/yyyy", "date", None, None),
        ("dd/MM/yyyy", "timestamp", "07/03/2026", "2026-03-07"),
        ("dd/MM/yyyy HH:mm", "timestamp", "07/03/2026 22:05", "2026-03-07 22:05:00"),
        ("HH:mm:ss.SSS dd.MM.yyyy", "timestamp_ntz", "22:05:09.5 07.03.2026", "2026-03-07 22:05:09.5"),
        ("yyyy-MM-dd HH:mm:ss.SSSSSSSXXX", "timestamp", "2026-03-07 22:05:09.1234567Z", "2026-03-07 22:05:09.123456Z"),
        ("yyyy-MM-dd HH:mm:ss.SSSSSSS", "timestamp", "2026-03-07 22:05:09.12345678", None),
        ("yyyyMMdd'T'HHmmssXXX", "timestamp", "20260307T220509+01:00", "2026-03-07 22:05:09+01:00"),
        ("yyyy-MM-dd HH:mm:ss[.SSS][XXX]", "timestamp", "2026-03-07 22:05:09", "2026-03-07 22:05:09"),
        ("yyyy-MM-dd HH:mm:ss[.SSS][XXX]", "timestamp", "2026-03-07 22:05:09.25Z", "2026-03-07 22:05:09.25Z"),
        ("M/d/yyyy h:mm:ss a", "timestamp", "3/7/2026 10:05:09 pm", "2026-03-07 22:05:09"),
        ("M/d/yyyy h:mm a", "timestamp", "3/7/2026 12:05 AM", "2026-03-07 00:05:00"),
        ("M/d/yyyy h:mm a", "timestamp", "3/7/2026 13:05 AM", None),
    ],
)
def test_common_patterns(pattern: str, kind: str, text: str | None, wanted: str | None) -> None:
    arrangement = Arrangement.of(DatePattern(pattern), kind)
    assert arrangement is not None and arrangement.to_iso(pa.array([text], pa.string())).to_pylist() == [wanted]


@pytest.mark.parametrize(
    ("pattern", "kind"),
    [
        *(("dd MMM yyyy", "date"), ("yyyy-MM", "date"), ("yyyyDDD", "date"), ("dd/MM/yyyy HH:mm", "date")),
        *(("dd/MM[/yyyy]", "date"), ("[dd/]MM/yyyy", "date"), ("dd/MM/yyyy G", "date"), ("dd/MM/yyyy MM", "date")),
        *(("dd/MM/yyyy[ HH:mm]", "timestamp"), ("dd/MM/yyyy hh:mm", "timestamp"), ("dd/MM/yyyy HH a", "timestamp")),
        *(("dd/MM/yyyy HH hh a", "timestamp"), ("dd/MM/yyyy VV", "timestamp"), ("yyyyMMdd Hmm", "timestamp")),
        *(("dd/MM/yyyy XXX", "timestamp_ntz"), ("yyyy-MM-dd ss[.SSS] HH", "timestamp"), ("dd/MM/yy", "date")),
        *(("yyyy-MM SSSdd", "timestamp"), ("yyyy-MM-d'1'", "date"), ("yyyy-MM-dd ss[.SSS]HH", "timestamp")),
    ],
)
def test_other_patterns_are_for_the_definition(pattern: str, kind: str) -> None:
    assert Arrangement.of(DatePattern(pattern), kind) is None


def test_marks_beyond_ascii_are_for_the_definition() -> None:
    assert Arrangement.of(DatePattern("yyyy-MM-dd h:mm a", "ja-JP"), "timestamp") is None


_PIECES = ("HH", "H", "hh", "h", "mm", "m", "ss", "s", "S", "SSS", "SSSSSSSSS", "a", "XXX")
_ENDS = st.sampled_from(["", "", "[.SSS]", "[.SSSSSS][XXX]", "[XXX]", "[ XXX]", "[S]", "XXX"])
_MARKS = st.sampled_from(["", "/", " ", ":", "'T'", ".", "'1'"])
_DIGITS = ("07", "7", "3", "12", "13", "00", "0", "59", "60", "123", "20", "")
_TEXTS = {
    "y": ("2026", "2024", "1999", "0999", "202", "12026"),
    "S": ("5", "25", "000", "123456", "1234567", ""),
    "a": ("AM", "pm", "PM", "x"),
    "X": ("Z", "+02:00", "-18:00", "+0200", ""),
    "d": ("07", "7", "31", "30", "29", "00"),
}


@st.composite
def _patterns(draw: st.DrawFn) -> str:
    some = draw(st.lists(st.sampled_from(_PIECES), max_size=5, unique_by=lambda piece: piece[0]))
    day = ["yyyy", draw(st.sampled_from(["M", "MM", "LL"])), draw(st.sampled_from(["d", "dd"]))]
    return "".join(piece + draw(_MARKS) for piece in draw(st.permutations([*day, *some]))) + draw(_ENDS)


@settings(max_examples=examples(300), deadline=None, suppress_health_check=list(HealthCheck))
@given(pattern=_patterns(), data=st.data(), kind=st.sampled_from(["date", "timestamp", "timestamp_ntz"]))
def test_an_arrangement_is_the_definition(pattern: str, data: st.DataObject, kind: str) -> None:
    assume("SSSSSSSSSS" not in pattern and "XXXXXX" not in pattern)
    arrangement = Arrangement.of(DatePattern(pattern), kind)
    assume(arrangement is not None)
    assert arrangement is not None
    text = ""
    for token in DatePattern(pattern).tokens:
        if token.kind == "letters":
            text += data.draw(st.sampled_from(_TEXTS.get(token.text[0], _DIGITS)))
        elif token.kind == "text":
            text += token.text
    [iso] = arrangement.to_iso(pa.array([text])).to_pylist()
    if iso is not None:
        key = {"date": "dateFormat", "timestamp": "timestampFormat", "timestamp_ntz": "timestampNTZFormat"}[kind]
        ways = Ways.of({key: pattern})
        assert ways.read(text, kind) == (read_date(iso) if kind == "date" else read_time(iso, kind))
