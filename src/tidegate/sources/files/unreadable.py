"""Quarantines files that cannot be read: a truncated gzip, a parquet file without footer, a csv header in another
order.

The file is kept in ``state/<name>/unreadable/``. A readable stand-in, with the whole lines before the damage if any,
replaces it in the intake, and the file goes to quarantine as one malformed record.

Of a truncated compressed file everything before the end is valid. Of one with a wrong checksum only the parts with a
correct checksum are: after a flipped bit, gzip continues with wrong text.
"""

from __future__ import annotations

import bz2
import os
import secrets
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NotRequired

from tidegate.core import storage
from tidegate.core.paths import PipelinePaths
from tidegate.core.words import count_of
from tidegate.sources.files.content import line_end
from tidegate.sources.files.forms import find_fault
from tidegate.sources.files.intake import flat_name, link_or_copy, record_path, relink
from tidegate.sources.files.ledger import Ledger, LinkedFile
from tidegate.sources.readers.links import read_pointer
from tidegate.sources.readers.unreadable import PartUnreadable
from tidegate.spec.models import SELF_DESCRIBING_FORMATS, FilesSource, SourceSpec
from tidegate.spec.reader_options import has_line_records

_CHUNK_BYTES = 1 << 16
_GZIP = 31
_PARTLY_READABLE_SUFFIXES = (".gz", ".bz2")
"""Of damaged files with these suffixes the lines before the damage can be read."""
EMPTY_FILES = {
    ".gz": zlib.compress(b"", wbits=_GZIP),
    ".bz2": bz2.compress(b""),
    ".deflate": zlib.compress(b""),
    ".zst": b"\x28\xb5\x2f\xfd\x20\x00\x01\x00\x00",
}
"""A compressed file of empty text, by suffix; for other suffixes it is an empty file."""


class UnreadableFile(LinkedFile):
    """The record of a file that was quarantined as a whole; ``kept`` is its name there, None for one that vanished.
    ``is_read``: its rows are in the table since a refresh; they can be read again from the kept file."""

    link: str
    reason: str
    kept: str | None
    is_read: NotRequired[bool]


def find_unreadable(
    folder: Path, intake: Path, links: Iterable[str], spec: FilesSource, error_text: str = ""
) -> dict[str, str]:
    """Find the unreadable files of a failed batch: {link: why}.

    ``error_text`` names one of them; all are checked, so that the batch does not fail once for each.
    """
    waiting = [link for link in links if not has_stand_in(folder, intake, link)]
    reasons = {link: reason for link in waiting if (reason := find_fault(intake / link, spec)) is not None}
    fault = PartUnreadable.find(error_text)
    if fault is not None and fault.errno is None:
        reasons |= {link: fault.reason for link in waiting if str(intake / link) == fault.path and link not in reasons}
    return reasons


def quarantine_whole(
    folder: Path,
    intake: Path,
    reasons: Mapping[str, str],
    spec: FilesSource,
    originals: Mapping[str, LinkedFile],
    check_lease: Callable[[], None],
) -> list[str]:
    """Keep each file of ``reasons`` {link: why} in ``folder`` and replace it by a stand-in. Returns their original
    paths. May be repeated after a crash. Raises TryAgainError LEASE_LOST."""
    found = []
    for link, reason in reasons.items():
        path = intake / link
        kept = folder / flat_name(link)
        check_lease()
        _keep(path, kept)
        original = originals.get(link)
        stand_in, lines = _make_stand_in(path, kept, spec)
        if lines:
            reason = f"{reason}; its first {count_of(lines, 'line')} were read: send only what follows"
        record = {"link": link, "reason": reason, "kept": kept.name, **(original or {})}
        try:
            check_lease()
            storage.put_if_absent(record_path(folder, link), storage.dump_json(record))
            check_lease()
            os.replace(stand_in, path)
        finally:
            stand_in.unlink(missing_ok=True)
        storage.sync_folder(path.parent)
        found.append(link if original is None else original.get("file") or original["path"])
    return found


def quarantine_vanished(folder: Path, path: Path, link: str, spec: FilesSource, original: LinkedFile) -> None:
    """Replace a vanished file of a planned batch by an empty stand-in at ``path``, and record it."""
    record = {"link": link, "reason": "vanished before it was read", "kept": None, **original}
    storage.put_if_absent(record_path(folder, link), storage.dump_json(record))
    storage.replace(path, _empty_file(path, spec))


def read_whole_again(paths: PipelinePaths, source_name: str, ledger: Ledger) -> None:
    """Link quarantined files that are to be read again to their kept copies, as if they had never been read.

    A file that vanished, or is no longer kept, keeps its stand-in. May be repeated after a crash. To be called between
    :meth:`Ledger.return_to_linked` and :func:`tidegate.sources.files.intake.restore_links`.
    """
    folder = paths.unreadable
    names = {name.removesuffix(".json") for name in os.listdir(folder)} if folder.is_dir() else set()
    if not names:
        return
    found = {
        row: kept
        for row in ledger.rows(source_name, state="linked")
        if flat_name(row.link) in names and (kept := kept_file(folder, row.link)) is not None
    }
    relink(paths, source_name, found, ledger)
    for row in found:
        storage.remove(record_path(folder, row.link))
        storage.remove(found[row])


def is_in_quarantine(folder: Path, link: str) -> bool:
    """Return whether a file is quarantined as a whole, and was not read since."""
    record = unreadable_record(folder, link)
    return record is not None and not record.get("is_read", False)


def take_over_whole(folder: Path, other: Path, links: Iterable[str], check_lease: Callable[[], None]) -> None:
    """Move files that a side job has quarantined as a whole from its folder ``other`` to ``folder``. May be repeated,
    even when ``other`` is gone."""
    for link in links:
        record = unreadable_record(other, link)
        if record is None:
            continue
        check_lease()
        if record["kept"] and not storage.exists(folder / record["kept"]):
            storage.make_folder(folder)
            storage.move(other / record["kept"], folder / record["kept"])
        storage.replace(record_path(folder, link), storage.dump_json(record))


def note_read(folder: Path, links: Iterable[str], check_lease: Callable[[], None]) -> None:
    """Record that the rows of quarantined files are in the table now. May be repeated."""
    for link in links:
        record = unreadable_record(folder, link)
        if record is not None and not record.get("is_read", False):
            check_lease()
            storage.replace(record_path(folder, link), storage.dump_json({**record, "is_read": True}))


def kept_file(folder: Path, link: str) -> Path | None:
    """The kept copy of a file that was quarantined as a whole; None for any other, and for one that vanished."""
    record = unreadable_record(folder, link)
    kept = folder / record["kept"] if record is not None and record["kept"] else None
    return kept if kept is not None and kept.is_file() else None


def has_rows(path: Path, spec: FilesSource) -> bool:
    """Return whether the stand-in at ``path`` has rows of the original file."""
    return spec.format not in SELF_DESCRIBING_FORMATS and path.stat().st_size != len(_empty_file(path, spec))


def unreadable_record(folder: Path, link: str) -> UnreadableFile | None:
    """The record of a link whose file was quarantined as a whole, else None."""
    value: UnreadableFile | None = storage.read_json(record_path(folder, link))
    return value


def count_kept_rows(kept: Path, spec: SourceSpec) -> int | None:
    """Count the rows of a kept file by its footer; None where that is missing or cannot be read."""
    if not isinstance(spec, FilesSource) or spec.format not in SELF_DESCRIBING_FORMATS:
        return None
    from tidegate.sources.files import columnar_files  # imports pyarrow, which runs and the driver do without

    return columnar_files.count_rows(kept, spec.format)


def has_stand_in(folder: Path, intake: Path, link: str) -> bool:
    """Return whether a stand-in has replaced the link: a process may have been killed after it wrote the record."""
    path, kept = intake / link, folder / flat_name(link)
    if path.is_symlink() or not record_path(folder, link).exists():
        return False
    return not (kept.exists() and path.exists() and os.path.samefile(path, kept))


def record_of_stand_in(folder: Path, intake: Path, link: str, check_lease: Callable[[], None]) -> UnreadableFile | None:
    """The record of a link whose stand-in was read; None when the file itself was read.

    A record without a stand-in is from a process that was killed or lost its lease. It is removed, since the file was
    read later.
    """
    record = unreadable_record(folder, link)
    if record is None or has_stand_in(folder, intake, link):
        return record
    check_lease()
    storage.remove(record_path(folder, link))
    return None


def keep_file(folder: Path, path: Path) -> None:
    """Keep the file behind the link at ``path`` in ``folder``, durably: quarantine does not have all of its records."""
    _keep(path, folder / path.name)


def describe_kept(name: str) -> str:
    """The end of a message: where the file is kept. ``name`` is the last part of its link's name."""
    return f"; the file is kept as unreadable/{name}"


def _keep(link: Path, kept: Path) -> None:
    source = link if read_pointer(link) is not None else link.resolve()
    storage.make_folder(kept.parent)
    if not kept.exists():
        link_or_copy(source, kept)
    storage.sync_files([kept])  # quarantine relies on it, and its writer may not have synced it
    storage.sync_folder(kept.parent)


def _make_stand_in(path: Path, kept: Path, spec: FilesSource) -> tuple[Path, int]:
    """Write the stand-in to a hidden file next to ``path``: the valid whole lines of ``kept``, or an empty file.
    Returns it and the number of lines."""
    part = path.with_name(f".{secrets.token_hex(6)}{path.suffix}")
    is_text = spec.format not in SELF_DESCRIBING_FORMATS and has_line_records(spec)
    if is_text and path.suffix in _PARTLY_READABLE_SUFFIXES:
        lines = write_readable_part(kept, part, line_end(spec))
        if find_fault(part, spec) is None:
            return part, lines
    storage.replace(part, _empty_file(path, spec))
    return part, 0


def _empty_file(path: Path, spec: FilesSource) -> bytes:
    if spec.format in SELF_DESCRIBING_FORMATS:
        from tidegate.sources.files import columnar_files  # imports pyarrow, which runs do without

        return columnar_files.make_empty(spec.format)
    return EMPTY_FILES.get(path.suffix, b"")


class _Torn(Exception):
    """A compressed file cannot be read to its end; ``is_cut``: it is truncated, and valid so far."""

    def __init__(self, is_cut: bool) -> None:
        super().__init__(is_cut)
        self.is_cut = is_cut


def write_readable_part(path: Path, target: Path, ending: bytes = b"\n") -> int:
    """Write the valid whole lines of ``path`` to ``target``, with the same compression. Returns how many. A line ends
    with ``ending``."""
    trusted = _count_trusted_bytes(path, ending)
    left, lines, before = trusted, 0, b""
    packer: bz2.BZ2Compressor | zlib._Compress = (
        bz2.BZ2Compressor() if path.suffix == ".bz2" else zlib.compressobj(6, zlib.DEFLATED, _GZIP)
    )
    with open(target, "wb") as out:
        if left:
            for text, _ in _pieces(path, stop_at_fault=True):
                text = text[:left]
                out.write(packer.compress(text))
                left -= len(text)
                lines += (before + text).count(ending)
                before = (before + text)[-len(ending) + 1 :] if len(ending) > 1 else b""
                if not left:
                    break
        out.write(packer.flush())
        out.flush()
        os.fsync(out.fileno())
    return lines


def _count_trusted_bytes(path: Path, ending: bytes) -> int:
    """Length of the valid text up to its last line break."""
    seen = line_end = verified = 0
    before = b""  # a line break may be split across two pieces
    try:
        for text, is_verified in _pieces(path):
            looked_at = before + text
            found = looked_at.rfind(ending)
            if found >= 0:
                line_end = seen - len(before) + found + len(ending)
            seen += len(text)
            before = looked_at[max(0, len(looked_at) - len(ending) + 1) :]
            if is_verified:
                verified = line_end
    except _Torn as torn:
        return line_end if torn.is_cut else verified
    return line_end


def _pieces(path: Path, *, stop_at_fault: bool = False) -> Iterator[tuple[bytes, bool]]:
    """(text, whether everything up to its end was verified). Raises _Torn."""
    with open(path, "rb") as stream:
        machine = _open_member(path)
        # Whether the decompressor of this member has got data, and whether a member has ended.
        fed = ended = False
        data = b""
        while True:
            if not data:
                data = stream.read(_CHUNK_BYTES)
            if not data:
                break
            if not fed and ended:
                data = data.lstrip(b"\0")  # padding between and after members
                if not data:
                    continue
            try:
                text = machine.decompress(data)
            except (zlib.error, OSError, EOFError) as error:
                if stop_at_fault:
                    return
                raise _Torn(is_cut=False) from error
            fed = True
            data = machine.unused_data
            # bz2 checks each block of a member before it returns its text.
            yield text, machine.eof or path.suffix == ".bz2"
            if machine.eof:
                machine, fed, ended = _open_member(path), False, True
        if fed or not ended:
            if stop_at_fault:
                return
            raise _Torn(is_cut=True)


def _open_member(path: Path) -> bz2.BZ2Decompressor | zlib._Decompress:
    return bz2.BZ2Decompressor() if path.suffix == ".bz2" else zlib.decompressobj(_GZIP)
