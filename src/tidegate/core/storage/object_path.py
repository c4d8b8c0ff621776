"""Paths of object stores."""

from __future__ import annotations

import os
from pathlib import Path, PosixPath
from typing import NoReturn

SCHEMES = ("s3", "gs", "az")
"""Amazon S3 and what speaks its protocol, Google Cloud Storage, Azure Blob Storage."""

_BEGINS = tuple(f"{scheme}://" for scheme in SCHEMES)


class ObjectPath(PosixPath):
    """The path of an object or a prefix, such as ``s3://bucket/prefix/key``.

    It joins, splits and compares as any path does. No call of the operating system accepts it: ``os.fspath`` raises
    TypeError, so code that goes past the storage port fails at once and cannot write to a folder named ``s3:``.
    """

    @property
    def scheme(self) -> str:
        """``s3``, ``gs`` or ``az``."""
        return self.parts[0].removesuffix(":")

    @property
    def bucket(self) -> str:
        """The name of the bucket; on Azure of the container. Empty in the path above a bucket."""
        return self.parts[1] if len(self.parts) > 1 else ""

    @property
    def key(self) -> str:
        """The key of the object, or the prefix without a slash at its end; empty for the bucket itself."""
        return "/".join(self.parts[2:])

    @property
    def is_plain(self) -> bool:
        """Return whether no part is ``..``; a store would take it for a name."""
        return ".." not in self.parts

    def __str__(self) -> str:
        return f"{self.parts[0]}//{'/'.join(self.parts[1:])}" if self.parts else "."

    def __repr__(self) -> str:
        return f"ObjectPath({str(self)!r})"

    def __fspath__(self) -> NoReturn:
        raise TypeError(f"{self} is on an object store, and no path of a file system")

    def __rtruediv__(self, folder: str | os.PathLike[str]) -> ObjectPath:
        """``folder / path`` is ``path``, as for any absolute path."""
        return self

    def is_absolute(self) -> bool:
        """True: an object is named from its bucket on."""
        return True

    def absolute(self) -> ObjectPath:
        """The path itself."""
        return self

    def expanduser(self) -> ObjectPath:
        """The path itself: ``~`` is a character of a key."""
        return self

    def relative_to(self, *other: str | os.PathLike[str]) -> Path:  # type: ignore[override]
        """The rest of the path below ``other``, as a relative path. Raises ValueError where it is not below."""
        above = ObjectPath(*other).parts
        if self.parts[: len(above)] != above:
            raise ValueError(f"{self} is not below {ObjectPath(*other)}")
        return Path(*self.parts[len(above) :])

    def is_relative_to(self, *other: str | os.PathLike[str]) -> bool:
        """Return whether the path is ``other`` or below it."""
        above = ObjectPath(*other).parts
        return self.parts[: len(above)] == above


def parse_path(text: str | os.PathLike[str]) -> Path:
    """The path that a text names: of an object store where it begins with one of :data:`SCHEMES`, else of a file."""
    if isinstance(text, Path):
        return text
    name = os.fspath(text)
    return ObjectPath(name) if name.partition("://")[0] in SCHEMES and "://" in name else Path(name)


def names_object(text: str) -> bool:
    """Return whether a text is the URI of an object, such as ``s3://bucket/key``."""
    return text.startswith(_BEGINS) and "/" in text.partition("://")[2]


def normalise(path: Path) -> Path:
    """The path without ``.`` and ``..``; on an object store these are names, and nothing is to be done."""
    return path if isinstance(path, ObjectPath) else Path(os.path.normpath(path))


def is_object(path: object) -> bool:
    """Return whether a path is one of an object store."""
    return isinstance(path, ObjectPath)
