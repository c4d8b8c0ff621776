"""Encodings of json and text files: those that Java and Python read alike, and that give every text back as it came."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the readers on executors need no models, and nothing that reads YAML
    from tidegate.spec.models import FilesSource, KafkaSource

ENCODINGS = (
    *("UTF-8", "UTF-16", "UTF-16LE", "UTF-16BE", "UTF-32", "UTF-32LE", "UTF-32BE", "US-ASCII"),
    *("ISO-8859-1", "ISO-8859-2", "ISO-8859-4", "ISO-8859-5", "ISO-8859-7", "ISO-8859-9", "ISO-8859-13", "ISO-8859-15"),
    *("windows-1250", "windows-1251", "windows-1252", "windows-1253", "windows-1254", "windows-1257", "KOI8-R"),
)
_BY_LOWER_NAME = {name.lower(): name for name in ENCODINGS}
_DECODED_FORMATS = ("json", "csv", "text", "xml")


def find_encoding(name: str) -> str | None:
    """The name in :data:`ENCODINGS` for how somebody writes it; None for another encoding."""
    return _BY_LOWER_NAME.get(name.lower().replace("_", "-"))


def is_decoded(source: FilesSource | KafkaSource) -> bool:
    """Return whether the files of ``source`` are texts, which may be in other encodings than UTF-8."""
    return source.takes_files and source.format in _DECODED_FORMATS


def encoding_of(source: FilesSource | KafkaSource) -> str:
    """The encoding of the files of ``source``, one of :data:`ENCODINGS`."""
    encoding = source.options.get("encoding") if is_decoded(source) else None
    return "UTF-8" if encoding is None else find_encoding(str(encoding)) or "UTF-8"


def is_wide(encoding: str) -> bool:
    """Return whether each character of an encoding takes two bytes or four."""
    return encoding.lower().replace("-", "").replace("_", "").startswith(("utf16", "utf32"))


def wide_codec(encoding: str, head: bytes) -> tuple[str, int]:
    """(the codec with its order of bytes, the length of the byte order mark) of a text that begins with ``head``;
    without a mark UTF-16 and UTF-32 are big-endian, as to Java."""
    name = encoding.upper().replace("_", "-")
    size = unit_bytes(name)
    ordered = name if name.endswith(("LE", "BE")) else None
    for order in ("LE", "BE"):
        codec = f"UTF-{8 * size}{order}"
        if ordered in (None, codec) and head.startswith("\ufeff".encode(codec)):
            return codec, size
    return ordered or f"UTF-{8 * size}BE", 0


def unit_bytes(encoding: str) -> int:
    """The bytes of the smallest unit of a wide encoding."""
    return 4 if "32" in encoding else 2
