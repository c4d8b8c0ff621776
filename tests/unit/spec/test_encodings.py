"""The encodings that files may be in."""

from __future__ import annotations

from tidegate.spec.encodings import ENCODINGS, find_encoding


def test_python_knows_each_encoding() -> None:
    for name in ENCODINGS:
        assert "a\n".encode(name).decode(name) == "a\n" and find_encoding(name.lower().replace("-", "_")) == name
    assert find_encoding("EBCDIC") is None
