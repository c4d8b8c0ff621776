"""Moving a finished parquet file to its place in the table folder, so that no late process can put it there again.

On one device this is a rename: whoever comes second finds the staged file gone. Across devices the bytes are copied
beside the target first, and a second process that fell asleep over such a copy could wake up after the file was
compacted away and put its copy in. So a copy is made in the order *create the copy's name, open the source*, and
every publish, once its sources are gone, removes the copies' names: a sleeper then has either a source that is gone
or a copy that is gone.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import secrets
from pathlib import Path

from tidegate import storage
from tidegate.staging.digest import damaged
from tidegate.table.publish.intent import FileToAdd

COPY_SUFFIX = ".incoming"
"""Copies end so and start with a dot: neither ``*.parquet`` globs nor Spark's listing see them."""

_CHUNK_BYTES = 1 << 20


def place_file(source: Path, target: Path, file: FileToAdd, pipeline: str) -> bool:
    """Move ``source``, whose bytes are made durable first, to ``target``; False when somebody did it already.

    The target's folder must exist. Raises FileNotFoundError when both are gone, TryAgainError DISK_FULL, and
    DisagreementError STAGED_FILE_DAMAGED when the bytes that were copied are not those of ``file``. The caller makes
    the folder durable.
    """
    try:
        storage.fsync_file(source)
        os.rename(source, target)
        return True
    except FileNotFoundError:
        if target.exists():
            return False
        raise
    except OSError as error:
        if storage.is_disk_full(error):
            raise storage.disk_full(target) from error
        if error.errno != errno.EXDEV:
            raise
    return _copy_over(source, target, file, pipeline)


def _copy_over(source: Path, target: Path, file: FileToAdd, pipeline: str) -> bool:
    beside = target.with_name(f".{target.name}.{secrets.token_hex(6)}{COPY_SUFFIX}")
    try:
        with open(beside, "xb") as writer, open(source, "rb") as reader:
            copied = hashlib.sha256()
            while chunk := reader.read(_CHUNK_BYTES):
                copied.update(chunk)
                writer.write(chunk)
            writer.flush()
            os.fsync(writer.fileno())
        if file.sha256 not in ("", copied.hexdigest()):
            raise damaged(source, "other bytes came out of the disk when it was copied than were written", pipeline)
        os.rename(beside, target)
    except BaseException as error:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)
        if isinstance(error, FileNotFoundError) and target.exists():
            return False
        if storage.is_disk_full(error):
            raise storage.disk_full(target) from error
        raise
    storage.fsync_dir(target.parent)  # the copy must be on disk before the source goes
    source.unlink(missing_ok=True)
    return True


def remove_copies(target: Path) -> None:
    """Remove copies of ``target`` that another process began; only once the source is gone."""
    for path in target.parent.glob(f".{_escape_glob(target.name)}.*{COPY_SUFFIX}"):
        path.unlink(missing_ok=True)


def _escape_glob(name: str) -> str:
    return "".join(f"[{char}]" if char in "*?[" else char for char in name)
