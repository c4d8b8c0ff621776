"""Links of the intake: to a file, or to an object of a store.

A link to an object is a symbolic link whose target describes the object and leads nowhere. A user's file never is one,
since only regular files are linked into an intake: so no file can make a reader fetch an object.

A worker on a machine without the intake gets what a link leads to together with the part that it is to read
(:func:`receive`), and finds it by the path that the link has on the driver's machine.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import io
import json
import os
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, TypedDict, cast

from tidegate.core.storage.faults import ObjectChangedError

if TYPE_CHECKING:
    from tidegate.core.storage.user_objects import StoredObject

_MARK = "tidegate-object/"
"""How the target of a link to an object begins: there is no such folder in an intake."""
_BUFFER_BYTES = 64 << 10


class Pointer(NamedTuple):
    """The object that a link leads to, as it was when it was taken."""

    uri: str
    e_tag: str
    """"" for an object that is never replaced."""
    st_size: int
    st_mtime_ns: int

    @classmethod
    def of(cls, uri: str, found: StoredObject) -> Pointer:
        """To the object that was found at ``uri``."""
        return cls(uri, found.e_tag, found.st_size, found.st_mtime_ns)

    def open(self) -> BinaryIO:
        """Open the object."""
        return io.BufferedReader(_ObjectFile(self), _BUFFER_BYTES)

    def link(self, link: Path) -> None:
        """Make ``link`` lead to the object, unless it is there."""
        link.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            os.symlink(f"{_MARK}{json.dumps(self)}", link)

    def replace(self, link: Path) -> None:
        """Make ``link`` lead to the object, whatever it leads to now."""
        part = link.with_name(f".{link.name}.{secrets.token_hex(6)}.tmp")
        self.link(part)
        os.replace(part, link)


class Content(NamedTuple):
    """The bytes of a small file, which came with the part that is to be read."""

    data: bytes

    @property
    def st_size(self) -> int:
        """Their number."""
        return len(self.data)

    def open(self) -> BinaryIO:
        """Open the bytes as a file."""
        return io.BufferedReader(cast(io.RawIOBase, io.BytesIO(self.data)))


_received: dict[str, Pointer | Content] = {}
"""What came with the parts of this worker, by the paths of their links."""


class Sent(TypedDict, total=False):
    """What a link leads to, as it is sent with a part: the fields of a pointer, or bytes in base64."""

    object: Sequence[Any]
    content: str


def receive(path: str, sent: Sent) -> None:
    """Have the link at ``path`` lead to what was ``sent``, in this process."""
    if "object" in sent:
        _received[path] = Pointer(*sent["object"])
    else:
        _received[path] = Content(base64.b64decode(sent["content"]))


def forget_received() -> None:
    """Forget what was received; a worker does so when it begins a task."""
    _received.clear()


def read_pointer(path: str | Path) -> Pointer | None:
    """The object that a link leads to; None for a link to a file, and for what is not there."""
    try:
        target = os.readlink(path)
    except OSError:
        return None
    return Pointer(*json.loads(target.removeprefix(_MARK))) if target.startswith(_MARK) else None


def size_link(path: str | Path) -> int:
    """The bytes of the file or the object behind a link, or of what was received. Raises OSError."""
    return (_received.get(str(path)) or stat_link(path)).st_size


def stat_link(path: str | Path) -> os.stat_result | Pointer:
    """The size and the time of the file or the object behind a link. Raises OSError."""
    try:
        return os.stat(path)
    except FileNotFoundError:
        pointer = read_pointer(path)
        if pointer is None:
            raise
        return pointer


def has_input(path: str | Path) -> bool:
    """Return whether a link leads to a file, or was made for an object."""
    return os.path.exists(path) or read_pointer(path) is not None


def open_link(path: str | Path) -> BinaryIO:
    """Open the file or the object behind a link. Raises OSError, here and for what is read."""
    source = find_source(path)
    return open(source, "rb") if isinstance(source, str) else source


def find_source(path: str | Path) -> str | BinaryIO:
    """What libraries open: the path of a file, or an open object."""
    found = _received.get(str(path)) or read_pointer(path)
    return str(path) if found is None else found.open()


class _ObjectFile(io.RawIOBase):
    """An object, whose errors name it. Raises StoreError as every request does."""

    def __init__(self, pointer: Pointer) -> None:
        # The client of stores, which files do without.
        from tidegate.core.storage.object_path import ObjectPath
        from tidegate.core.storage.range_file import RangeFile

        self._uri = pointer.uri
        self._file = RangeFile(ObjectPath(pointer.uri), pointer.st_size, pointer.e_tag or None)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._file.tell()

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return self._file.seek(offset, whence)

    def readinto(self, buffer: Any) -> int:
        try:
            return self._file.readinto(buffer)
        except FileNotFoundError as error:
            raise FileNotFoundError(errno.ENOENT, f"{self._uri} was removed before it was read") from error
        except ObjectChangedError as error:
            raise ObjectChangedError(errno.EIO, f"{self._uri} was replaced since it was listed") from error
