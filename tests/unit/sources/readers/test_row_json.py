"""Rows as texts of JSON: each text has the value, also at the ends of a type."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.sweep import examples
from tidegate.sources.readers.columnar import write_values

_LEAST, _MOST = -(2**63), 2**63 - 1
_longs = st.integers(_LEAST, _MOST) | st.sampled_from([_LEAST, _LEAST + 1, -1, 0, _MOST])


def _write(number: int, kind: pa.DataType) -> str:
    width = pa.int32() if kind.bit_width == 32 else pa.int64()
    [text] = write_values(pa.array([number], width).view(kind))
    assert "NaT" not in text
    return str(json.loads(text))


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@settings(max_examples=examples(300), deadline=None)
@given(number=_longs)
def test_times(unit: str, number: int) -> None:
    for kind, end in ((pa.timestamp(unit), ""), (pa.timestamp(unit, "UTC"), "Z")):
        text = _write(number, kind)
        if number == _LEAST:  # which numpy has no text of
            assert text == str(number)
        else:
            assert text.endswith(end) and np.datetime64(text.removesuffix("Z"), unit).astype(int) == number


@settings(max_examples=examples(300), deadline=None)
@given(number=st.integers(-(2**31), 2**31 - 1))
def test_days(number: int) -> None:
    assert np.datetime64(_write(number, pa.date32()), "D").astype(int) == number


@settings(max_examples=examples(300), deadline=None)
@given(number=_longs)
def test_dates_in_milliseconds(number: int) -> None:
    text = _write(number, pa.date64())
    if number == _LEAST:
        assert text == str(number)
    else:
        assert np.datetime64(text, "ms").astype(int) == number
        assert ("T" in text) == (number % 86_400_000 != 0)


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_durations(unit: str) -> None:
    assert [_write(number, pa.duration(unit)) for number in (_LEAST, 0, _MOST)] == [str(_LEAST), "0", str(_MOST)]


@settings(max_examples=examples(300), deadline=None)
@given(number=st.integers(-(10**76) + 1, 10**76 - 1), scale=st.integers(0, 76))
def test_decimals(number: int, scale: int) -> None:
    content = number.to_bytes(32, "little", signed=True)
    [text] = write_values(pa.Array.from_buffers(pa.decimal256(76, scale), 1, [None, pa.py_buffer(content)]))
    whole, _, decimals = text.partition(".")
    assert len(decimals) == scale and int(whole + decimals) == number and "E" not in text


@settings(max_examples=examples(500), deadline=None)
@given(number=st.floats(), single=st.floats(width=32), half=st.floats(width=16))
def test_floating_numbers(number: float, single: float, half: float) -> None:
    for value, kind in ((number, pa.float64()), (single, pa.float32()), (half, pa.float16())):
        [text] = write_values(pa.array([value], kind))
        held = np.dtype(kind.to_pandas_dtype()).type(float(json.loads(text)))
        assert repr(held) == repr(np.dtype(kind.to_pandas_dtype()).type(value))
