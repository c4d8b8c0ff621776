"""Files in every encoding of the specification: each character, each byte that is none, and what the bytes were."""

from __future__ import annotations

import base64
import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.sweep import examples
from tidegate.sources.readers import opening
from tidegate.sources.readers.opening import decode_file, encode_original, is_utf8
from tidegate.spec.encodings import ENCODINGS, is_wide

OTHERS = [encoding for encoding in ENCODINGS if encoding != "UTF-8"]


def _decode(data: bytes, encoding: str) -> bytes:
    return decode_file(io.BytesIO(data), encoding)[0].read()


def _characters(encoding: str) -> str:
    """Characters that the encoding has."""
    if is_wide(encoding):
        return "aé\u0a0d\u010a\u0a00\u4e00\U0001f600\ufeff\n\r"
    pairs = ((byte, bytes([byte]).decode(encoding, "ignore")) for byte in range(256))
    return "".join(text for byte, text in pairs if text and text.encode(encoding) == bytes([byte]))


@pytest.mark.parametrize("encoding", OTHERS)
def test_every_character_of_an_encoding(encoding: str) -> None:
    text = "." + _characters(encoding)
    assert len(text) > 10
    assert _decode(text.encode(encoding), encoding).decode() == text
    # Python's own writer of UTF-16 and UTF-32 puts a mark there; without one they are big-endian.
    if encoding in ("UTF-16", "UTF-32"):
        assert _decode(text.encode(encoding + "-BE"), encoding).decode() == text
        assert _decode(("\ufeff" + text).encode(encoding + "-BE"), encoding).decode() == text


@settings(max_examples=examples(300), deadline=None)
@given(encoding=st.sampled_from(OTHERS), data=st.binary(max_size=40), size=st.integers(1, 9))
def test_all_bytes_are_known_whatever_they_are(encoding: str, data: bytes, size: int) -> None:
    """The text is UTF-8 exactly where the bytes can be read; either way they come back."""
    if is_wide(encoding):
        data = b"\x00" * 4 + data  # no byte order mark, which is no part of a text
        if encoding in ("UTF-16", "UTF-32"):
            encoding += "BE"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(opening, "_DECODED_BYTES", size)
        text = _decode(data, encoding)
    try:
        wanted = data.decode(encoding)
    except UnicodeDecodeError:
        assert not is_utf8(text)
    else:
        assert text.decode() == wanted
    assert base64.b64decode(encode_original(text, encoding)) == data


@pytest.mark.parametrize("codec", ["UTF-16LE", "UTF-16BE", "UTF-32LE", "UTF-32BE"])
def test_the_bytes_of_a_record_are_kept_in_the_order_that_its_file_has(codec: str) -> None:
    half = b"\x00\xd8\x00\x00"[: 4 if "32" in codec else 2] if codec.endswith("LE") else b"\xd8\x00"
    record = "ä".encode(codec) + half + "1".encode(codec)
    encoding = codec[:6]
    file, codec_of_file = decode_file(io.BytesIO("\ufeff".encode(codec) + record), encoding)
    assert base64.b64decode(encode_original(file.read(), codec_of_file)) == record
