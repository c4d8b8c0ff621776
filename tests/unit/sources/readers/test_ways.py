"""How values are written, by the options of a source: at every depth, fast and slow alike, in every process."""

from __future__ import annotations

import datetime as dt
import pickle
import time
from decimal import Decimal
from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.sweep import examples
from tidegate.sources.readers.json_lines import JsonReader
from tidegate.sources.readers.records import Batch
from tidegate.sources.readers.time_columns import Clocks
from tidegate.sources.readers.times import to_utc
from tidegate.sources.readers.ways import Ways
from tidegate.spec.ddl import parse_ddl, read_columns
from tidegate.spec.notations import find_zone


def _read(ddl: str, options: dict[str, str], *texts: str) -> Batch:
    lines = [text.encode() for text in texts]
    return JsonReader(read_columns(parse_ddl(ddl)), ways=Ways.of(options)).read(lines, b"\n".join(lines))


_UNKNOWN = "its time zone is ambiguous or unknown: write +02:00 or Europe/Paris"
_TWICE = "ambiguous: its time zone has this time twice, as the clock was put back"
_NEVER = "a time that does not exist in its time zone: the clock was put forward"


@pytest.mark.parametrize(
    ("zone", "text", "wanted"),
    [
        ("Europe/Berlin", "2026-03-07T23:05:09", dt.datetime(2026, 3, 7, 22, 5, 9)),
        ("Europe/Berlin", "2026-07-01 00:00", dt.datetime(2026, 6, 30, 22)),
        ("Europe/Berlin", "2026-07-01", dt.datetime(2026, 6, 30, 22)),
        ("Europe/Berlin", "2026-03-07T22:05:09Z", dt.datetime(2026, 3, 7, 22, 5, 9)),
        ("Europe/Berlin", "2026-10-25T02:30:00+02:00", dt.datetime(2026, 10, 25, 0, 30)),
        ("Europe/Berlin", "2026-10-25T02:30:00", _TWICE),
        ("Europe/Berlin", "2026-03-29T02:30:00", _NEVER),
        ("Europe/Berlin", "2026-07-01T12:00:00 BST", _UNKNOWN),
        ("Europe/Berlin", "2026-07-01T12:00:00 CET", _UNKNOWN),
        ("Europe/Berlin", "0001-01-01T00:00:00", "TIMESTAMP outside the years 1 to 9999"),
        ("America/New_York", "9999-12-31T23:00:00", "TIMESTAMP outside the years 1 to 9999"),
        ("CET", "2026-07-01T12:00:00", dt.datetime(2026, 7, 1, 10)),
        ("UTC+05:30", "2026-07-01T12:00:00", dt.datetime(2026, 7, 1, 6, 30)),
        ("-8", "2026-07-01T12:00:00", dt.datetime(2026, 7, 1, 20)),
    ],
)
def test_the_time_zone_of_times_that_name_none(zone: str, text: str, wanted: dt.datetime | str) -> None:
    batch = _read("t TIMESTAMP, p TIMESTAMP_NTZ", {"timeZone": zone}, f'{{"t":"{text}"}}', '{"t":1700000000}')
    assert batch.columns[0][1].as_py().replace(tzinfo=None) == dt.datetime(2023, 11, 14, 22, 13, 20)
    if isinstance(wanted, str):
        assert [wrong.detail for wrong in batch.wrong.values()] == [f"t: {wanted}"]
    else:
        assert not batch.wrong and batch.columns[0][0].as_py().replace(tzinfo=None) == wanted


def test_an_unknown_zone_or_pattern_is_no_way() -> None:
    with pytest.raises(ValueError, match="'BST' is not a time zone"):
        Ways.of({"timeZone": "BST"})
    with pytest.raises(ValueError, match="'xx' is not the tag of a known language"):
        Ways.of({"locale": "xx"})
    with pytest.raises(ValueError, match="E is the day of a week"):
        Ways.of({"dateFormat": "EEE d MMM yyyy"})


_DEEP = "n STRUCT<a: ARRAY<STRUCT<t: TIMESTAMP>>, m: MAP<STRING, DATE>>, l ARRAY<DATE>"
_OPTIONS = {"dateFormat": "dd/MM/yyyy", "timestampFormat": "dd.MM.yyyy HH:mm:ss", "timeZone": "Europe/Berlin"}


def test_values_at_every_depth() -> None:
    good = '{"n":{"a":[{"t":"07.03.2026 23:05:09"},{"t":0}],"m":{"k":"07/03/2026"}},"l":["08/03/2026",null]}'
    bad = {
        '{"n":{"a":[{"t":"29.03.2026 02:30:00"}]}}': f"n.a[].t: {_NEVER}",
        '{"n":{"a":[{"t":"25.10.2026 02:30:00"}]}}': f"n.a[].t: {_TWICE}",
        '{"n":{"a":[{"t":"2026-03-07T22:05:09"}]}}': "n.a[].t: not a TIMESTAMP",
        '{"n":{"a":[{"t":1767225600000}]}}': "n.a[].t: TIMESTAMP outside the years 1 to 9999",
        '{"n":{"m":{"k":"31/12/0000"}}}': "n.m{}: DATE outside the years 1 to 9999",
        '{"l":["31/12/+12026"]}': "l[]: DATE outside the years 1 to 9999",
        '{"l":["2026-12-31",5]}': "l[]: not a DATE",
    }
    batch = _read(_DEEP, _OPTIONS, good, *bad)
    assert [batch.wrong[at].detail for at in range(1, len(bad) + 1)] == [*bad.values()] and 0 not in batch.wrong
    assert batch.columns[0][0].as_py() == {
        "a": [{"t": dt.datetime(2026, 3, 7, 22, 5, 9, tzinfo=dt.UTC)}, {"t": dt.datetime(1970, 1, 1, tzinfo=dt.UTC)}],
        "m": [("k", dt.date(2026, 3, 7))],
    }
    assert batch.columns[1][0].as_py() == [dt.date(2026, 3, 8), None]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("07/03/2026", dt.date(2026, 3, 7)),
        ("2026-03-07", dt.date(2026, 3, 7)),
        ("2026-03-07T10:00", "not a date alone (year-month-day)"),
        ("07/03/0000", "DATE outside the years 1 to 9999"),
        ("x", "not a DATE"),
    ],
)
def test_the_form_without_a_pattern_as_the_second_one(text: str, wanted: dt.date | str) -> None:
    ways = Ways.of({"dateFormat": "dd/MM/yyyy", "enableDateTimeParsingFallback": "true"})
    day, fault = ways.read(text, "date")
    assert (fault or day) == wanted


def test_times_in_the_form_without_a_pattern() -> None:
    options = {"timestampFormat": "dd/MM/yyyy HH:mm", "enableDateTimeParsingFallback": "true", "timeZone": "+01:00"}
    ways = Ways.of(options)
    assert ways.read("07/03/2026 10:00", "timestamp") == (dt.datetime(2026, 3, 7, 9), None)
    assert ways.read("2026-03-07T10:00", "timestamp") == (dt.datetime(2026, 3, 7, 9), None)
    finer = "finer than a microsecond; a timestampFormat with 7 to 9 S drops the digits after the sixth"
    assert ways.read("2026-03-07T10:00:00.0000001", "timestamp") == (None, finer)


_FINE, _LARGE = "more decimals than DECIMAL(10,2) holds", "not a DECIMAL(10,2)"
_NOT_SO = "not written as the option locale says"


@pytest.mark.parametrize(
    ("locale", "text", "wanted"),
    [
        ("de-DE", "1.234,56", "1234.56"),
        ("de-DE", "1234,56", "1234.56"),
        ("de-DE", "-1.234.567,8", "-1234567.80"),
        ("de-DE", "12", "12.00"),
        ("de-DE", ",5", "0.50"),
        ("de-DE", "5,", "5.00"),
        ("de-DE", "1,5E1", "15.00"),
        ("de-DE", "1,2345", _FINE),
        ("de-DE", "1.234,56-", "-1234.56"),
        ("de-DE", "5-", "-5.00"),
        ("de-DE", "0-", "0.00"),
        ("de-DE", "-5-", _LARGE),
        ("de-DE", "5--", _LARGE),
        ("de-DE", "+5-", _LARGE),
        ("de-DE", "-", _LARGE),
        ("sv-SE", "5,5\u2212", "-5.50"),
        ("en-US", "1,234.5-", "-1234.50"),
        ("de-DE", "12345678901", _LARGE),
        ("de-DE", "1.5", _NOT_SO),
        ("de-DE", "1.2345", _NOT_SO),
        ("de-DE", "1,234.56", _NOT_SO),
        ("de-DE", "1..234", _NOT_SO),
        ("de-DE", "1,2,3", _NOT_SO),
        ("de-DE", " 1,5", _NOT_SO),
        ("de-DE", "x", _LARGE),
        ("de-DE", ",", _LARGE),
        ("de-DE", "", _LARGE),
        ("en-US", "1,234.56", "1234.56"),
        ("en-US", "1,23", _NOT_SO),
        ("hi-IN", "12,34,567.8", "1234567.80"),
        ("fr-FR", "1\u202f234,5", "1234.50"),
        ("fr-FR", "1 234,5", "1234.50"),
        ("fr-FR", "1\u00a0234,5", "1234.50"),
        ("de-CH", "1\u2019234.5", "1234.50"),
        ("de-CH", "1'234.5", "1234.50"),
        ("sv-SE", "\u22125,5", "-5.50"),
        ("sv-SE", "-5,5", "-5.50"),
    ],
)
def test_decimals_of_a_locale(locale: str, text: str, wanted: str) -> None:
    batch = _read("c DECIMAL(10,2)", {"locale": locale}, f'{{"c":"{text}"}}', '{"c":1234.5}', '{"c":12345.678}')
    assert batch.columns[0][1].as_py() == Decimal("1234.50")  # a number of JSON has a point
    assert batch.wrong[2].detail == f"c: {_FINE}"
    if 0 in batch.wrong:
        assert batch.wrong[0].detail == f"c: {wanted}"
    else:
        assert str(batch.columns[0][0].as_py()) == wanted


@given(cents=st.integers(-(10**9), 10**9), has_groups=st.booleans())
def test_what_a_german_writes_is_read(cents: int, has_groups: bool) -> None:
    number = Decimal(cents) / 100
    text = f"{number:,.2f}" if has_groups else f"{number:.2f}"
    text = text.translate(str.maketrans(".,", ",."))
    assert Ways.of({"locale": "de-DE"}).read_decimal(text, 10, 2) == (number, None)


def test_ways_go_to_other_processes() -> None:
    ways = Ways.of({**_OPTIONS, "locale": "de-DE", "allowComments": "true"})
    copy = pickle.loads(pickle.dumps(ways))
    assert copy.read("07/03/2026", "date") == (dt.date(2026, 3, 7), None)
    assert copy.read("07.03.2026 23:05:09", "timestamp") == (dt.datetime(2026, 3, 7, 22, 5, 9), None)
    assert copy.read_decimal("1,5", 4, 2) == (Decimal("1.50"), None) and copy.switches == ways.switches
    assert pickle.loads(pickle.dumps(Ways.of({}))).zone is dt.UTC


_ZONES = ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Casablanca", "Asia/Kathmandu", "+05:30")
_TIMES = st.one_of(
    st.datetimes(dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59)),
    st.datetimes(dt.datetime(2026, 3, 1), dt.datetime(2026, 4, 10)),
    st.datetimes(dt.datetime(2026, 10, 1), dt.datetime(2026, 11, 10)),
)


def _is_close(time: dt.datetime, zone: dt.tzinfo) -> bool:
    """Whether a clock is changed within the hour of ``time``."""
    hour = time.replace(minute=0, second=0, microsecond=0, tzinfo=zone)
    minutes = (hour + dt.timedelta(minutes=minute, seconds=59) for minute in range(60))
    return len({minute.replace(fold=fold).utcoffset() for minute in minutes for fold in (0, 1)}) > 1


@settings(max_examples=examples(300), deadline=None)
@given(zone_name=st.sampled_from(_ZONES), times=st.lists(st.one_of(st.none(), _TIMES), min_size=1, max_size=20))
def test_clocks_of_a_day_are_those_of_each_time(zone_name: str, times: list[dt.datetime | None]) -> None:
    zone = find_zone(zone_name)
    assert zone is not None
    found = Clocks(zone).to_utc(pa.array(times, pa.timestamp("us"))).to_pylist()
    for one, utc in zip(times, found, strict=True):
        if utc is None:
            assert one is None or not 1 < one.year < 9999 or to_utc(one, zone)[0] is None or _is_close(one, zone)
        else:
            assert one is not None and to_utc(one, zone) == (utc.replace(tzinfo=None), None)


def test_the_zone_of_the_machine_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    ddl, text = "t TIMESTAMP, d DATE", '{"t":"07.03.2026 23:05:09","d":"07/03/2026"}'
    before = _read(ddl, _OPTIONS, text, '{"t":"29.03.2026 02:30:00"}')
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        after = _read(ddl, _OPTIONS, text, '{"t":"29.03.2026 02:30:00"}')
    finally:
        monkeypatch.undo()
        time.tzset()
    assert [*after.columns] == [*before.columns] and after.wrong == before.wrong


def test_common_records_are_read_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    ddl = "c DECIMAL(10,2), d DATE, e DATE, t TIMESTAMP, p TIMESTAMP_NTZ"
    options = {**_OPTIONS, "timestampNTZFormat": "d. MMMM yyyy H:mm", "locale": "de-DE", "allowComments": "true"}
    line = b'{"c":"1.234,56","d":"07/03/2026","t":"07.03.2026 23:05:09","p":"7. M\xc3\xa4rz 2026 9:05"}'
    reader = JsonReader(read_columns(parse_ddl(ddl)), ways=Ways.of(options))
    monkeypatch.setattr(reader, "_read_closely", Mock(side_effect=AssertionError("the slow way")))
    row: list[Any] = [column[0].as_py() for column in reader.read([line], line).columns]
    assert row == [
        *(Decimal("1234.56"), dt.date(2026, 3, 7), None),
        *(dt.datetime(2026, 3, 7, 22, 5, 9, tzinfo=dt.UTC), dt.datetime(2026, 3, 7, 9, 5)),
    ]
