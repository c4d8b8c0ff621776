"""An object as an open file, of which only the ranges that are read are fetched."""

from __future__ import annotations

import errno
import io
import os
from typing import TYPE_CHECKING, Any

from obstore.exceptions import GenericError, PreconditionError

from tidegate.core.storage.faults import ObjectChangedError
from tidegate.core.storage.stores import call

if TYPE_CHECKING:
    from obstore.store import ObjectStore

    from tidegate.core.storage.object_path import ObjectPath

_FIRST_BYTES, _MOST_BYTES = 1 << 20, 8 << 20
"""How much is fetched at once: more each time while the reader reads sequentially."""
_TAIL_BYTES = 64 << 10
"""A read near the end fetches so much before it too: the footer of a parquet file is read from its end."""


class RangeFile(io.RawIOBase):
    """A seekable file of the bytes of an object, all of one version of it.

    Args:
        path: The object.
        size: Its size in bytes; None asks the store.
        e_tag: The version that is to be read; None: whichever is there when the size is asked for.

    Raises:
        FileNotFoundError: There is no object.
    """

    def __init__(self, path: ObjectPath, size: int | None = None, e_tag: str | None = None) -> None:
        super().__init__()
        self.path = path
        if size is None:
            meta = call(path, lambda store: store.head(path.key))
            size, e_tag = meta["size"], e_tag or meta["e_tag"]
        self.size, self._e_tag = size, e_tag
        self._at = 0
        self._start, self._block = 0, b""

    def readable(self) -> bool:
        """True."""
        return True

    def seekable(self) -> bool:
        """True."""
        return True

    def tell(self) -> int:
        """The position of the next read."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Set the position of the next read. Raises OSError (EINVAL) for one before the first byte."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self.size}[whence]
        if base + offset < 0:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        self._at = base + offset
        return self._at

    def readinto(self, buffer: Any) -> int:
        """Read at the position. Raises ObjectChangedError, and StoreError as every request does."""
        data = self._read_at(self._at, len(buffer))
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)

    def read(self, size: int | None = -1) -> bytes:
        """The next ``size`` bytes, fewer only at the end."""
        wanted = self.size - self._at if size is None or size < 0 else size
        data = self._read_at(self._at, wanted)
        self._at += len(data)
        return data

    def readall(self) -> bytes:
        """All bytes from the position on."""
        return self.read()

    def _read_at(self, start: int, wanted: int) -> bytes:
        end = min(start + wanted, self.size)
        if start >= end:
            return b""
        block_end = self._start + len(self._block)
        is_next = self._start <= start <= block_end
        data = self._block[start - self._start : end - self._start] if is_next else b""
        if len(data) < end - start:
            first = start + len(data)
            size = min(2 * len(self._block), _MOST_BYTES) if is_next else 0
            last = min(max(end, first + max(size, _FIRST_BYTES)), self.size)
            if not is_next and start >= self.size - _TAIL_BYTES:
                first = max(self.size - _TAIL_BYTES, 0)
            self._block, self._start = self._fetch(first, last), first
            data += self._block[max(start - first, 0) : end - first]
        return data

    def _fetch(self, start: int, end: int) -> bytes:
        options: Any = {"range": (start, end)}
        if self._e_tag is not None:
            options["if_match"] = self._e_tag

        def ask(store: ObjectStore) -> bytes:
            data = bytes(store.get(self.path.key, options=options).bytes())
            if len(data) != end - start:
                raise GenericError("the body ended early")
            return data

        try:
            return call(self.path, ask)
        except PreconditionError as error:
            raise ObjectChangedError(5, "the object was replaced while it was read", str(self.path)) from error
