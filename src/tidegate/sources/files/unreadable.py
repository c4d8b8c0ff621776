"""Quarantines files that cannot be read: a truncated gzip, a parquet file without footer, a csv header in another
order.

The file is kept in ``state/<name>/unreadable/``. A readable stand-in, with the whole lines before the damage if any,
replaces it in the intake, and the file goes to quarantine as one malformed record.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NotRequired

from tidegate.core import storage
from tidegate.core.paths import PipelinePaths
from tidegate.core.words import count_of
from tidegate.sources.files.content import line_end
from tidegate.sources.files.forms import find_fault
from tidegate.sources.files.intake import flat_name, record_path, relink
from tidegate.sources.files.ledger import Ledger, LinkedFile
from tidegate.sources.files.torn import EMPTY_FILES, PARTLY_READABLE_SUFFIXES, write_readable_part
from tidegate.sources.readers.unreadable import PartUnreadable
from tidegate.spec.models import SELF_DESCRIBING_FORMATS, FilesSource, SourceSpec
from tidegate.spec.reader_options import has_line_records


class UnreadableFile(LinkedFile):
    """The record of a file that was quarantined as a whole; ``kept`` is its name there, None for one that vanished.
    ``is_read``: its rows are in the table since a refresh; they can be read again from the kept file."""

    link: str
    reason: str
    kept: str | None
    is_read: NotRequired[bool]


def quarantine_unreadable(
    folder: Path,
    intake: Path,
    links: Iterable[str],
    spec: FilesSource,
    originals: Mapping[str, LinkedFile],
    check_lease: Callable[[], None],
    error_text: str = "",
) -> list[str]:
    """Replace the unreadable files of a failed batch by stand-ins. Returns their original paths.

    ``error_text`` names one of them; all are checked, so that the batch does not fail once for each. Raises
    TryAgainError LEASE_LOST.
    """
    waiting = [link for link in links if not has_stand_in(folder, intake, link)]
    reasons = {link: reason for link in waiting if (reason := find_fault(intake / link, spec)) is not None}
    fault = PartUnreadable.find(error_text)
    if fault is not None and fault.errno is None:
        reasons |= {link: fault.reason for link in waiting if str(intake / link) == fault.path and link not in reasons}
    return quarantine_whole(folder, intake, reasons, spec, originals, check_lease)


def quarantine_whole(
    folder: Path,
    intake: Path,
    reasons: Mapping[str, str],
    spec: FilesSource,
    originals: Mapping[str, LinkedFile],
    check_lease: Callable[[], None],
) -> list[str]:
    """Keep each file of ``reasons`` {link: why} in ``folder`` and replace it by a stand-in. Returns their original
    paths. May be repeated after a crash."""
    found = []
    for link, reason in reasons.items():
        path = intake / link
        kept = folder / flat_name(link)
        check_lease()
        _keep(path.resolve(), kept)
        original = originals.get(link)
        stand_in, lines = _make_stand_in(path, spec)
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
    """Whether a file is quarantined as a whole, and was not read since."""
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
    """Whether the stand-in at ``path`` has rows of the original file."""
    return spec.format not in SELF_DESCRIBING_FORMATS and path.stat().st_size != len(_empty_file(path, spec))


def unreadable_record(folder: Path, link: str) -> UnreadableFile | None:
    """The record of a link whose file was quarantined as a whole, else None."""
    value: UnreadableFile | None = storage.read_json(record_path(folder, link))
    return value


def count_kept_rows(kept: Path, spec: SourceSpec) -> int | None:
    """Count the rows of a kept file by its footer; None where that is missing or cannot be read."""
    if not isinstance(spec, FilesSource) or spec.format not in SELF_DESCRIBING_FORMATS:
        return None
    from tidegate.sources.files import columnar_files

    return columnar_files.count_rows(kept, spec.format)


def has_stand_in(folder: Path, intake: Path, link: str) -> bool:
    """Whether a stand-in has replaced the link: a process may have been killed after it wrote the record."""
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
    _keep(path.resolve(), folder / path.name)


def describe_kept(name: str) -> str:
    """The end of a message: where the file is kept. ``name`` is the last part of its link's name."""
    return f"; the file is kept as unreadable/{name}"


def _keep(source: Path, kept: Path) -> None:
    storage.make_folder(kept.parent)
    if not kept.exists():
        try:
            os.link(source, kept)
        except OSError as error:
            if error.errno not in (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP):
                raise
            part = kept.with_name(f".{kept.name}.{secrets.token_hex(6)}")
            shutil.copy2(source, part)
            storage.sync_file(part)
            os.replace(part, kept)
    storage.sync_files([kept])  # quarantine relies on it, and its writer may not have synced it
    storage.sync_folder(kept.parent)


def _make_stand_in(path: Path, spec: FilesSource) -> tuple[Path, int]:
    """Write the stand-in to a hidden file next to ``path``: the valid whole lines, or an empty file. Returns it and the
    number of lines."""
    part = path.with_name(f".{secrets.token_hex(6)}{path.suffix}")
    is_text = spec.format not in SELF_DESCRIBING_FORMATS and has_line_records(spec)
    if is_text and path.suffix in PARTLY_READABLE_SUFFIXES:
        lines = write_readable_part(path, part, line_end(spec))
        if find_fault(part, spec) is None:
            return part, lines
    storage.replace(part, _empty_file(path, spec))
    return part, 0


def _empty_file(path: Path, spec: FilesSource) -> bytes:
    if spec.format in SELF_DESCRIBING_FORMATS:
        from tidegate.sources.files import columnar_files

        return columnar_files.make_empty(spec.format)
    return EMPTY_FILES.get(path.suffix, b"")
