"""Export of quarantined records as JSON lines, to be read elsewhere, or edited and replayed."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from tidegate.core import storage
from tidegate.table import errors
from tidegate.table.quarantine.filters import QuarantineFilter


def export_quarantine(table_path: Path, wanted: QuarantineFilter, to: Path | None, stdout: TextIO) -> int:
    """Write the records to the new file ``to``, or to ``stdout``; returns their number.

    Each line is a JSON object with the keys of ``quarantine show --json``. Some hundreds of records are in memory at a
    time. The file gets its name when it is complete. Raises UsageError EXPORT_EXISTS and EXPORT_PLACE.
    """
    if to is None:
        return _write(table_path, wanted, stdout)
    if os.path.lexists(to):
        raise errors.EXPORT_EXISTS(path=to)
    part = to.with_name(f".{to.name}.{os.getpid()}.part")
    with _place_is_named(to):
        stream = part.open("x", encoding="utf-8")
    try:
        with stream:
            count = _write(table_path, wanted, stream)
            stream.flush()
            os.fsync(stream.fileno())
        with _place_is_named(to):
            os.link(part, to)
    finally:
        part.unlink(missing_ok=True)
    return count


@contextlib.contextmanager
def _place_is_named(to: Path) -> Iterator[None]:
    """Turn errors about the export's file, which was named on the command line, into UsageError."""
    try:
        yield
    except FileExistsError as error:
        raise errors.EXPORT_EXISTS(path=to) from error
    except OSError as error:
        if storage.is_disk_full(error):
            raise
        raise errors.EXPORT_PLACE(path=to, why=error.strerror or error) from error


def _write(table_path: Path, wanted: QuarantineFilter, stream: TextIO) -> int:
    from tidegate.table.quarantine.read import to_record
    from tidegate.table.quarantine.records import walk_quarantine

    count = 0
    for found in walk_quarantine(table_path, wanted):
        count += 1
        stream.write(json.dumps(to_record(found.id, found.row), ensure_ascii=False) + "\n")
    return count
