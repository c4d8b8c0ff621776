"""Read edited records: a file of JSON lines with ``id`` and ``raw``."""

from __future__ import annotations

import json
from pathlib import Path

from tidegate.core.errors import UsageError
from tidegate.rework import errors


def read_edits(path: Path) -> dict[str, str]:
    """Read {id: text} from a file of edited records. Raises UsageError REPLAY_FILE, with the line and the fault."""
    edits: dict[str, str] = {}
    lines: dict[str, int] = {}
    try:
        with path.open(encoding="utf-8-sig") as stream:
            for number, line in enumerate(stream, start=1):
                if not line.strip():
                    continue
                id_, raw = _read(line, path, number)
                if id_ in edits:
                    raise _fault(path, number, f"the id {id_} is in line {lines[id_]} too")
                edits[id_], lines[id_] = raw, number
    except OSError as error:
        raise _fault(path, None, str(error.strerror or error)) from error
    except UnicodeDecodeError as error:
        raise _fault(path, None, f"it is not UTF-8 ({error.reason} at byte {error.start})") from error
    return edits


def _read(line: str, path: Path, number: int) -> tuple[str, str]:
    try:
        value = json.loads(line)
    except ValueError as error:
        raise _fault(path, number, f"it is not JSON ({error})") from error
    if not isinstance(value, dict) or not isinstance(value.get("id"), str):
        raise _fault(path, number, "it has no `id`, a text")
    raw = value.get("raw")
    if not isinstance(raw, str):
        hint = "; a record of a JSON source is a text here, in quotes" if isinstance(raw, dict | list) else ""
        raise _fault(path, number, f"its `raw` is not a text{hint}")
    if not raw.strip():
        raise _fault(path, number, "its `raw` is empty: remove the line of a record that should stay in quarantine")
    try:
        raw.encode()
    except UnicodeEncodeError as error:
        raise _fault(path, number, "its `raw` has half of a character (a lone surrogate)") from error
    return str(value["id"]), raw


def _fault(path: Path, number: int | None, fault: str) -> UsageError:
    place = str(path) if number is None else f"{path}:{number}"
    return errors.REPLAY_FILE(where=place, fault=fault)
