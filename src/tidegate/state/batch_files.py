"""Batch files: what one micro-batch reads of a source, written by a run before Spark starts.

Spark's stream of a source is a stream of these files, one for each micro-batch. So a run decides what a batch
reads, and Spark's checkpoint says only up to which file it has come. A file is JSON lines: a header, then the parts.

The content of a number never changes: the first writer wins, and the next file is planned from that content. So a stale
process can add a file, or find its number taken, but no two batches can hold the same record.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NotRequired, Protocol, TypedDict

from tidegate.core import storage
from tidegate.state.checkpoint import batch_ids, files_between, last_entry, log_entry, read_offsets, read_start
from tidegate.state.topics import (
    FilePart,
    OffsetRange,
    OffsetRanges,
    Offsets,
    OffsetsJson,
    Part,
    RangePart,
    list_links,
    offsets_from_json,
    offsets_to_json,
)

FOLDER = "batches"
_SUFFIX = ".jsonl"
NAMES = "[0-9]" * 12 + _SUFFIX
"""A glob of their names: Spark is to read no other file of the folder."""
_KEPT = 100
"""The number of files that are kept before the one from which the next is planned, as Spark keeps entries of its logs:
a command that inspects the pipeline reads the checkpoint first, and runs may have continued since."""
_FIRST_SECOND = 1_000_000_000
"""The modification time of file 0, in seconds since 1970: Spark takes files in the order of their times, which are
therefore made from their numbers."""


@dataclass(frozen=True)
class BatchFile:
    """The input of one micro-batch from a source.

    Of topics, ``begins`` and ``ends`` are the positions of all partitions before and after the batch, also of those of
    which it reads nothing. ``continues_at`` is where the next batch begins, when that is not ``ends`` since a loss was
    accepted.
    """

    number: int
    begins: Offsets = field(default_factory=dict)
    ends: Offsets = field(default_factory=dict)
    parts: Sequence[Part] = ()
    continues_at: Offsets | None = None

    @property
    def links(self) -> list[str]:
        """The links of the files that it reads, each once, in order."""
        return list_links(self.parts)

    @property
    def next_begins(self) -> Offsets:
        """Where the next batch begins."""
        return self.ends if self.continues_at is None else self.continues_at

    @property
    def ranges(self) -> OffsetRanges:
        """The offsets that it takes of each partition, perhaps none."""
        return {one: OffsetRange(self.begins.get(one, 0), until) for one, until in self.ends.items()}


@dataclass(frozen=True)
class Given:
    """The input of a batch from one source, by the checkpoint: links in the ledger's order, or offsets, by its batch
    file. ``is_former``: in the form of version 0.1.0, which is not compared.

    ``is_backwards``: the list of files ends before it begins.
    """

    links: Sequence[str] = ()
    begins: Offsets = field(default_factory=dict)
    """Where the ranges of offsets begin."""
    ends: Offsets = field(default_factory=dict)
    """Where they end, exclusive."""
    is_backwards: bool = False
    is_former: bool = False


class Pending(Protocol):
    """The pending records of a source, which it divides into batches; see :meth:`BatchFiles.write`."""

    @property
    def position(self) -> Offsets:
        """Where the next batch begins; {} for files."""

    def fits(self, one: BatchFile) -> bool:
        """Return whether a file from before that Spark has not planned yet may stay as it is."""

    def holds(self, one: BatchFile) -> bool:
        """Return whether the records of a file are the next ones, or among them."""

    def take(self, one: BatchFile) -> None:
        """Take out the records of a file."""

    def next_batch(self, number: int) -> BatchFile | None:
        """Make the file of the next batch; None when nothing is left."""


class _Header(TypedDict):
    batch: int
    source: str
    begins: OffsetsJson
    ends: OffsetsJson
    continues_at: NotRequired[OffsetsJson]
    digest: NotRequired[str]


class BatchFiles:
    """The batch files of ``source``, of the query that has ``checkpoint``."""

    def __init__(self, checkpoint: Path, source: str) -> None:
        self.checkpoint, self.source = checkpoint, source
        self.folder = checkpoint.parent / FOLDER / source

    def path(self, number: int) -> Path:
        """Where file ``number`` is."""
        return self.folder / f"{number:012d}{_SUFFIX}"

    def numbers(self) -> list[int]:
        """The numbers of the files that are there, ascending."""
        names = (name.removesuffix(_SUFFIX) for name in storage.list_names(self.folder) if name.endswith(_SUFFIX))
        return sorted(int(name) for name in names if name.isdigit())

    def read(self, number: int) -> BatchFile:
        """File ``number``. Raises ValueError when it is torn, edited or gone."""
        path = self.path(number)
        try:
            return _parse(storage.read(path), self.source, number)
        except FileNotFoundError:
            raise ValueError(f"the batch file {path} is gone") from None
        except (ValueError, KeyError, TypeError, AttributeError):
            raise ValueError(f"the batch file {path} is torn, edited, or a copy of another one") from None

    def put(self, batch: BatchFile) -> BatchFile:
        """Write a file, durable on return; the file with its number, which a stale process may have written before."""
        path = self.path(batch.number)
        storage.put_if_absent(path, _format(batch, self.source), modified_ns=_time_of(batch.number))
        storage.sync_names_above(
            [path], self.checkpoint.parent
        )  # the process that made the folder may have been killed
        return self.read(batch.number)

    def write(self, pending: Pending, check: Callable[[], None]) -> None:
        """Write files for all ``pending`` records, after those that Spark has not planned yet.

        ``check`` is called before each change. Raises ValueError when the plan of Spark cannot be read.
        """
        storage.make_folder(self.folder)  # Spark reads it even when it is empty
        last = planned = self.last_planned()
        for one in itertools.takewhile(pending.fits, self.list_open()):
            pending.take(one)
            last = one.number
        number = self.pass_over(last, pending.position, check) + 1
        self.set_times(check)
        batch = pending.next_batch(number)
        if batch is None and number > planned + 1:
            check()
            # Or a stale process could add one with this number.
            self.put(BatchFile(number, pending.position, pending.position))
        while batch is not None:
            check()
            written = self.put(batch)
            if pending.holds(written):
                pending.take(written)
            else:
                # A stale process has just written it, from another plan.
                self.pass_over(number - 1, pending.position, check)
            number += 1
            batch = pending.next_batch(number)

    def rewrite(self, batch: BatchFile) -> None:
        """Write a file over the one with its number: none of its records can have been read."""
        data = _format(batch, self.source)
        storage.replace(self.path(batch.number), data, modified_ns=_time_of(batch.number))

    def last_planned(self, batch_id: int | None = None) -> int:
        """The newest file that Spark has planned up to ``batch_id`` (None: its last batch); -1 for none. Raises
        ValueError when the checkpoint is torn."""
        if batch_id is None:
            batch_id = (batch_ids(self.checkpoint / "offsets") or [-1])[-1]
        end = read_start(self.checkpoint, batch_id + 1, self.source)
        if not isinstance(end, int) or names_links(self.checkpoint, self.source, end):
            return -1
        return self._numbers_between(end - 1, end)[-1]

    def last_listed(self) -> int:
        """The newest file that Spark has in its lists, planned or not; -1 for none. Raises ValueError."""
        entry = last_entry(self.checkpoint, self.source)
        if entry < 0 or names_links(self.checkpoint, self.source, entry):
            return -1
        return self._numbers_between(entry - 1, entry)[-1]

    def read_position(self) -> Offsets:
        """The beginning of the batch after those that Spark has planned; {} before the first. Raises ValueError."""
        last = self.last_planned()
        return {} if last < 0 else self.read(last).next_begins

    def of_batch(self, batch_id: int) -> list[BatchFile]:
        """The files that a planned batch takes: none where the source had nothing, else one, or two where Spark was
        killed between its list of files and its plan. Raises ValueError."""
        until = log_entry(read_offsets(self.checkpoint, batch_id).get(self.source))
        before = read_start(self.checkpoint, batch_id, self.source)
        after = before if isinstance(before, int) else -1
        return [self.read(number) for number in self._numbers_between(after, until)] if until > after else []

    def check_batch(self, batch_id: int) -> None:
        """Raise ValueError when the files of a planned batch do not follow the ones before: then it would read records
        again, or pass over some."""
        before = self.last_planned(batch_id - 1)
        last = None if before < 0 else self.read(before)
        for one in self.of_batch(batch_id):
            if last is not None and not _follows(one, last):
                raise ValueError(f"the batch file {self.path(one.number)} does not begin where the one before it ends")
            last = one

    def describe_batch(self, batch_id: int) -> BatchFile | None:
        """The files of a planned batch joined into one; None for a source without data so far. Raises ValueError."""
        files = self.of_batch(batch_id)
        if files:
            parts = [part for one in files for part in one.parts]
            return replace(files[-1], begins=files[0].begins, parts=parts)
        last = self.last_planned(batch_id)
        if last < 0:
            return None
        before = self.read(last)
        return BatchFile(last, before.ends, before.ends)

    def list_in_flight(self) -> list[BatchFile]:
        """The files of the batch that Spark has planned and not committed. Raises ValueError."""
        offsets, commits = (batch_ids(self.checkpoint / folder) or [-1] for folder in ("offsets", "commits"))
        return self.of_batch(offsets[-1]) if offsets[-1] > commits[-1] else []

    def list_open(self) -> list[BatchFile]:
        """The files that Spark has not planned yet, as far as each can be read and follows the one before. Raises
        ValueError when the last planned one cannot be read."""
        planned = self.last_planned()
        last = None if planned < 0 else self.read(planned)
        found: list[BatchFile] = []
        for number in self.numbers():
            if number > planned:
                try:
                    one = self.read(number)
                except ValueError:
                    break
                if last is not None and not _follows(one, last):
                    break
                found.append(one)
                last = one
        return found

    def pass_over(self, behind: int, position: Offsets, check: Callable[[], None]) -> int:
        """Take every part out of the files behind number ``behind``, which Spark has not planned; the highest number.

        They are then at ``position``. No number is used again: what a stale process still removes or writes to one of
        them changes nothing. One that is missing is written. ``check`` is called before each. Raises ValueError.
        """
        highest = max(behind, self.last_listed(), *self.numbers()[-1:])
        for number in range(behind + 1, highest + 1):
            check()
            self.rewrite(BatchFile(number, position, position))
        return highest

    def begin_again(self, position: Offsets) -> None:
        """Leave Spark only a file without a part, at ``position``: it no longer knows what it had planned. Later files
        get higher numbers."""
        numbers = self.numbers()
        if numbers:
            self.rewrite(BatchFile(numbers[-1], position, position))
        for number in numbers[:-1]:
            storage.remove(self.path(number))

    def move_behind(
        self,
        begins: Offsets,
        ends: Offsets,
        in_flight: int | None,
        parts: Sequence[Part],
        check: Callable[[], None],
    ) -> None:
        """Have what follows begin at ``begins``, behind a loss that was accepted: the batch ``in_flight``, if there is
        one, which then ends at ``ends`` and has ``parts``. ``check`` is called before each change. May be repeated."""
        files = [] if in_flight is None else self.of_batch(in_flight)
        self.pass_over(self.last_planned(), ends if files else begins, check)  # they may name what is lost
        before = self.last_planned() if in_flight is None or not files else self.last_planned(in_flight - 1)
        changed = [] if before < 0 else [replace(self.read(before), continues_at=begins)]
        changed += [BatchFile(one.number, begins, begins) for one in files[:-1]]
        changed += [BatchFile(one.number, begins, ends, parts) for one in files[-1:]]
        for one in changed:
            check()
            self.rewrite(one)

    def set_times(self, check: Callable[[], None]) -> None:
        """Give files the times of their numbers again, which a restored copy may lack. ``check`` is called before
        each."""
        for number in self.numbers():
            path = self.path(number)
            if storage.stat(path).modified_ns != _time_of(number):
                check()
                storage.set_modified(path, _time_of(number))

    def remove_before(self, number: int) -> None:
        """Remove the files with lower numbers, what they name is in the table's log, but for the last ones."""
        for one in self.numbers():
            if one < number - _KEPT:
                storage.remove(self.path(one))

    def _numbers_between(self, after: int, until: int) -> list[int]:
        """The numbers of the files that Spark's lists ``after`` < n <= ``until`` name, at least one. Raises
        ValueError."""
        paths = _list_paths(self.checkpoint, self.source, after, until)
        names = [path.rpartition("/")[2].removesuffix(_SUFFIX) for path in paths]
        if not names or not all(name.isdigit() for name in names):
            raise ValueError(f"the file lists of source {self.source} up to {until} do not name batch files")
        return [int(name) for name in names]


def names_links(checkpoint: Path, source: str, entry: int) -> bool:
    """Whether an entry of Spark's lists names links of an intake, not batch files, as in version 0.1.0. Raises
    ValueError."""
    folders = {path.rpartition("/")[0] for path in _list_paths(checkpoint, source, entry - 1, entry)}
    return any(f"/intake/{source}/" in f"{one}/" and not one.endswith(f"/{FOLDER}/{source}") for one in folders)


def _list_paths(checkpoint: Path, source: str, after: int, until: int) -> list[str]:
    """The paths in the entries ``after`` < n <= ``until`` of Spark's lists. Raises ValueError."""
    try:
        return files_between(checkpoint, source, after, until)
    except FileNotFoundError as error:
        raise ValueError(f"the file list {error} is gone") from None


def _follows(one: BatchFile, before: BatchFile) -> bool:
    """Whether a file has the next number and begins where the one before ends; a partition that is new begins at 0."""
    is_next = one.number == before.number + 1
    return is_next and all(before.next_begins.get(where, 0) == at for where, at in one.begins.items())


def links_between(checkpoint: Path, source: str, after: int, until: int) -> list[str]:
    """The links in the entries ``after`` < n <= ``until`` of Spark's lists of version 0.1.0. Raises ValueError."""
    taken = _list_paths(checkpoint, source, after, until)
    return [path.rpartition(f"/intake/{source}/")[2] for path in taken]


def read_given(checkpoint: Path, batch_id: int) -> dict[str, Given]:
    """The input of batch ``batch_id`` from each source that the checkpoint names.

    Raises ValueError when a file of the checkpoint, or a batch file, is torn or gone.
    """
    given: dict[str, Given] = {}
    try:
        for name, end in read_offsets(checkpoint, batch_id).items():
            start = read_start(checkpoint, batch_id, name)
            if not isinstance(end, int):
                given[name] = Given(is_former=True)
                continue
            after = start if isinstance(start, int) else -1
            if after > end:
                given[name] = Given(is_backwards=True)
                continue
            if names_links(checkpoint, name, end):
                given[name] = Given(sorted(links_between(checkpoint, name, after, end)))
            else:
                one = BatchFiles(checkpoint, name).describe_batch(batch_id)
                assert one is not None, "there is a file"
                given[name] = Given(sorted(one.links), begins=one.begins, ends=one.ends)
    except (KeyError, TypeError, FileNotFoundError) as error:
        raise ValueError(f"what batch {batch_id} takes cannot be read: {error}") from error
    return given


def _time_of(number: int) -> int:
    return (_FIRST_SECOND + number) * 1_000_000_000


def _format(batch: BatchFile, source: str) -> bytes:
    lines = [_dump({name: getattr(part, name) for name in part.__slots__}) for part in batch.parts]
    header: _Header = {
        "batch": batch.number,
        "source": source,
        "begins": offsets_to_json(batch.begins),
        "ends": offsets_to_json(batch.ends),
    }
    if batch.continues_at is not None:
        header["continues_at"] = offsets_to_json(batch.continues_at)
    return "\n".join([_dump({**header, "digest": _digest(header, lines)}), *lines, ""]).encode()


def _parse(data: bytes, source: str, number: int) -> BatchFile:
    first, *lines, last = data.decode().split("\n")
    header: _Header = json.loads(first)
    digest = header.pop("digest")
    if last or digest != _digest(header, lines) or (header["source"], header["batch"]) != (source, number):
        raise ValueError("its digest does not fit")
    continues_at = header.get("continues_at")
    return BatchFile(
        number,
        offsets_from_json(header["begins"]),
        offsets_from_json(header["ends"]),
        [FilePart(**part) if "link" in part else RangePart(**part) for part in json.loads(f"[{','.join(lines)}]")],
        None if continues_at is None else offsets_from_json(continues_at),
    )


def _digest(header: Mapping[str, object], lines: Iterable[str]) -> str:
    return hashlib.blake2b("\n".join([_dump(header), *lines]).encode(), digest_size=16).hexdigest()


def _dump(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))
