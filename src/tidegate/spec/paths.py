"""Checks of the paths in a spec."""

from __future__ import annotations

import re

_URI = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*:/")
_GLOB = "[]{}*?\\"


def is_uri(text: str) -> bool:
    """Whether ``text`` names a storage by scheme (``s3a://...``, ``file:/...``) and not a local path."""
    return _URI.match(text) is not None


def describe_unusable_path(text: str) -> str | None:
    """Why a folder cannot be used, or None. Spark takes every path as a glob, so glob characters are not possible."""
    if not text.strip():
        return "is empty"
    if any(ord(letter) < 32 or ord(letter) == 127 for letter in text):
        return "has a line break or another control character in it"
    found = [letter for letter in _GLOB if letter in text]
    if found:
        return f"has {' '.join(found)} in it, which Spark takes as a pattern"
    if text.startswith("~"):
        return "starts with ~, which is not expanded"
    return None
