"""A folder of this machine that is the working copy of a state on an object store.

Spark, SQLite and hard links need a folder. So a pipeline whose state is on a store has a working copy on each machine,
and the store has a journal of what the copies became: ``journal/<number>.event`` holds the files that changed since the
number before, whole or, of a database, its changed blocks; ``<number>.snapshot`` all files up to there, so that earlier
numbers can go. Large files are objects of their own, ``blobs/<name>``, which an event refers to.

Only the holder of the pipeline's lease writes. It brings its copy up to date, and appends an event before each step
that somebody else could see (:meth:`Mirror.check`): what the store has is then a state that a process killed at that
step would have left, and that the next run continues on any machine. An event is created by put-if-absent and read back
from a listing, so the journal is a fence too: who takes over from a silent holder appends an event first, and the
number of the former holder's next one is taken, or below a snapshot.

What was removed is recorded with the next event only: it may be there again after a power loss too. A copy
whose process died before its last event is not continued: what it has beyond the journal counts as lost, as if the
machine had been. Others read a copy that is brought up to date, at most each second.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import fcntl
import functools
import hashlib
import json
import os
import secrets
import stat
import threading
import time
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from tidegate.core.errors import on_failure
from tidegate.core.storage import files, object_lists, object_probe, objects
from tidegate.core.storage.object_lists import Entry
from tidegate.core.storage.object_path import ObjectPath, parse_path

_LARGE_BYTES = 1 << 20
"""A file of more bytes is an object of its own."""
_EVENT_BYTES = 16 << 20
"""So is a smaller one in an event that has this many bytes already."""
_INPUT_BYTES = 64 << 10
"""Links to larger inputs are made again on another machine, unless state may have to be computed from them."""
_BLOCK_BYTES = 4096
_DIGEST_BYTES = 8
_AT_ONCE = 8
_EVENTS_AT_MOST = 64
_BYTES_AT_MOST = 8 << 20
"""What the events since a snapshot may hold before the next one."""
_FRESH_SECONDS = 1.0
"""How long what was seen in the journal counts: nobody takes over so soon after a heartbeat."""
_HOLDER_SECONDS = 3.0
"""How long a holder waits for a reader that brings the copy up to date."""
_KEPT_SECONDS = 60.0
"""How long an event stays behind its snapshot."""
_LEFT_BLOB_SECONDS = 86400.0
_OWN_ROOT = b"tidegate-state:"
"""Replaces the folder of the copy in what the store holds."""

_Stamp = tuple[int, int, int, int]
"""What the metadata of a file says: another one after each change of it."""


class OvertakenError(Exception):
    """Another process has taken over: the journal has a number that is not this process's."""


@dataclass
class _Book:
    """What a copy has: ``number`` and ``tag`` are those of the last event in it; ``token`` its holder, "" between
    runs; ``events`` since the last snapshot have ``bytes``; ``files`` {path: the stamp, and the name of the object of a
    large one}; ``blocks`` the digests of databases.
    """

    number: int = 0
    tag: str = ""
    token: str = ""
    boot_id: str = ""
    events: int = 0
    bytes: int = 0
    files: dict[str, tuple[_Stamp, str]] = field(default_factory=dict)
    blocks: dict[str, str] = field(default_factory=dict)

    @property
    def blobs(self) -> set[str]:
        """The objects of large files."""
        return {blob for _, blob in self.files.values() if blob}


class _Item(NamedTuple):
    """A file as the journal has it: its bytes, or the name of its object."""

    size: int
    modified_ns: int
    body: bytes
    blob: str


class Mirror:
    """The working copy ``local`` of the state below the prefix ``remote``. May be used by several threads."""

    def __init__(self, local: Path, remote: ObjectPath) -> None:
        self.local, self.remote = local, remote
        self._journal = remote / "journal"
        self._blobs = remote / "blobs"
        self._place = local.parent
        self._root = quote(str(local)).encode()
        self._lock = threading.RLock()
        self._holder: int | None = None
        self._sync = -1
        self._fresh_at: float | None = None
        self._book: tuple[_Stamp | None, _Book] | None = None
        self._shared: dict[str, tuple[_Stamp, str]] = {}

    # What a holder calls

    def trust(self) -> None:
        """Skip the check of conditions where an earlier process of this machine has made it."""
        if self._load().number:
            object_probe.trust_conditions(self.remote)

    def hold(self, token: str, is_current: Callable[[], bool], *, since: float, fences: bool) -> None:
        """Bring the copy up to date for the new holder ``token``.

        ``is_current`` says whether this process still has the lease. It is called only if that was last confirmed more
        than a second ago: ``since``, by the clock that runs since boot. ``fences``: the former holder may still be
        running. Raises OvertakenError, StoreError.
        """
        with self._lock:
            self.local.mkdir(parents=True, exist_ok=True)
            self._become_holder()
            with on_failure(self._leave), self._syncing() as book:
                is_open = False
                while not is_open:
                    self._pull(book)
                    if _now() - since > _FRESH_SECONDS and not is_current():
                        raise OvertakenError("another run has taken over")
                    is_open = not fences or self._opens(book, token)
                self._compact(book)
                book.token = token

    def check(self, token: str) -> None:
        """Append what is new, if anything is. Raises OvertakenError unless the copy, and the journal, are those of
        ``token``; StoreError when the store cannot be asked."""
        with self._lock, self._syncing(token) as book:
            if not self._push(book, with_removals=False) and not self._is_fresh():
                self._verify(book, self._list())

    def is_of(self, token: str) -> bool:
        """Whether no other process of this machine has become the holder of the copy. Asks nothing of the store."""
        with self._lock:
            return self._load().token == token

    def let_go(self, token: str) -> None:
        """Append all that is new, for the next holder. Raises as :meth:`check`; nothing of the copy is used then."""
        with self._lock:
            try:
                with self._syncing(token) as book:
                    self._push(book, with_removals=True)
                    book.token = ""
            finally:
                self._leave()

    # What others call

    def refresh(self) -> None:
        """Bring the copy up to date for a reader; nothing where a process of this machine holds it, or has just done
        so. Raises StoreError."""
        with self._lock:
            if self._holder is not None or self._is_fresh():
                return
            self._place.mkdir(parents=True, exist_ok=True)
            handle = self._open_lock("holder.lock")
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                with self._syncing() as book:
                    self._pull(book)
            except (BlockingIOError, OvertakenError):
                return
            finally:
                os.close(handle)

    def portable(self, path: Path, data: bytes) -> bytes:
        """The bytes of a file of the copy as the store has them: they do not name the folder of the copy."""
        return data.replace(self._root, _OWN_ROOT) if _names_files(path) else data

    def find_object(self, path: Path) -> ObjectPath | None:
        """The object with the bytes of a file of the copy; None where there is none."""
        name, stamp = path.relative_to(self.local).as_posix(), _stamp_of(path)
        if stamp is None:
            return None
        with self._lock:
            known, blob = self._load().files.get(name, (None, ""))
        if known != stamp or not blob:
            blob = self._find_shared(name, stamp)
        return self._blobs / blob if blob else None

    # What a driver calls whose executors do not see the copy

    @property
    def blobs(self) -> ObjectPath:
        """Where executors write objects of large files, each under a new name. One that no event refers to is removed
        after a day."""
        return self._blobs

    def share(self, path: Path) -> ObjectPath:
        """The object with the bytes of a file of the copy; it is written unless there is one. Raises StoreError,
        FileNotFoundError."""
        if (found := self.find_object(path)) is not None:
            return found
        stamp = _stamp_of(path)
        if stamp is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        blob = self._upload(path)
        self._shared[path.relative_to(self.local).as_posix()] = stamp, blob
        return self._blobs / blob

    def fetch(self, blob: str, path: Path) -> None:
        """Write the object ``blob`` of :attr:`blobs` to a new file of the copy. Raises StoreError."""
        path.parent.mkdir(parents=True, exist_ok=True)
        aside = path.with_name(f".{path.name}.tmp")  # no event has a file that is half written
        objects.download(self._blobs / blob, aside)
        os.replace(aside, path)
        if (stamp := _stamp_of(path)) is not None:
            self._shared[path.relative_to(self.local).as_posix()] = stamp, blob

    def _find_shared(self, name: str, stamp: _Stamp) -> str:
        """The object of a file that an event does not refer to yet; "" where there is none."""
        known, blob = self._shared.get(name, (None, ""))
        return blob if known == stamp else ""

    # Who works with the copy

    def _become_holder(self) -> None:
        """Lock the copy against readers that would bring it up to date."""
        if self._holder is None:
            self._holder = self._take_lock("holder.lock")

    def _take_lock(self, name: str, token: str | None = None) -> int:
        """Lock the copy, for a holder ``token`` as long as it is that. A new holder (None) waits for some seconds, then
        replaces the lock file; the process that had it finds that out before it writes."""
        self._place.mkdir(parents=True, exist_ok=True)
        deadline = time.monotonic() + _HOLDER_SECONDS
        while True:
            handle = self._open_lock(name)
            with on_failure(functools.partial(os.close, handle)):
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    if self._is_locked(name, handle):
                        return handle
                except BlockingIOError:
                    if token is not None:
                        self._demand(self._load(), token)
                    elif time.monotonic() > deadline:
                        (self._place / name).unlink(missing_ok=True)
                    time.sleep(0.02)
            os.close(handle)

    def _is_locked(self, name: str, handle: int) -> bool:
        """Whether the lock is still this process's."""
        try:
            return os.path.samestat(os.fstat(handle), os.stat(self._place / name))
        except FileNotFoundError:
            return False

    def _leave(self) -> None:
        if self._holder is not None:
            os.close(self._holder)
            self._holder = None

    def _open_lock(self, name: str) -> int:
        return os.open(self._place / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    @contextlib.contextmanager
    def _syncing(self, token: str | None = None) -> Iterator[_Book]:
        """The book of the copy, which this process alone changes within; it is written at the end. Raises
        OvertakenError unless it is that of the holder ``token``, and for a process that was suspended within."""
        self._sync = self._take_lock("sync.lock", token)
        try:
            book = self._load()
            if token is not None:
                self._demand(book, token)
            before = _dump(book)
            yield book
            book.boot_id = _boot_id()
            if _dump(book) != before:
                self._demand_lock()
                self._save(book)
        finally:
            os.close(self._sync)

    def _demand_lock(self) -> None:
        if not self._is_locked("sync.lock", self._sync):
            raise OvertakenError("another process of this machine")

    def _demand(self, book: _Book, token: str) -> None:
        if book.token != token:
            raise OvertakenError("another process of this machine")

    # The book

    @property
    def _book_path(self) -> Path:
        return self._place / "copy.json"

    def _load(self) -> _Book:
        stamp = _stamp_of(self._book_path)
        if self._book is None or self._book[0] != stamp:
            try:
                value = json.loads(self._book_path.read_bytes())
                value["files"] = {path: (tuple(one), blob) for path, (one, blob) in value["files"].items()}
                self._book = stamp, _Book(**value)
            except (FileNotFoundError, ValueError, TypeError, KeyError):
                self._book = stamp, _Book()
        found = self._book[1]
        return replace(found, files=dict(found.files), blocks=dict(found.blocks))

    def _save(self, book: _Book) -> None:
        aside = self._book_path.with_name(f".copy.{secrets.token_hex(4)}.tmp")
        aside.write_text(_dump(book))
        os.replace(aside, self._book_path)
        self._book = None

    # The journal

    def _list(self) -> dict[str, Entry]:
        found = {entry.name: entry for entry in object_lists.list_entries(self._journal)}
        self._fresh_at = _now()
        return found

    def _is_fresh(self) -> bool:
        return self._fresh_at is not None and 0 <= _now() - self._fresh_at < _FRESH_SECONDS

    def _opens(self, book: _Book, token: str) -> bool:
        """Take the next number from a former holder; False when it was faster."""
        try:
            self._append(book, _pack({"opened_by": token}, []))
        except OvertakenError:
            return False
        return True

    def _verify(self, book: _Book, listed: Mapping[str, Entry]) -> None:
        """Raise OvertakenError unless the last event is that of the book."""
        if max(map(_number_of, listed), default=0) != book.number or _tag_of(listed, book.number) != book.tag:
            self._fresh_at = None
            raise OvertakenError("another run has written the state since")

    def _append(self, book: _Book, event: bytes) -> None:
        number = book.number + 1
        tag = objects.put_tagged(self._journal / _event(number), event)
        if tag is None:
            raise OvertakenError("another run has written the state since")
        book.number, book.tag = number, tag
        book.events, book.bytes = book.events + 1, book.bytes + len(event)
        # A number below a snapshot is free again: then it was not the next one. Asked behind the request, in which this
        # process may have been suspended.
        if self._is_fresh():
            self._fresh_at = _now()
        else:
            self._verify(book, self._list())

    # Writing

    def _push(self, book: _Book, *, with_removals: bool) -> bool:
        """Append what changed since the last event; False when nothing did."""
        found = dict(self._scan())
        changed = [path for path, stamp in found.items() if book.files.get(path, (None, ""))[0] != stamp]
        gone = [path for path in book.files if path not in found]
        if not changed and not (gone and with_removals):
            return False
        noted, blocks = dict(book.files), dict(book.blocks)
        heads, bodies = self._read(changed, found, noted, blocks)
        for path in gone:
            del noted[path]
            blocks.pop(path, None)
        before = book.blobs
        self._append(book, _pack({"by": book.token, "removed": gone, "files": heads}, bodies))
        book.files, book.blocks = noted, blocks
        self._remove_blobs(before - book.blobs)
        return True

    def _read(
        self,
        paths: Iterable[str],
        found: Mapping[str, _Stamp],
        noted: dict[str, tuple[_Stamp, str]],
        blocks: dict[str, str] | None,
    ) -> tuple[list[dict[str, Any]], list[bytes]]:
        """The heads and bodies of files for an event, or without ``blocks`` for a snapshot; what is noted of them."""
        heads: list[dict[str, Any]] = []
        bodies: list[bytes] = []
        total = 0
        for path in paths:
            stamp, file = found[path], self.local / path
            head: dict[str, Any] = {"path": path, "modified_ns": stamp[1]}
            is_database = path.endswith(".sqlite")
            try:
                if not is_database and (stamp[0] > _LARGE_BYTES or total > _EVENT_BYTES):
                    before, blob = noted.get(path, (None, ""))
                    if before != stamp or not blob:
                        blob = self._find_shared(path, stamp) or self._upload(file)
                    heads.append({**head, "size": stamp[0], "blob": blob})
                    noted[path] = stamp, blob
                    continue
                data = self.portable(file, file.read_bytes())
            except FileNotFoundError:
                continue  # Spark removes what is old meanwhile
            head["size"] = len(data)
            if is_database:
                digests = _digest_blocks(data)
                known = base64.b64decode(blocks.get(path, "")) if blocks is not None else b""
                if blocks is not None:
                    blocks[path] = base64.b64encode(digests).decode()
                if known:
                    head["blocks"] = _differing(known, digests)
                    data = b"".join(data[at * _BLOCK_BYTES : (at + 1) * _BLOCK_BYTES] for at in head["blocks"])
            heads.append({**head, "length": len(data)})
            bodies.append(data)
            noted[path] = stamp, ""
            total += len(data)
        return heads, bodies

    def _upload(self, file: Path) -> str:
        blob = secrets.token_hex(12)
        objects.upload(file, self._blobs / blob)
        return blob

    def _remove_blobs(self, blobs: Collection[str]) -> None:
        if blobs:
            with contextlib.suppress(OSError):
                files.remove_names(self._blobs, blobs)

    def _scan(self) -> Iterator[tuple[str, _Stamp]]:
        """The files of the copy that the store is to have."""
        keeps_inputs = (self.local / "open_state").is_dir()
        waiting = [""]
        while waiting:
            inside = waiting.pop()
            try:
                entries = list(os.scandir(self.local / inside))
            except (FileNotFoundError, NotADirectoryError):
                continue
            for entry in entries:
                path = f"{inside}/{entry.name}" if inside else entry.name
                if entry.is_symlink() or _is_of_machine(inside, entry.name):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(path)
                    continue
                with contextlib.suppress(FileNotFoundError):
                    found = entry.stat(follow_symlinks=False)
                    is_input = path.startswith("intake/") and found.st_size > _INPUT_BYTES
                    if stat.S_ISREG(found.st_mode) and (keeps_inputs or not is_input):
                        yield path, _stamp(found)

    def _compact(self, book: _Book) -> None:
        """Write a snapshot when the events since the last one are many, or large; earlier ones go. Never fails: a
        later holder does it."""
        if book.events < _EVENTS_AT_MOST and book.bytes < _BYTES_AT_MOST:
            return
        found = {path: stamp for path, (stamp, _) in book.files.items()}
        with contextlib.suppress(OSError, OvertakenError):
            # First: a successor's objects are none of this process's to remove.
            blobs = object_lists.list_entries(self._blobs)
            listed = self._list()
            self._verify(book, listed)
            heads, bodies = self._read(found, found, dict(book.files), None)
            name = f"{book.number:012d}.snapshot"
            if not files.put_if_absent(self._journal / name, _pack({"files": heads}, bodies)):
                return
            # Recent events stay: a process that has just listed the journal creates its next number unasked.
            until = max(one.modified_at for one in listed.values()) - _KEPT_SECONDS
            files.remove_names(self._journal, [one for one in listed if listed[one].modified_at < until])
            book.events = book.bytes = 0
            old = [one for one in blobs if one.name not in book.blobs]
            last = max((one.modified_at for one in old), default=0.0)
            self._remove_blobs([one.name for one in old if one.modified_at < last - _LEFT_BLOB_SECONDS])

    # Reading

    def _pull(self, book: _Book) -> None:
        """Bring the copy up to the last event. One that has more than its book says begins again. Raises
        UnreadableStateError where an object is missing that no later event replaces."""
        failed: tuple[object, ...] = ()
        while True:
            listed = self._list()
            last = max(map(_number_of, listed), default=0)
            tag = _tag_of(listed, book.number)
            is_known = not book.token and book.boot_id == _boot_id() and book.number > 0 and tag == book.tag
            # Somebody may have cleared files of the copy, which the holder would take for removed ones.
            is_known = is_known and all((self.local / path).exists() for path in book.files)
            if is_known and last == book.number:
                return
            try:
                self._apply(book, listed, is_known=is_known)
            except FileNotFoundError as error:
                if failed == (seen := (*listed, error.filename)):
                    raise files.UnreadableStateError(
                        parse_path(error.filename), ValueError("it was removed")
                    ) from error
                failed = seen  # unless a holder has written a snapshot meanwhile, or removed a large file
                book.number = 0
                continue
            book.number, book.tag, book.token = last, _tag_of(listed, last), ""
            return

    def _apply(self, book: _Book, listed: Mapping[str, Entry], *, is_known: bool) -> None:
        """Write the files of the events after that of the book, or of all."""
        snapshots = [_number_of(name) for name in listed if name.endswith(".snapshot")]
        base = book.number if is_known else max(snapshots, default=0)
        names = [one for one in sorted(listed) if _number_of(one) > base and one.endswith(".event")]
        if not is_known and base:
            names.insert(0, f"{base:012d}.snapshot")
        self._demand_all(names, base, is_known=is_known)
        changes: dict[str, _Item | None] = {}
        for name, event in zip(names, self._read_events(names), strict=True):
            with files.unreadable_is_named(self._journal / name):
                self._fold(event, changes)
        newer = [one for one in listed if one.endswith(".event") and _number_of(one) > max(snapshots, default=0)]
        book.events, book.bytes = len(newer), sum(listed[one].size for one in newer)
        self._save(_Book())  # killed within, the copy begins again
        if not is_known:
            changes = {**{path: None for path, _ in self._scan()}, **changes}
            book.files, book.blocks = {}, {}
        for path, item in changes.items():
            file = self.local / path
            self._demand_lock()
            if item is None:
                _remove(file, self.local)
                book.files.pop(path, None)
                book.blocks.pop(path, None)
                continue
            self._write(file, item)
            if (stamp := _stamp_of(file)) is None:
                raise OvertakenError("another process of this machine")
            book.files[path] = stamp, item.blob
            if path.endswith(".sqlite"):
                book.blocks[path] = base64.b64encode(_digest_blocks(item.body)).decode()

    def _demand_all(self, names: Sequence[str], base: int, *, is_known: bool) -> None:
        """Raise UnreadableStateError where an event after number ``base`` is missing; FileNotFoundError for a copy that
        may begin with a newer snapshot instead."""
        numbers = [_number_of(name) for name in names if name.endswith(".event")]
        missing = set(range(base + 1, max(numbers, default=base) + 1)).difference(numbers)
        if not missing:
            return
        path = self._journal / _event(min(missing))
        if is_known:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        raise files.UnreadableStateError(path, ValueError("it was removed, and later events are there"))

    def _read_events(self, names: Sequence[str]) -> Iterator[bytes]:
        paths = [self._journal / name for name in names]
        if len(paths) < _AT_ONCE // 2:
            yield from map(files.read, paths)
            return
        from concurrent.futures import ThreadPoolExecutor  # it brings logging, which most commands do without

        with ThreadPoolExecutor(_AT_ONCE, "tidegate-events") as pool:
            yield from pool.map(files.read, paths)

    def _fold(self, event: bytes, changes: dict[str, _Item | None]) -> None:
        """Add the changes of an event to those of the ones before."""
        head, body = _unpack(event)
        changes |= dict.fromkeys(head.get("removed", []))
        at = 0
        for one in head.get("files", []):
            path, blob = one["path"], one.get("blob", "")
            data = b"" if blob else body[at : at + one["length"]]
            at += len(data)
            if "blocks" in one:
                before = changes.get(path)
                old = before.body if before is not None else (self.local / path).read_bytes()
                data = _patch(old, one["blocks"], data, one["size"])
            changes[path] = _Item(one["size"], one["modified_ns"], data, blob)

    def _write(self, file: Path, item: _Item) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        aside = file.with_name(f".{file.name}.{secrets.token_hex(4)}.tmp")
        try:
            if item.blob:
                objects.download(self._blobs / item.blob, aside)
            else:
                data = item.body.replace(_OWN_ROOT, self._root) if _names_files(file) else item.body
                aside.write_bytes(data)
            os.utime(aside, ns=(item.modified_ns, item.modified_ns))
            _checksum_of(file).unlink(missing_ok=True)
            os.replace(aside, file)
        finally:
            aside.unlink(missing_ok=True)


@functools.cache
def mirror_of(remote: ObjectPath, cache: Path) -> Mirror:
    """The working copy, below the folder ``cache`` of this machine, of the state at ``remote``."""
    digest = hashlib.blake2b(str(remote.parent).encode(), digest_size=8).hexdigest()
    return Mirror(cache / "tidegate" / "state" / digest / remote.name / "copy", remote)


_KINDS = (".event", ".snapshot")


def _event(number: int) -> str:
    return f"{number:012d}.event"


def _number_of(name: str) -> int:
    number, _, kind = name.partition(".")
    return int(number) if number.isdigit() and f".{kind}" in _KINDS else 0


def _tag_of(listed: Mapping[str, Entry], number: int) -> str:
    found = [listed[name].tag for name in (_event(number), f"{number:012d}.snapshot") if name in listed]
    return found[0] if found else ""


def _pack(head: Mapping[str, Any], bodies: Iterable[bytes]) -> bytes:
    # A nonce, since an ETag is the digest of the bytes.
    text = json.dumps({**head, "nonce": secrets.token_hex(8)}, separators=(",", ":"))
    return zlib.compress(text.encode() + b"\n" + b"".join(bodies), 1)


def _unpack(event: bytes) -> tuple[dict[str, Any], bytes]:
    try:
        head, _, body = zlib.decompress(event).partition(b"\n")
    except zlib.error as error:
        raise ValueError(str(error)) from error
    return json.loads(head), body


def _digest_blocks(data: bytes) -> bytes:
    return b"".join(
        hashlib.blake2b(data[at : at + _BLOCK_BYTES], digest_size=_DIGEST_BYTES).digest()
        for at in range(0, len(data), _BLOCK_BYTES)
    )


def _differing(before: bytes, after: bytes) -> list[int]:
    steps = range(0, len(after), _DIGEST_BYTES)
    return [at // _DIGEST_BYTES for at in steps if before[at : at + _DIGEST_BYTES] != after[at : at + _DIGEST_BYTES]]


def _patch(data: bytes, blocks: Iterable[int], body: bytes, size: int) -> bytes:
    result = bytearray(data[:size].ljust(size, b"\0"))
    for number, at in enumerate(blocks):
        some = body[number * _BLOCK_BYTES : (number + 1) * _BLOCK_BYTES]
        result[at * _BLOCK_BYTES : at * _BLOCK_BYTES + len(some)] = some
    return bytes(result)


def _is_of_machine(folder: str, name: str) -> bool:
    """Whether a name is of what only this machine needs: messages between a run and its driver, what is being written,
    checksum files of lists that name the folder of the copy."""
    if not folder and (name == "orders" or name.startswith(".")):
        return True
    if name == "_temporary" or (name.startswith(".") and name.endswith(".tmp")):
        return True
    return name.endswith(".crc") and _is_of_lists(folder)


def _is_of_lists(folder: str) -> bool:
    return "/checkpoint/sources/" in f"/{folder}/"


def _names_files(path: Path) -> bool:
    """Whether it is a list of Spark's, which names files by their whole paths."""
    return _is_of_lists(path.parent.as_posix())


def _checksum_of(file: Path) -> Path:
    """Hadoop's checksum file, which stays on its machine. With one left over, Spark could not write the file again."""
    return file.with_name(f".{file.name}.crc")


def _remove(file: Path, top: Path) -> None:
    file.unlink(missing_ok=True)
    _checksum_of(file).unlink(missing_ok=True)
    for folder in file.parents:
        if folder == top or not folder.is_relative_to(top):
            return
        with contextlib.suppress(OSError):
            folder.rmdir()


def _stamp(found: os.stat_result) -> _Stamp:
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino


def _stamp_of(path: Path) -> _Stamp | None:
    try:
        return _stamp(path.stat(follow_symlinks=False))
    except FileNotFoundError:
        return None


def _dump(book: _Book) -> str:
    return json.dumps(asdict(book), separators=(",", ":"))


def _now() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@functools.cache
def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
