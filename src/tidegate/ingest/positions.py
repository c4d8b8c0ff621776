"""From intake links back to the user's files, and to the line where it is known."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote, urlparse

from tidegate.project import PipelinePaths
from tidegate.sources.files.line_numbers import line_numbers

_SEARCH_AT_MOST_BYTES = 512 << 20


class PositionFinder:
    """Positions of records from files: ``links`` maps source -> link -> {"path", ...}; ``separators`` maps a source to
    what ends its lines, where that is not a line break, ``encodings`` to how it is written, where not in UTF-8."""

    def __init__(
        self,
        links: Mapping[str, Mapping[str, Mapping[str, Any]]],
        paths: PipelinePaths,
        separators: Mapping[str, str] | None = None,
        encodings: Mapping[str, str] | None = None,
    ) -> None:
        self._paths = paths
        self._separators = separators or {}
        self._encodings = encodings or {}
        self._by_name = {
            link.rsplit("/", 1)[-1]: (source, link, entry)
            for source, entries in links.items()
            for link, entry in entries.items()
        }

    def original(self, file_uri: str) -> str:
        """The user's path behind a link that Spark names by its URI."""
        name = unquote(urlparse(file_uri).path).rsplit("/", 1)[-1]
        found = self._by_name.get(name)
        return _file_of(found[2]) if found else file_uri

    def locate(self, records: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The records with ``position`` as JSON: {"file", "line"} for files, unchanged for Kafka, None where
        unknown.
        """
        wanted: dict[str, list[int]] = defaultdict(list)
        for number, record in enumerate(records):
            position = record["position"]
            if position and not position.startswith("{"):
                wanted[unquote(urlparse(position).path).rsplit("/", 1)[-1]].append(number)
        located = [dict(record) for record in records]
        for name, numbers in wanted.items():
            unknown: tuple[str | None, str | None, Mapping[str, Any]] = (None, None, {"path": name})
            source, link, entry = self._by_name.get(name, unknown)
            offset = int((entry.get("piece") or {}).get("line_offset", 0))
            lines: dict[int, int] = {}
            if source is not None and link is not None:
                with_raw = [number for number in numbers if records[number]["raw"] is not None]
                found = line_numbers(
                    self._paths.intake(source) / link,
                    [records[number]["raw"] for number in with_raw],
                    limit_bytes=_SEARCH_AT_MOST_BYTES,
                    line_separator=self._separators.get(source),
                    encoding=self._encodings.get(source, "UTF-8"),
                )
                lines = {number: line for number, line in zip(with_raw, found, strict=True) if line is not None}
                lines = {number: line + offset for number, line in lines.items()}
            for number in numbers:
                located[number]["position"] = file_position(_file_of(entry), lines.get(number))
        return located


def _file_of(entry: Mapping[str, Any]) -> str:
    return str(entry.get("file") or entry["path"])


def file_position(path: str, line: int | None = None) -> str:
    """The position of a record in a file, as quarantine keeps it; a name that is not Unicode is escaped."""
    value: dict[str, Any] = {"file": path} if line is None else {"file": path, "line": line}
    text = json.dumps(value, ensure_ascii=False)
    return text if text.isprintable() else json.dumps(value)
