"""Files that cannot be read at all: a torn gzip, a parquet file without its footer, a csv header in another order.

Spark would fail the batch forever, or with ``ignoreCorruptFiles`` lose rows in silence. Here the file itself is kept
in ``state/<name>/unreadable/``, a readable stand-in takes its place in the intake (what could be read of it: the whole
lines before the tear), and the file goes to quarantine as one malformed record.
"""

from __future__ import annotations

import bz2
import csv
import errno
import gzip
import io
import itertools
import os
import re
import secrets
import shutil
import zlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NotRequired

from tidegate import storage
from tidegate.paths import PipelinePaths
from tidegate.sources.files.content import SPARK_CODECS, line_end
from tidegate.sources.files.intake import flat_name, record_path, relink
from tidegate.sources.files.ledger import Ledger, LinkedFile
from tidegate.sources.files.long_lines import find_too_long, why_too_long, write_other_lines
from tidegate.sources.files.scan import partition_of
from tidegate.sources.files.torn import (
    BLOCK_SUFFIXES,
    EMPTY_FILES,
    SILENT_SUFFIXES,
    TornFile,
    check_compressed,
    write_readable_part,
)
from tidegate.sources.readers.unreadable import PartUnreadable
from tidegate.spec.ddl import parse_ddl
from tidegate.spec.models import SELF_DESCRIBING_FORMATS, FilesSource, SourceSpec
from tidegate.spec.reader_options import has_line_records

_CHECKED = (".gz", ".bz2")
_COMPRESSED_BEGINS = {
    b"\x1f\x8b\x08": "gzip data, and Spark unpacks it only with the ending .gz",
    b"BZh91AY&SY": "bzip2 data, and Spark unpacks it only with the ending .bz2",
    b"\x28\xb5\x2f\xfd": "zstd data, and Spark unpacks it only with the ending .zst",
    b"\x04\x22\x4d\x18": "lz4 data, which Spark cannot read: write .gz or .zst",
    b"\xfd7zXZ\0": "xz data, which Spark cannot read: write .gz or .zst",
    b"PK\x03\x04": "a zip archive, which Spark cannot read: write .gz or .zst",
}
"""How compressed files begin, and what to say of one whose name has another ending."""
_LONGEST_BEGIN = max(map(len, _COMPRESSED_BEGINS))
_NAMES_A_FILE = ("FAILED_READ_FILE", "CANNOT_READ_FILE_FOOTER", "Could not read footer", "CSV file: ")
# The machine's fault, not the file's: the next run may well read it.
_PASSING = (
    *("Input/output error", "No space left", "OutOfMemoryError", "Too many open files", "Permission denied"),
    # It is there when it is asked about here.
    *("Stale file handle", "FILE_NOT_EXIST", "FileNotFoundException", "No such file or directory"),
)
# What univocity, Spark's parser of csv, says of a field beyond maxCharsPerColumn.
_TOO_LONG = re.compile(r"Length of parsed input \(\d+\) exceeds the maximum number of characters .*?\((\d+)\)")
_RECORD = re.compile(r"Internal state when error was thrown: line=\d+, column=(?P<column>\d+), record=(?P<record>\d+)")
_LINK_NAME = re.compile(r"\d{10}-[0-9a-f]{8}[\w.+-]*")


class UnreadableFile(LinkedFile):
    """The record of a file that was quarantined whole; ``kept`` is its name there, None for one that vanished.
    ``is_read``: its rows are in the table since a refresh; what is kept is where they can be read again."""

    link: str
    reason: str
    kept: str | None
    is_read: NotRequired[bool]


def set_aside_unreadable(
    folder: Path,
    intake: Path,
    links: Iterable[str],
    spec: FilesSource,
    originals: Mapping[str, LinkedFile],
    error_text: str = "",
) -> list[str]:
    """Put stand-ins for the files that a failed batch cannot be read for. Returns their original paths.

    Text is looked at file by file. For parquet and orc, and where nothing is found, the file that Spark names in
    ``error_text`` is the one: what another library makes of a file is not what Spark makes of it.
    """
    waiting = [link for link in links if not is_set_aside(folder, intake, link)]
    reasons: dict[str, str] = {}
    if spec.format not in SELF_DESCRIBING_FORMATS:
        reasons = {link: reason for link in waiting if (reason := why_unreadable(intake / link, spec)) is not None}
    return set_aside(folder, intake, reasons or _named_by_spark(intake, waiting, spec, error_text), spec, originals)


def set_aside(
    folder: Path,
    intake: Path,
    reasons: Mapping[str, str],
    spec: FilesSource,
    originals: Mapping[str, LinkedFile],
) -> list[str]:
    """Keep each file of ``reasons`` {link: why} in ``folder`` and put a stand-in in its place. Returns their original
    paths. May be repeated after a crash."""
    found = []
    for link, reason in reasons.items():
        path = intake / link
        kept = folder / flat_name(link)
        _keep(path.resolve(), kept)
        original = originals.get(link)
        record = {"link": link, "reason": reason, "kept": kept.name, **(original or {})}
        storage.put_if_absent(record_path(folder, link), storage.dump_json(record))
        _put_stand_in(path, spec)
        found.append(link if original is None else original.get("file") or original["path"])
    return found


def set_aside_vanished(folder: Path, path: Path, link: str, spec: FilesSource, original: LinkedFile) -> None:
    """A file that Spark has planned to read is gone: an empty stand-in at ``path``, and the record of it."""
    record = {"link": link, "reason": "vanished before it was read", "kept": None, **original}
    storage.put_if_absent(record_path(folder, link), storage.dump_json(record))
    storage.replace(path, _empty_file(path, spec))


def read_whole_again(paths: PipelinePaths, source_name: str, ledger: Ledger) -> None:
    """Files in quarantine whole that wait to be read again get new links to what is kept of them, and are as if they
    had never been read. A file that vanished, or is no longer kept, keeps its stand-in. May be repeated after a crash.

    To be called between :meth:`Ledger.untake` and :func:`tidegate.sources.files.intake.restore_links`.
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
    """Whether a file is in quarantine whole, and not read since."""
    record = unreadable_record(folder, link)
    return record is not None and not record.get("is_read", False)


def take_over_whole(folder: Path, other: Path, links: Iterable[str], check_lease: Callable[[], None]) -> None:
    """Keep in ``folder`` what a job has quarantined whole, whose own folder is ``other``. May be repeated, also when
    that is gone."""
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
    """Say of files that were in quarantine whole that their rows are in the table now. May be repeated."""
    for link in links:
        record = unreadable_record(folder, link)
        if record is not None and not record.get("is_read", False):
            check_lease()
            storage.replace(record_path(folder, link), storage.dump_json({**record, "is_read": True}))


def kept_file(folder: Path, link: str) -> Path | None:
    """What is kept of a file that is in quarantine whole; None for any other, and for one that vanished."""
    record = unreadable_record(folder, link)
    kept = folder / record["kept"] if record is not None and record["kept"] else None
    return kept if kept is not None and kept.is_file() else None


def has_rows(path: Path, spec: FilesSource) -> bool:
    """Whether the stand-in at ``path`` has rows of the file it stands for."""
    return spec.format not in SELF_DESCRIBING_FORMATS and path.stat().st_size != len(_empty_file(path, spec))


def unreadable_record(folder: Path, link: str) -> UnreadableFile | None:
    """The record of a link that was quarantined whole, else None."""
    value: UnreadableFile | None = storage.read_json(record_path(folder, link))
    return value


def count_kept_rows(kept: Path, spec: SourceSpec) -> int | None:
    """The rows of a kept file by its footer; None where it has none, or none that can be read."""
    if not isinstance(spec, FilesSource) or spec.format not in SELF_DESCRIBING_FORMATS:
        return None
    from tidegate.sources.files import columnar_files

    return columnar_files.count_rows(kept, spec.format)


def why_unreadable(path: Path, spec: FilesSource) -> str | None:
    """Why the file cannot be read to its end, or None when it can (or is away: that is another error)."""
    try:
        if spec.format in SELF_DESCRIBING_FORMATS:
            from tidegate.sources.files import columnar_files

            return columnar_files.find_fault(path, spec.format)
        if path.suffix in _CHECKED:
            check_compressed(path)
        return _header_fault(path, spec) or why_too_long(path, spec)
    except FileNotFoundError:
        return None
    except TornFile as error:
        return str(error.args[0])
    except OSError as error:
        # A file on a bad block stays unreadable; what else a file system reports may be over at the next run.
        if error.errno != errno.EIO and (failed := storage.name_failure(error, path)) is not None:
            raise failed from error
        return f"{type(error).__name__}: {error.strerror or error}"


def why_kept_back(path: Path, spec: FilesSource) -> str | None:
    """Why Spark must not be given the file: lines or values that are too large for a record, or damage that Spark
    passes over in silence, with the records behind it. None where there is no reason, or the file is away."""
    if spec.format in SELF_DESCRIBING_FORMATS:
        from tidegate.sources.files import large_values

        return large_values.why_too_large(path, spec)
    try:
        if path.suffix in BLOCK_SUFFIXES:
            check_compressed(path)
        return _why_named_wrong(path) or find_too_long(path, spec)
    except FileNotFoundError:
        return None
    except TornFile as error:
        return str(error.args[0])
    except (OSError, EOFError, zlib.error):
        return why_unreadable(path, spec) if path.suffix in SILENT_SUFFIXES else None


def _why_named_wrong(path: Path) -> str | None:
    """Of a file whose name does not say so, that it is compressed: Spark would take it for text."""
    if path.suffix in SPARK_CODECS:
        return None
    with open(path, "rb") as stream:
        begin = stream.read(_LONGEST_BEGIN)
    return next((f"it is {kind}" for magic, kind in _COMPRESSED_BEGINS.items() if begin.startswith(magic)), None)


def is_passing(error_text: str) -> bool:
    """Whether an error of Spark's is the machine's fault, not that of the file it names."""
    return any(word in error_text for word in _PASSING)


def _named_by_spark(intake: Path, links: list[str], spec: FilesSource, error_text: str) -> dict[str, str]:
    fault = PartUnreadable.find(error_text)
    if is_passing(error_text) or (fault is not None and fault.errno is not None):
        return {}
    if fault is not None:
        of_fault = [link for link in links if str(intake / link) == fault.path]
        return {link: why_unreadable(intake / link, spec) or fault.reason for link in of_fault}
    named = {
        name.rstrip(".")
        for line in error_text.splitlines()
        if any(word in line for word in _NAMES_A_FILE)
        for name in _LINK_NAME.findall(line)
    }
    found = [link for link in links if flat_name(link) in named and (intake / link).exists()]
    return {link: why_unreadable(intake / link, spec) or reason_of(error_text) for link in found}


def reason_of(error_text: str) -> str:
    """Why Spark cannot read a file: the last cause it gives, one line, without the file's name in the intake."""
    if (limit := _TOO_LONG.search(error_text)) and (place := _RECORD.search(error_text, limit.end())):
        before, field = int(place["record"]), int(place["column"]) + 1
        return (
            f"after {before:,} records (a header is one), field {field:,} of the next has more than {int(limit[1]):,} "
            "characters: is its quote closed?"
        )
    if (fault := PartUnreadable.find(error_text)) is not None:
        return fault.reason
    causes = [line.split(": ", 1)[-1] for line in error_text.splitlines() if line.startswith("Caused by: ")]
    told = next((cause for cause in reversed(causes) if not _LINK_NAME.search(cause)), "")
    return f"Spark cannot read it: {told[:300] or 'its content does not fit the schema'}"


def _header_fault(path: Path, spec: FilesSource) -> str | None:
    if spec.format != "csv" or str(spec.options.get("header", "false")).lower() != "true":
        return None
    opener: Any = {".gz": gzip.open, ".bz2": bz2.open}.get(path.suffix, open)
    encoding = str(spec.options.get("encoding", "utf-8-sig"))
    separator = str(spec.options.get("sep", spec.options.get("delimiter", ",")))
    quote = str(spec.options.get("quote", '"')) or None
    comment = str(spec.options.get("comment", ""))
    if len(separator) != 1:
        return None
    names: list[str] = []
    with opener(path, "rb") as stream:
        text = io.TextIOWrapper(stream, encoding=encoding, errors="replace", newline="")
        try:
            for names in csv.reader(text, delimiter=separator, quotechar=quote or "\0"):
                if names and not (comment and names[0].startswith(comment)):
                    break
        except (csv.Error, EOFError, LookupError):
            return None
    in_folders = {column.lower() for column in partition_of(_partition_folders(path), None)}
    wanted = [column.name for column in parse_ddl(spec.schema_ or "") if column.name.lower() not in in_folders]
    if names and [name.lower() for name in names] != [name.lower() for name in wanted]:
        return f"its header is {', '.join(names)}; the schema wants {', '.join(wanted)}"
    return None


def _partition_folders(link: Path) -> str:
    """The ``k=v/...`` folders right above a link."""
    return "/".join(itertools.takewhile(lambda name: "=" in name, (folder.name for folder in link.parents)))


def is_set_aside(folder: Path, intake: Path, link: str) -> bool:
    """Whether a stand-in has taken the link's place: a process may have been killed between the record and that."""
    path, kept = intake / link, folder / flat_name(link)
    if path.is_symlink() or not record_path(folder, link).exists():
        return False
    return not (kept.exists() and path.exists() and os.path.samefile(path, kept))


def _keep(source: Path, kept: Path) -> None:
    kept.parent.mkdir(parents=True, exist_ok=True)
    if kept.exists():
        return
    try:
        os.link(source, kept)
    except OSError as error:
        if error.errno not in (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP):
            raise
        part = kept.with_name(f".{kept.name}.{secrets.token_hex(6)}")
        shutil.copy2(source, part)
        storage.sync_file(part)
        os.replace(part, kept)
    storage.sync_folder(kept.parent)


def _put_stand_in(path: Path, spec: FilesSource) -> None:
    """What Spark reads instead: the whole lines that can be trusted, or no rows."""
    is_text = spec.format not in SELF_DESCRIBING_FORMATS and has_line_records(spec)
    too_long = is_text and why_too_long(path, spec) is not None
    if is_text and (too_long or path.suffix in _CHECKED) and _header_fault_or_none(path, spec) is None:
        # Hidden from Spark until it is whole, and beside the link so that the rename is one step.
        part = path.with_name(f".{secrets.token_hex(6)}{path.suffix}")
        try:
            if too_long:
                write_other_lines(path, part, spec)
            else:
                write_readable_part(path, part, line_end(spec))
            os.replace(part, path)
            storage.sync_folder(path.parent)
        finally:
            part.unlink(missing_ok=True)
    else:
        storage.replace(path, _empty_file(path, spec))


def _header_fault_or_none(path: Path, spec: FilesSource) -> str | None:
    try:
        return _header_fault(path, spec)
    except OSError:
        return None


def _empty_file(path: Path, spec: FilesSource) -> bytes:
    if spec.format in SELF_DESCRIBING_FORMATS:
        from tidegate.sources.files import columnar_files

        return columnar_files.make_empty(spec.format)
    return EMPTY_FILES.get(path.suffix, b"")
