"""The storage port: the few operations on which every promise stands, each atomic and durable.

Local file systems only, so far. A write is on disk (file and folder fsynced) when the call returns, so that a record
that says "done" can never outlive the thing it speaks of.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tidegate.errors import TryAgainError


@contextlib.contextmanager
def _disk_full_is_named(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise disk_full(path) from error


def disk_full(path: Path | str) -> TryAgainError:
    """The error for a full disk or an exhausted quota under ``path``."""
    return TryAgainError(
        "DISK_FULL",
        f"no space left on the device that holds {path}",
        where=str(path),
        next_run="starts where this one stopped; nothing is lost",
        fix=f"free space (df -h {Path(path).parent}), then run again",
    )


def fsync_dir(path: Path) -> None:
    """Make the names in folder ``path`` durable."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def fsync_file(path: Path) -> None:
    """Make the bytes of file ``path``, written by somebody else, durable."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _write_beside(path: Path, data: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{secrets.token_hex(6)}.tmp")
    try:
        with open(beside, "xb") as handle:
            handle.write(data)
            handle.flush()
            os.fsync(handle.fileno())
    except BaseException:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)
        raise
    return beside


def put_if_absent(path: Path, data: bytes) -> bool:
    """Create ``path`` with ``data`` unless it is there; True when this call created it. Never a torn or partial
    file.
    """
    with _disk_full_is_named(path):
        beside = _write_beside(path, data)
        try:
            os.link(beside, path)
        except FileExistsError:
            return False
        finally:
            beside.unlink(missing_ok=True)
        fsync_dir(path.parent)
        return True


def replace(path: Path, data: bytes) -> None:
    """Write ``path`` whole, over what is there; a reader sees the old bytes or the new ones."""
    with _disk_full_is_named(path):
        beside = _write_beside(path, data)
        os.replace(beside, path)
        fsync_dir(path.parent)


def move(source: Path, target: Path) -> bool:
    """Move a finished file into place. False when ``source`` is gone and ``target`` is there: somebody did it already.

    Across devices the bytes are copied beside the target under a hidden name first, so a reader never sees a torn file.
    """
    with _disk_full_is_named(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.rename(source, target)
        except FileNotFoundError:
            if target.exists():
                return False
            raise
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            beside = target.with_name(f".{target.name}.{secrets.token_hex(6)}.tmp")
            with open(source, "rb") as reader, open(beside, "xb") as writer:
                shutil.copyfileobj(reader, writer, 1 << 20)
                writer.flush()
                os.fsync(writer.fileno())
            os.rename(beside, target)
            source.unlink(missing_ok=True)
        return True


def remove(path: Path) -> None:
    """Remove a file, or nothing when it is gone already."""
    path.unlink(missing_ok=True)


def remove_tree(path: Path) -> None:
    """Remove a folder and all in it, or nothing when it is gone already."""
    shutil.rmtree(path, ignore_errors=True)


def read_json(path: Path) -> Any | None:
    """The JSON value in ``path``, or None when the file is not there."""
    try:
        data = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return json.loads(data)


def write_note(folder: Path, number: int, value: Any, *, only: bool = False) -> None:
    """Write ``folder/<number>.json`` and drop the notes of lower numbers.

    The highest number is what counts, so a writer that was frozen and comes late with a lower one changes nothing.
    ``only``: higher ones are dropped too, because what they speak of was put back. The highest goes last, so killed in
    between the folder still says what it said before, and the same call completes it.
    """
    replace(folder / f"{number}.json", dump_json(value))
    for other in sorted(_note_numbers(folder)):
        if other < number or (only and other > number):
            remove(folder / f"{other}.json")


def read_note(folder: Path) -> Any | None:
    """The note of the highest number in ``folder``; None when there is none."""
    while numbers := _note_numbers(folder):
        note = read_json(folder / f"{max(numbers)}.json")
        if note is not None:  # else a newer one took its place just now
            return note
    return None


def _note_numbers(folder: Path) -> list[int]:
    try:
        return [int(name.removesuffix(".json")) for name in os.listdir(folder) if name.removesuffix(".json").isdigit()]
    except FileNotFoundError:
        return []


def dump_json(value: Any) -> bytes:
    """``value`` as indented JSON with a closing newline, the one form of every file tidegate keeps."""
    text = json.dumps(value, indent=1, ensure_ascii=False, default=str)
    try:
        return (text + "\n").encode()
    except UnicodeEncodeError:
        # A file name that is no Unicode (surrogateescape): written as \udcXX it is valid JSON and can be read back.
        return (json.dumps(value, indent=1, default=str) + "\n").encode()
