"""Texts that are written by a pattern of Java's: what is read of them, and what is none.

The values are those of the documentation of Java's DateTimeFormatter and of Spark's page "Datetime Patterns".
"""

from __future__ import annotations

import datetime as dt
import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.sweep import examples
from tidegate.sources.readers.date_patterns import DatePattern
from tidegate.sources.readers.ways import Ways

DAY = dt.date(2026, 3, 7)
DATES: list[tuple[str, str, str, dt.date | str]] = [
    # (pattern, locale, text, the date or why it is none)
    ("dd/MM/yyyy", "", "07/03/2026", DAY),
    ("dd/MM/yyyy", "", "7/3/2026", "not a DATE"),
    ("dd/MM/yyyy", "", "07/03/26", "not a DATE"),
    ("dd/MM/yyyy", "", " 07/03/2026", "not a DATE"),
    ("dd/MM/yyyy", "", "07/03/2026 ", "not a DATE"),
    ("dd/MM/yyyy", "", "07/03/2026\n", "not a DATE"),
    ("dd/MM/yyyy", "", "31/02/2026", "not a DATE"),
    ("dd/MM/yyyy", "", "29/02/2024", dt.date(2024, 2, 29)),
    ("dd/MM/yyyy", "", "2026-03-07", "not a DATE"),
    ("dd/MM/yyyy", "", "٠٧/٠٣/٢٠٢٦", "not a DATE"),
    ("dd/MM/yyyy", "", "", "not a DATE"),
    ("dd/MM/yyyy", "", "07/03/0000", "DATE outside the years 1 to 9999"),
    ("dd/MM/yyyy", "", "07/03/+12026", "DATE outside the years 1 to 9999"),
    ("dd/MM/yyyy", "", "07/03/-2026", "DATE outside the years 1 to 9999"),
    ("dd/MM/yyyy", "", "07/03/12026", "not a DATE"),
    ("dd/MM/yyyy", "", "07/03/+2026", "not a DATE"),
    ("d.M.y", "", "7.3.2026", DAY),
    ("d.M.y", "", "07.03.02026", DAY),
    ("d.M.y", "", "7.3.12026", "DATE outside the years 1 to 9999"),
    ("d.M.y", "", "7.13.2026", "not a DATE"),
    ("d.M.y", "", "0.3.2026", "not a DATE"),
    ("d.M.y", "", "7.3." + "9" * 30, "not a DATE"),
    ("yyMMdd", "", "260307", DAY),
    ("yyMMdd", "", "990307", dt.date(2099, 3, 7)),
    ("yyyyMMdd", "", "20260307", DAY),
    ("yyyyMMdd", "", "2026037", "not a DATE"),
    ("yyyyMMdd", "", "202603071", "not a DATE"),
    ("yyyyMMdd", "", "+020260307", DAY),
    ("yMMdd", "", "20260307", DAY),
    ("yyyyDDD", "", "2026066", DAY),
    ("yyyy-D", "", "2026-66", DAY),
    ("yyyy-DD", "", "2026-066", DAY),
    ("yyyy-D", "", "2026-366", "not a DATE"),
    ("yyyy-D", "", "2024-366", dt.date(2024, 12, 31)),
    ("yyyy-D", "", "2026-0", "not a DATE"),
    ("yyyy-MM-dd D", "", "2026-03-07 66", DAY),
    ("yyyy-MM-dd D", "", "2026-03-07 67", "not a DATE"),
    ("yyyy-MM", "", "2026-03", dt.date(2026, 3, 1)),
    ("yyyy", "", "2026", dt.date(2026, 1, 1)),
    ("g", "", "61106", DAY),
    ("g", "", "99999999", "DATE outside the years 1 to 9999"),
    ("g yyyy", "", "61106 2026", DAY),
    ("g yyyy", "", "61106 2025", "not a DATE"),
    ("d MMM yyyy", "", "7 Mar 2026", DAY),
    ("d MMM yyyy", "", "7 mAR 2026", DAY),
    ("d MMM yyyy", "", "7 March 2026", "not a DATE"),
    ("d MMMM yyyy", "", "7 March 2026", DAY),
    ("d MMMM yyyy", "", "7 Mar 2026", "not a DATE"),
    ("d MMMM yyyy", "de-DE", "7 März 2026", DAY),
    ("d MMMM yyyy", "de-DE", "7 MÄRZ 2026", DAY),
    ("d MMMM yyyy", "de-DE", "7 March 2026", "not a DATE"),
    ("d MMM yyyy", "fr-FR", "7 mars 2026", DAY),
    ("LLLL yyyy", "pl-PL", "marzec 2026", dt.date(2026, 3, 1)),
    ("d MMMM yyyy", "pl-PL", "7 marca 2026", DAY),
    ("d MMMM yyyy", "pl-PL", "7 marzec 2026", "not a DATE"),
    ("yyyy年M月d日", "ja-JP", "2026年3月7日", DAY),
    ("dd/MM/yyyy G", "", "07/03/2026 AD", DAY),
    ("dd/MM/yyyy GGGG", "", "07/03/2026 anno domini", DAY),
    ("dd/MM/yyyy G", "", "07/03/0044 BC", "DATE outside the years 1 to 9999"),
    ("dd/MM/yyyy G", "", "07/03/0000 AD", "not a DATE"),
    ("dd/MM/yyyy[ G]", "", "07/03/2026", "not a DATE"),
    ("dd/MM/yyyy G", "de-DE", "07/03/2026 n. Chr.", DAY),
    ("'on' dd.MM.yyyy", "", "ON 07.03.2026", DAY),
    ("dd 'o''clock' MM yyyy", "", "07 o'clock 03 2026", DAY),
    ("dd''MM''yyyy", "", "07'03'2026", DAY),
    ("dd[/MM][/yyyy]", "", "07", dt.date(1970, 1, 7)),
    ("dd[/MM[/yyyy]]", "", "07/03/2026", DAY),
    ("[dd/MM/yyyy][yyyy-MM-dd]", "", "2026-03-07", DAY),
    ("[dd/MM/yyyy][yyyy-MM-dd]", "", "07/03/2026", DAY),
    ("dd/MM/yyyy[ HH:mm", "", "07/03/2026 10:20", DAY),
    ("dd/MM/yyyy HH:mm", "", "07/03/2026 25:20", "not a DATE"),
    ("dd/MM/yyyy MM", "", "07/03/2026 04", "not a DATE"),
    ("dd/MM/yyyy XXX", "", "07/03/2026 +02:00", DAY),
]


@pytest.mark.parametrize(("pattern", "locale", "text", "wanted"), DATES)
def test_dates(pattern: str, locale: str, text: str, wanted: dt.date | str) -> None:
    ways = Ways.of({"dateFormat": pattern} | ({"locale": locale} if locale else {}))
    found, fault = ways.read(text, "date")
    assert (fault or found) == wanted


AT = dt.datetime(2026, 3, 7, 22, 5, 9)
_YEARS = "TIMESTAMP outside the years 1 to 9999"
_UNKNOWN = "its time zone is ambiguous or unknown: write +02:00 or Europe/Paris"
_TWICE = "ambiguous: its time zone has this time twice, as the clock was put back"
_NEVER = "a time that does not exist in its time zone: the clock was put forward"
TIMES: list[tuple[dict[str, str], str, dt.datetime | str]] = [
    # (the option's pattern and others, text, the time in UTC or why it is none)
    ({"": "yyyy-MM-dd HH:mm:ss"}, "2026-03-07 22:05:09", AT),
    ({"": "yyyy-MM-dd HH:mm:ss"}, "2026-03-07T22:05:09", "not a TIMESTAMP"),
    ({"": "yyyy-MM-dd HH:mm:ss"}, "2026-03-07 24:00:00", "not a TIMESTAMP"),
    ({"": "yyyy-MM-dd HH:mm:ss"}, "2026-03-07 22:05:60", "not a TIMESTAMP"),
    ({"": "yyyy-MM-dd HH:mm:ss"}, "2026-03-07 22:05:09Z", "not a TIMESTAMP"),
    ({"": "yyyy-MM-dd HH:mm:ss"}, "0000-03-07 22:05:09", _YEARS),
    ({"": "yyyy-MM-dd'T'HH:mm:ss"}, "2026-03-07t22:05:09", AT),
    ({"": "yyyyMMddHHmmss"}, "20260307220509", AT),
    ({"": "yyyyMMddHHmmssSSS"}, "20260307220509250", AT.replace(microsecond=250000)),
    ({"": "yyyyMMdd Hmmss"}, "20260307 220509", AT),
    ({"": "yyyyMMdd Hm"}, "20260307 225", "not a TIMESTAMP"),
    ({"": "dd/MM/yyyy HH:mm"}, "07/03/2026 22:05", AT.replace(second=0)),
    ({"": "dd/MM/yyyy"}, "07/03/2026", dt.datetime(2026, 3, 7)),
    ({"": "dd/MM/yyyy hh:mm:ss a"}, "07/03/2026 10:05:09 PM", AT),
    ({"": "dd/MM/yyyy hh:mm:ss a"}, "07/03/2026 10:05:09 pm", AT),
    ({"": "dd/MM/yyyy hh:mm:ss a"}, "07/03/2026 12:05:09 AM", AT.replace(hour=0)),
    ({"": "dd/MM/yyyy hh:mm:ss a"}, "07/03/2026 12:05:09 PM", AT.replace(hour=12)),
    ({"": "dd/MM/yyyy hh:mm:ss a"}, "07/03/2026 13:05:09 PM", "not a TIMESTAMP"),
    ({"": "dd/MM/yyyy hh:mm:ss a"}, "07/03/2026 00:05:09 PM", "not a TIMESTAMP"),
    ({"": "dd/MM/yyyy hh:mm:ss"}, "07/03/2026 10:05:09", AT.replace(hour=10)),
    ({"": "dd/MM/yyyy a"}, "07/03/2026 PM", dt.datetime(2026, 3, 7, 12)),
    ({"": "dd/MM/yyyy KK:mm:ss a"}, "07/03/2026 10:05:09 PM", AT),
    ({"": "dd/MM/yyyy KK:mm:ss a"}, "07/03/2026 12:05:09 PM", "not a TIMESTAMP"),
    ({"": "dd/MM/yyyy kk:mm:ss"}, "07/03/2026 24:05:09", AT.replace(hour=0)),
    ({"": "dd/MM/yyyy kk:mm:ss"}, "07/03/2026 00:05:09", "not a TIMESTAMP"),
    ({"": "dd/MM/yyyy HH:mm:ss (hh a)"}, "07/03/2026 22:05:09 (10 PM)", AT),
    ({"": "dd/MM/yyyy HH:mm:ss (hh a)"}, "07/03/2026 22:05:09 (10 AM)", "not a TIMESTAMP"),
    ({"": "dd/MM/yyyy HH:mm:ss (hh a)"}, "07/03/2026 22:05:09 (11 PM)", "not a TIMESTAMP"),
    ({"": "dd/MM/yyyy HH:mm:ss (kk)"}, "07/03/2026 22:05:09 (22)", AT),
    ({"": "dd/MM/yyyy HH:mm:ss (kk)"}, "07/03/2026 22:05:09 (21)", "not a TIMESTAMP"),
    ({"": "dd/MM/yyyy hh:mm:ss (KK)"}, "07/03/2026 10:05:09 (09)", "not a TIMESTAMP"),
    ({"": "yyyy-MM-dd HH:mm:ss a", "locale": "sv-SE"}, "2026-03-07 22:05:09 em", AT),
    ({"": "yyyy-MM-dd HH:mm:ss.S"}, "2026-03-07 22:05:09.5", AT.replace(microsecond=500000)),
    ({"": "yyyy-MM-dd HHmmssS"}, "2026-03-07 2205095", AT.replace(microsecond=500000)),
    ({"": "yyyy-MM-dd HH:mm:ss.S"}, "2026-03-07 22:05:09.50", "not a TIMESTAMP"),
    ({"": "yyyy-MM-dd HH:mm:ss.SSS"}, "2026-03-07 22:05:09.5", AT.replace(microsecond=500000)),
    ({"": "yyyy-MM-dd HH:mm:ss.SSS"}, "2026-03-07 22:05:09.050", AT.replace(microsecond=50000)),
    ({"": "yyyy-MM-dd HH:mm:ss.SSS"}, "2026-03-07 22:05:09.0501", "not a TIMESTAMP"),
    ({"": "yyyy-MM-dd HH:mm:ss.SSS"}, "2026-03-07 22:05:09.", "not a TIMESTAMP"),
    ({"": "yyyy-MM-dd HH:mm:ss[.SSSSSS]"}, "2026-03-07 22:05:09", AT),
    ({"": "yyyy-MM-dd HH:mm:ss[.SSSSSS]"}, "2026-03-07 22:05:09.000001", AT.replace(microsecond=1)),
    ({"": "yyyy-MM-dd HH:mm:ss.SSSSSSSSS"}, "2026-03-07 22:05:09.123456000", AT.replace(microsecond=123456)),
    ({"": "yyyy-MM-dd HH:mm:ss.SSSSSSSSS"}, "2026-03-07 22:05:09.123456999", AT.replace(microsecond=123456)),
    ({"": "yyyy-MM-dd HH:mm:ss.SSSSSSSX"}, "2026-03-07 22:05:09.1234567Z", AT.replace(microsecond=123456)),
    ({"": "yyyy-MM-dd HH:mm:ss.SSSSSSSX"}, "2026-03-07 22:05:09.12345678Z", "not a TIMESTAMP"),
    ({"": "yyyy-MM-dd HH:mm:ssXXX"}, "2026-03-07 22:05:09Z", AT),
    ({"": "yyyy-MM-dd HH:mm:ssXXX"}, "2026-03-07 23:05:09+01:00", AT),
    ({"": "yyyy-MM-dd HH:mm:ssXXX"}, "2026-03-07 23:05:09+0100", "not a TIMESTAMP"),
    ({"": "yyyy-MM-dd HH:mm:ssXXX"}, "2026-03-07 23:05:09", "not a TIMESTAMP"),
    ({"": "yyyy-MM-dd HH:mm:ssXXX"}, "2026-03-07 23:05:09+18:30", "not a TIMESTAMP"),
    ({"": "yyyy-MM-dd HH:mm:ssXXX"}, "2026-03-07 23:05:09+01:60", "not a TIMESTAMP"),
    ({"": "yyyy-MM-dd HH:mm:ssXXX"}, "0001-01-01 00:00:00+01:00", _YEARS),
    ({"": "yyyy-MM-dd HH:mm:ssXXX"}, "9999-12-31 23:59:59-01:00", _YEARS),
    ({"": "yyyy-MM-dd HH:mm:ss[XXX]"}, "2026-03-07 22:05:09", AT),
    ({"": "yyyy-MM-dd HH:mm:ssX"}, "2026-03-07 23:05:09+01", AT),
    ({"": "yyyy-MM-dd HH:mm:ssX"}, "2026-03-07 23:35:09+0130", AT),
    ({"": "yyyy-MM-dd HH:mm:ssX"}, "2026-03-07 23:35:09+01:30", "not a TIMESTAMP"),
    ({"": "yyyy-MM-dd HH:mm:ssXX"}, "2026-03-07 23:05:09+01", "not a TIMESTAMP"),
    ({"": "yyyy-MM-dd HH:mm:ssXXXX"}, "2026-03-07 23:05:39+010030", AT),
    ({"": "yyyy-MM-dd HH:mm:ssXXXXX"}, "2026-03-07 23:05:39+01:00:30", AT),
    ({"": "yyyy-MM-dd HH:mm:ssxx"}, "2026-03-07 21:05:09-0100", AT),
    ({"": "yyyy-MM-dd HH:mm:ssxx"}, "2026-03-07 22:05:09Z", "not a TIMESTAMP"),
    ({"": "yyyy-MM-dd HH:mm:ssZ"}, "2026-03-07 22:05:09+0000", AT),
    ({"": "yyyy-MM-dd HH:mm:ss ZZZZ"}, "2026-03-07 23:05:09 GMT+01:00", AT),
    ({"": "yyyy-MM-dd HH:mm:ss ZZZZ"}, "2026-03-07 22:05:09 GMT", AT),
    ({"": "yyyy-MM-dd HH:mm:ss ZZZZ"}, "2026-03-07 22:05:09 GMT+1", "not a TIMESTAMP"),
    ({"": "yyyy-MM-dd HH:mm:ssZZZZZ"}, "2026-03-07 22:05:09Z", AT),
    ({"": "yyyy-MM-dd HH:mm:ss O"}, "2026-03-07 23:05:09 GMT+1", AT),
    ({"": "yyyy-MM-dd HH:mm:ss O"}, "2026-03-07 23:35:09 GMT+1:30", AT),
    ({"": "yyyy-MM-dd HH:mm:ss OOOO", "locale": "fr-FR"}, "2026-03-07 23:05:09 UTC+01:00", AT),
    ({"": "yyyy-MM-dd HH:mm:ss VV"}, "2026-03-07 23:05:09 Europe/Berlin", AT),
    ({"": "yyyy-MM-dd HH:mm:ss'['VV']'"}, "2026-03-07 23:05:09[Europe/Berlin]", AT),
    ({"": "yyyy-MM-dd HH:mm:ss VV"}, "2026-03-07 23:05:09 +01:00", AT),
    ({"": "yyyy-MM-dd HH:mm:ss VV"}, "2026-03-07 23:05:09 UTC+01:00", AT),
    ({"": "yyyy-MM-dd HH:mm:ss VV"}, "2026-03-07 22:05:09 Z", AT),
    ({"": "yyyy-MM-dd HH:mm:ss VV"}, "2026-03-07 20:05:09 Etc/GMT+2", AT),
    ({"": "yyyy-MM-dd HH:mm:ss VV"}, "2026-03-07 22:05:09 Mars/North", _UNKNOWN),
    ({"": "yyyy-MM-dd HH:mm:ss VV"}, "2026-03-29 02:30:00 Europe/Berlin", _NEVER),
    ({"": "yyyy-MM-dd HH:mm:ss VV"}, "2026-10-25 02:30:00 Europe/Berlin", _TWICE),
    (
        {"": "yyyy-MM-dd HH:mm:ssXXX'['VV']'"},
        "2026-10-25 02:30:00+01:00[Europe/Berlin]",
        dt.datetime(2026, 10, 25, 1, 30),
    ),
    (
        {"": "yyyy-MM-dd HH:mm:ssXXX'['VV']'"},
        "2026-10-25 02:30:00+03:00[Europe/Berlin]",
        "its offset is not that of its time zone",
    ),
    ({"": "yyyy-MM-dd HH:mm:ss z"}, "2026-03-07 22:05:09 UTC", AT),
    ({"": "yyyy-MM-dd HH:mm:ss z"}, "2026-07-01 12:00:00 BST", _UNKNOWN),
    ({"": "yyyy-MM-dd HH:mm:ss z"}, "2026-07-01 12:00:00 PST", _UNKNOWN),
    ({"": "yyyy-MM-dd HH:mm:ss zzzz"}, "2026-07-01 12:00:00 Pacific Standard Time", _UNKNOWN),
    ({"": "yyyy-MM-dd HH:mm:ss v"}, "2026-07-01 12:00:00 PT", _UNKNOWN),
    ({"": "yyyy-MM-dd HH:mm:ss", "timeZone": "Europe/Berlin"}, "2026-03-07 23:05:09", AT),
    ({"": "yyyy-MM-dd HH:mm:ss", "timeZone": "Europe/Berlin"}, "2026-03-29 02:30:00", _NEVER),
    ({"": "yyyy-MM-dd HH:mm:ss", "timeZone": "Europe/Berlin"}, "2026-10-25 02:30:00", _TWICE),
    ({"": "yyyy-MM-dd HH:mm:ss", "timeZone": "-08:00"}, "2026-03-07 14:05:09", AT),
    (
        {"": "yyyy-MM-dd HH:mm:ss[XXX]", "timeZone": "Europe/Berlin"},
        "2026-10-25 02:30:00+01:00",
        dt.datetime(2026, 10, 25, 1, 30),
    ),
    ({"": "yyyy-MM-dd HH:mm:ss", "timeZone": "Europe/Berlin"}, "0001-01-01 00:00:00", _YEARS),
    ({"": "HH:mm"}, "22:05", dt.datetime(1970, 1, 1, 22, 5)),
]


@pytest.mark.parametrize(("options", "text", "wanted"), TIMES)
def test_times(options: dict[str, str], text: str, wanted: dt.datetime | str) -> None:
    ways = Ways.of({key or "timestampFormat": value for key, value in options.items()})
    time, fault = ways.read(text, "timestamp")
    assert (fault or time) == wanted


@pytest.mark.parametrize(
    ("pattern", "text", "wanted"),
    [
        ("dd.MM.yyyy HH:mm", "29.03.2026 02:30", dt.datetime(2026, 3, 29, 2, 30)),  # a clock of no place
        ("dd.MM.yyyy HH:mm[XXX]", "29.03.2026 02:30", dt.datetime(2026, 3, 29, 2, 30)),
        ("dd.MM.yyyy HH:mm[XXX]", "29.03.2026 02:30Z", "not a TIMESTAMP_NTZ"),
        ("dd.MM.yyyy HH:mm VV", "29.03.2026 02:30 Europe/Berlin", "not a TIMESTAMP_NTZ"),
        ("dd.MM.yyyy HH:mm:ss.SSSSSSS", "29.03.2026 02:30:00.0000019", dt.datetime(2026, 3, 29, 2, 30, 0, 1)),
    ],
)
def test_times_without_a_zone(pattern: str, text: str, wanted: dt.datetime | str) -> None:
    ways = Ways.of({"timestampNTZFormat": pattern, "timeZone": "Europe/Berlin"})
    time, fault = ways.read(text, "timestamp_ntz")
    assert (fault or time) == wanted


_LETTERS = {
    "yyyy": "%Y",
    "MM": "%m",
    "dd": "%d",
    "HH": "%H",
    "mm": "%M",
    "ss": "%S",
    "SSSSSS": "%f",
    "DDD": "%j",
    "MMMM": "%B",
    "LLL": "%b",
    "XX": "%z",
}
_TIMES = st.datetimes(dt.datetime(1000, 1, 1), dt.datetime(9999, 12, 30), timezones=st.just(dt.UTC))
_ORDERS = st.permutations(["dd", "HH", "mm", "ss", "SSSSSS", "yyyy"])


@settings(max_examples=examples(300), deadline=None)
@given(
    time=_TIMES,
    order=_ORDERS,
    month=st.sampled_from(["MM", "MMMM", "LLL"]),
    mark=st.sampled_from(["", " ", "/", "'x'"]),
)
def test_what_strftime_writes_is_read(time: dt.datetime, order: list[str], month: str, mark: str) -> None:
    letters = [month, *order, "XX"]
    if not mark:  # numbers that follow one another must have a length of their own
        letters = [month, "dd", "HH", "mm", "ss", "yyyy", "SSSSSS", "XX"]
    if month == "LLL" and time.month == 9:
        time = time.replace(month=8)  # "Sept" in some locales, "Sep" in others
    text = time.strftime(mark.strip("'").join(_LETTERS[letter] for letter in letters))
    found, fault = Ways.of({"timestampFormat": mark.join(letters)}).read(text, "timestamp")
    assert (fault, found) == (None, time.replace(tzinfo=None))


@given(
    text=st.text(st.sampled_from("0123456789-+:./ TZ[]AMPamzé\u0660"), max_size=30),
    pattern=st.sampled_from([one[0] for one in DATES]),
)
def test_no_text_is_an_error(text: str, pattern: str) -> None:
    found, fault = Ways.of({"dateFormat": pattern}).read(text, "date")
    assert (found is None) == (fault is not None)


def test_a_pattern_goes_to_other_processes() -> None:
    pattern = pickle.loads(pickle.dumps(DatePattern("d MMMM yyyy", "de-DE")))
    assert pattern.take_apart("7 März 2026").parts == {"d": 7, "M": 3, "y": 2026}
