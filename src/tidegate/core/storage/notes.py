"""Values as JSON files, and numbered notes of which the highest counts."""

from __future__ import annotations

import contextlib
import json
import shlex
from collections.abc import Iterator
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

from tidegate.core.errors import DisagreementError
from tidegate.core.storage.reading import list_names, read
from tidegate.core.storage.syncing import sync_folder
from tidegate.core.storage.writing import remove, replace


class UnreadableStateError(DisagreementError, ValueError):
    """A file of the state folder that was cut, edited or exchanged."""

    def __init__(self, path: Path, why: Exception) -> None:
        quoted = shlex.quote(str(path))
        super().__init__(
            "STATE_FILE_UNREADABLE",
            f"{path.name} is not what tidegate wrote: {type(why).__name__}: {why}",
            where=str(path),
            next_run="stops here again; nothing was read or written",
            fix="restore the pipeline's state folder from a backup made together with the table; or "
            f"`mv {quoted} {quoted}.torn`, then `tidegate repair` for this pipeline, which shows what is missing then",
        )


@contextlib.contextmanager
def unreadable_is_named(path: Path) -> Iterator[None]:
    """Raise UnreadableStateError for content of ``path`` that cannot be understood within."""
    try:
        yield
    except UnreadableStateError:
        raise
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise UnreadableStateError(path, error) from error


def dump_json(value: object, *, indent: int | None = 1) -> bytes:
    """``value``, dataclasses in it included, as JSON with a closing newline: indented, but for what has thousands of
    entries, which takes several times as long that way."""
    text = json.dumps(value, indent=indent, ensure_ascii=False, default=_plain)
    try:
        return (text + "\n").encode()
    except UnicodeEncodeError:
        # A file name that is not Unicode (surrogateescape): written as \udcXX it is valid JSON and can be read back.
        return (json.dumps(value, indent=indent, default=_plain) + "\n").encode()


def _plain(value: object) -> object:
    return vars(value) if is_dataclass(value) else str(value)


def read_json(path: Path) -> Any | None:
    """The JSON value in ``path``, or None when the file is not there. Raises UnreadableStateError."""
    try:
        data = read(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    with unreadable_is_named(path):
        return json.loads(data)


def write_note(folder: Path, number: int, value: object, *, only: bool = False) -> None:
    """Write ``folder/<number>.json`` and drop the notes of lower numbers.

    The highest number is what counts, so a writer that was frozen and comes late with a lower one changes nothing.
    ``only``: higher ones are dropped too, because what they speak of was put back, and that is on disk when the call
    returns. The highest goes last, so killed in between the folder still says what it said before, and the same call
    completes it.
    """
    replace(folder / f"{number}.json", dump_json(value))
    for other in sorted(_note_numbers(folder)):
        if other < number or (only and other > number):
            remove(folder / f"{other}.json")
    if only:
        sync_folder(folder)


def read_note(folder: Path) -> dict[str, Any] | None:
    """The note of the highest number in ``folder``; None when there is none. Raises UnreadableStateError."""
    while numbers := _note_numbers(folder):
        path = folder / f"{max(numbers)}.json"
        note = read_json(path)
        if isinstance(note, dict):
            return note
        if note is not None:  # else a newer one took its place just now
            raise UnreadableStateError(path, TypeError("a note is a JSON object"))
    return None


def _note_numbers(folder: Path) -> list[int]:
    names = (name.removesuffix(".json") for name in list_names(folder))
    return [int(name) for name in names if name.isdigit()]
