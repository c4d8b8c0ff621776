"""Quarantined records as the batch's metrics carry them, and as rows for quarantine."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import unquote, urlparse

from tidegate.core.paths import PipelinePaths
from tidegate.sources.files.batch_plan import divide_files
from tidegate.sources.files.ledger import LinkedFile
from tidegate.sources.files.unreadable import UnreadableFile, describe_kept
from tidegate.sources.readers.lines import Records, read_blocks
from tidegate.sources.readers.links import open_link
from tidegate.spark.catalyst.private_api import Metric
from tidegate.spec.models import FilesSource
from tidegate.state.manifest import UNKNOWN_NAMES_AT_MOST
from tidegate.state.topics import FilePart
from tidegate.table.quarantined import CapturedRecord

_PLACE = re.compile(r"#([0-9]+|row)\+([0-9]+)$")
"""Behind the URI of a file: where the part begins that a record is of, and the number of its line in that part; or the
number of its row in the file."""


class PositionFinder:
    """Positions of records from files: ``links`` maps source -> link -> {"path", ...}, ``specs`` the sources to what
    they are."""

    def __init__(
        self, links: Mapping[str, Mapping[str, LinkedFile]], paths: PipelinePaths, specs: Mapping[str, FilesSource]
    ) -> None:
        self._paths, self._specs = paths, specs
        self._counted: dict[Path, dict[int, int]] = {}
        self._by_name = {
            link.rsplit("/", 1)[-1]: (source, link, entry)
            for source, entries in links.items()
            for link, entry in entries.items()
        }

    def original(self, file_uri: str) -> str:
        """The user's path behind a link that Spark names by its URI."""
        name = _link_name(file_uri)
        found = self._by_name.get(name)
        return _shown(found[2]) if found else file_uri

    def locate(self, records: list[CapturedRecord]) -> list[CapturedRecord]:
        """The records with ``position`` as JSON: {"file", "line"} or {"file", "row"} for files, unchanged for Kafka,
        None where unknown."""
        located = [record.copy() for record in records]
        for record in located:
            position = record["position"]
            if position and not position.startswith("{"):
                record["position"] = file_position(self.original(position), *self._number_of(position))
        return located

    def list_places(self) -> list[tuple[str, int, str, int]]:
        """Of each part of each file: (the last part of its link's name, where it begins, the file as positions show
        it, the lines of the file before it)."""
        places = []
        for name, (source, link, entry) in self._by_name.items():
            intake = self._paths.intake(source)
            before = entry["piece"]["line_offset"] if "piece" in entry else 0
            spec = self._specs.get(source)  # None of the texts of a replay
            parts = [FilePart(link)] if spec is None else divide_files(intake, [link], spec)
            for part in parts:
                lines = before + self._lines_before(intake / link, part.begin)
                places.append((name, part.begin, _shown(entry), lines))
        return places

    def _number_of(self, position: str) -> tuple[int | None, str]:
        """(the number of a record's line or row in its file, where its position has one; which of the two it is)."""
        match = _PLACE.search(position)
        if match is None:
            return None, "line"
        number = int(match[2])
        if match[1] == "row":
            return number, "row"
        source, link, entry = self._by_name.get(_link_name(position), (None, None, None))
        if source is None or link is None or entry is None:
            return number, "line"
        before = entry["piece"]["line_offset"] if "piece" in entry else 0
        return number + before + self._lines_before(self._paths.intake(source) / link, int(match[1])), "line"

    def _lines_before(self, path: Path, begin: int) -> int:
        """The lines of a file that begin before the byte ``begin``."""
        counted = self._counted.setdefault(path, {0: 0})
        if begin not in counted:
            nearest = max(one for one in counted if one < begin)
            with open_link(path) as file:
                counted[begin] = counted[nearest] + sum(
                    len(some.texts) if isinstance(some, Records) else 1
                    for some in read_blocks(file, nearest, begin, None)
                )
        return counted[begin]


def link_name_of(position: str) -> str | None:
    """The last part of the name of the link that a record's position leads to; None for one that is in no file."""
    return _link_name(position) if _PLACE.search(position) else None


def _link_name(position: str) -> str:
    return unquote(urlparse(position).path).rsplit("/", 1)[-1]


def _shown(entry: LinkedFile) -> str:
    return entry.get("file") or entry["path"]


def file_position(path: str, number: int | None = None, unit: str = "line") -> str:
    """The position of a record in a file, as quarantine keeps it; a name that is not Unicode is escaped."""
    value: dict[str, object] = {"file": path} if number is None else {"file": path, unit: number}
    text = json.dumps(value, ensure_ascii=False)
    return text if text.isprintable() else json.dumps(value)


def unknown_places(metric: Metric) -> dict[str, str]:
    """{name of a field that the schema lacks: position of a record that has it} of a ``source:<name>`` metric."""
    by_kind = [value for key, value in metric.items() if key.startswith(("unknown_first_", "unknown_last_")) and value]
    places: dict[str, str] = {}
    for place in [*(metric.get("unknown_places") or []), *by_kind]:
        for name in place["_unknown"]:
            places.setdefault(name, place["_position"])
    return dict(sorted(places.items())[:UNKNOWN_NAMES_AT_MOST])


@dataclass
class Captured:
    """The quarantined records of one batch, with positions as the readers gave them."""

    from_metrics: list[CapturedRecord] = field(default_factory=list)
    """Malformed records and rejected rows: all of them where ``is_complete``."""
    others: list[CapturedRecord] = field(default_factory=list)
    """Whole files that could not be read, and late records."""
    is_complete: bool = True

    def add(self, metric: Metric, counted: str) -> None:
        """Add the records of a metric, which has their number as ``counted``."""
        found = [*(metric.get("captured") or []), *(metric.get("captured_long") or [])]
        self.is_complete = self.is_complete and len(found) == int(metric[counted])
        self.from_metrics += [
            CapturedRecord(
                source=record.get("source"),
                position=record.get("position"),
                raw=record.get("raw"),
                reason=record["reason"],
                detail=record.get("detail"),
            )
            for record in found
        ]

    def add_unreadable(self, source: str, path: str, record: UnreadableFile) -> None:
        """Add a whole file that could not be read."""
        detail = record["reason"] + (describe_kept(record["kept"]) if record["kept"] else "")
        self.others.append(
            CapturedRecord(source=source, position=file_position(path), raw=None, reason="malformed", detail=detail)
        )


def quarantine_row(pipeline: str, run_id: str, record: CapturedRecord) -> dict[str, object]:
    """A captured record as a row of the quarantine table."""
    return {"pipeline": pipeline, "run_id": run_id, **record, "quarantined_at": datetime.now(UTC)}
