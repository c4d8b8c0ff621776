"""Converts columns of dates and times: common patterns to the format that Arrow reads, local times to UTC."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.sources.readers import locales
from tidegate.sources.readers.date_patterns import DatePattern
from tidegate.spec.notations import Token

_EPOCH = dt.datetime(1970, 1, 1)
_MICROSECOND = dt.timedelta(microseconds=1)
_END_OF_HOUR = dt.timedelta(hours=1) - _MICROSECOND
_HOURS_AT_MOST = 100_000


class Clocks:
    """The clocks of ``zone``: how far they are from UTC in each hour that was asked for."""

    def __init__(self, zone: dt.tzinfo) -> None:
        self._zone = zone
        self._offsets: dict[int, int | None] = {}

    def to_utc(self, times: pa.Array) -> pa.Array:
        """``times`` (without a zone, in microseconds) in UTC; null where a clock was changed within that hour."""
        hours = pc.floor_temporal(times, unit="hour").cast(pa.int64()).dictionary_encode()
        offsets = pa.array(list(map(self._find_offset, hours.dictionary.to_pylist())), pa.int64())
        return pc.subtract(times.cast(pa.int64()), offsets.take(hours.indices)).cast(pa.timestamp("us", tz="UTC"))

    def _find_offset(self, hour: int) -> int | None:
        """How far the clocks are from UTC all ``hour`` long, in microseconds; None where they are changed, and at the
        ends of the calendar."""
        if hour in self._offsets:
            return self._offsets[hour]
        begin = _EPOCH + dt.timedelta(microseconds=hour)
        offset = None
        if dt.date.min < begin.date() < dt.date.max:
            ends = (begin.replace(tzinfo=self._zone), (begin + _END_OF_HOUR).replace(tzinfo=self._zone))
            found = {end.replace(fold=fold).utcoffset() for end in ends for fold in (0, 1)}
            if len(found) == 1 and (distance := found.pop()) is not None:
                offset = distance // _MICROSECOND
        if len(self._offsets) < _HOURS_AT_MOST:
            self._offsets[hour] = offset
        return offset


_FORMS = {
    "yyyy": "[12][0-9]{3}",
    **dict.fromkeys(("MM", "LL", "dd", "HH", "mm", "ss"), "[0-9]{2}"),
    **dict.fromkeys("MLdHms", "[0-9]{1,2}"),
    "hh": "0[1-9]|1[0-2]",
    "h": "0?[1-9]|1[0-2]",
    **{"S" * count: f"[0-9]{{1,{min(count, 6)}}}" for count in range(1, 10)},
    "XXX": "Z|[+-](?:0[0-9]|1[0-7]):[0-5][0-9]",
}
"""Unambiguous forms of each token, as regular expressions of Arrow."""


class Arrangement:
    """A pattern of numbers, with a mark of the half of the day, an offset, and parts of the end that may be missing."""

    def __init__(self, form: str, letters: Sequence[str], after_noon: str) -> None:
        self._form, self._letters, self._after_noon = form, letters, after_noon

    @classmethod
    def of(cls, pattern: DatePattern, kind: str) -> Arrangement | None:
        """Return the arrangement for texts of the type ``kind``; None when the pattern needs more than this class."""
        form, letters, marks = "", list[str](), {0: "", 1: ""}
        depth = 0
        for token, after in zip(pattern.tokens, [*pattern.tokens[1:], None], strict=True):
            if token.kind == "text":
                form += re.escape(token.text)
            elif token.kind == "begin":
                depth += 1
                form += "(?:"
            elif token.kind == "end":
                depth -= 1
                form += ")?"
                if after is not None and after.kind != "begin":
                    return None  # only the end may be missing: what comes next might be taken for it
            else:
                letter = {"L": "M"}.get(token.text[0], token.text[0])
                if letter == "a":
                    marks = {half: mark.lower() for mark, half in locales.list_halves(pattern.locale).items()}
                    found = "(?i:" + "|".join(map(re.escape, marks.values())) + ")"
                else:
                    found = _FORMS.get(token.text, "")
                if not found or letter in letters or depth > (letter in "SX") or _runs_on(token, after):
                    return None
                letters.append(letter)
                form += f"(?P<{letter}>{found})"
                if letter == "S" and len(token.text) > 6:
                    form += f"[0-9]{{0,{len(token.text) - 6}}}"  # finer than a microsecond: dropped
        is_known = {"y", "M", "d"} <= {*letters} and ("h" in letters) == ("a" in letters)
        if not is_known or {"h", "H"} <= {*letters} or not "".join(marks.values()).isascii():
            return None
        if (kind == "date" and len(letters) > 3) or (kind != "timestamp" and "X" in letters):
            return None
        return cls(f"^{form}$", letters, marks[1])

    def to_iso(self, texts: pa.Array) -> pa.Array:
        """Convert ``texts`` to year-month-day hour:minute:second, without a time if they have none; null when a text is
        ambiguous."""
        found = pc.extract_regex(texts, pattern=self._form)

        def take(letter: str) -> pa.Array | str:
            if letter not in self._letters:
                return "00"
            return pc.utf8_lpad(pc.struct_field(found, letter), 2, "0")

        day = (take("y"), "-", take("M"), "-", take("d"))
        if len(self._letters) == 3 and not {*self._letters} & set("HhmsSX"):
            return pc.binary_join_element_wise(*day, "")
        hour = take("H") if "h" not in self._letters else self._find_hour(found)
        pieces = [*day, " ", hour, ":", take("m"), ":", take("s")]
        if "S" in self._letters:
            fraction = pc.struct_field(found, "S")
            pieces += [pc.if_else(pc.equal(fraction, ""), "", "."), fraction]
        if "X" in self._letters:
            pieces.append(pc.struct_field(found, "X"))
        return pc.binary_join_element_wise(*pieces, "")

    def _find_hour(self, found: pa.Array) -> pa.Array:
        clock = pc.struct_field(found, "h").cast(pa.int8())
        is_after = pc.equal(pc.utf8_lower(pc.struct_field(found, "a")), self._after_noon)
        hour = pc.add(pc.if_else(pc.equal(clock, 12), 0, clock), pc.if_else(is_after, 12, 0))
        return pc.utf8_lpad(hour.cast(pa.string()), 2, "0")


def _runs_on(token: Token, after: Token | None) -> bool:
    """Return whether a number of any length may be followed by a digit: only the exact parser can divide these."""
    letter, count = token.text[0], len(token.text)
    has_any_length = count > 1 if letter == "S" else count == 1 and letter != "a"
    if not has_any_length or after is None:
        return False
    if after.kind == "text":
        return after.text[:1].isdigit()
    return letter != "S" or (after.kind == "letters" and after.text[0] not in "Xa")
