"""From intake links back to the user's files, and to the line where it is known."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from urllib.parse import unquote, urlparse

from tidegate.paths import PipelinePaths
from tidegate.quarantine.schema import CapturedRecord
from tidegate.sources.files.ledger import LinkedFile
from tidegate.sources.files.line_numbers import line_numbers

_SEARCH_AT_MOST_BYTES = 512 << 20


class PositionFinder:
    """Positions of records from files: ``links`` maps source -> link -> {"path", ...}; ``separators`` maps a source to
    what ends its lines, where that is not a line break, ``encodings`` to how it is written, where not in UTF-8."""

    def __init__(
        self,
        links: Mapping[str, Mapping[str, LinkedFile]],
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
        return _shown(found[2]) if found else file_uri

    def locate(self, records: list[CapturedRecord]) -> list[CapturedRecord]:
        """The records with ``position`` as JSON: {"file", "line"} for files, unchanged for Kafka, None where
        unknown.
        """
        wanted: dict[str, list[int]] = defaultdict(list)
        for number, record in enumerate(records):
            position = record["position"]
            if position and not position.startswith("{"):
                wanted[unquote(urlparse(position).path).rsplit("/", 1)[-1]].append(number)
        located = [record.copy() for record in records]
        for name, numbers in wanted.items():
            shown, lines = name, dict[int, int]()
            if name in self._by_name:
                source, link, entry = self._by_name[name]
                shown = _shown(entry)
                offset = entry["piece"]["line_offset"] if "piece" in entry else 0
                texts = {number: raw for number in numbers if (raw := records[number]["raw"]) is not None}
                found = line_numbers(
                    self._paths.intake(source) / link,
                    list(texts.values()),
                    limit_bytes=_SEARCH_AT_MOST_BYTES,
                    line_separator=self._separators.get(source),
                    encoding=self._encodings.get(source, "UTF-8"),
                )
                lines = {number: line for number, line in zip(texts, found, strict=True) if line is not None}
                lines = {number: line + offset for number, line in lines.items()}
            for number in numbers:
                located[number]["position"] = file_position(shown, lines.get(number))
        return located


def _shown(entry: LinkedFile) -> str:
    return entry.get("file") or entry["path"]


def file_position(path: str, line: int | None = None) -> str:
    """The position of a record in a file, as quarantine keeps it; a name that is not Unicode is escaped."""
    value: dict[str, object] = {"file": path} if line is None else {"file": path, "line": line}
    text = json.dumps(value, ensure_ascii=False)
    return text if text.isprintable() else json.dumps(value)
