"""Quarantined records as the batch's metrics carry them, and as rows for quarantine."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from tidegate.sources.files.unreadable import UnreadableFile, describe_kept
from tidegate.spark.ingest.positions import PositionFinder, file_position
from tidegate.state.manifest import UNKNOWN_NAMES_AT_MOST
from tidegate.table.quarantine.schema import CapturedRecord


def unknown_places(metric: dict[str, Any]) -> dict[str, str]:
    """{name of a field that the schema lacks: position of a record that has it} of a ``source:<name>`` metric."""
    by_kind = [value for key, value in metric.items() if key.startswith(("unknown_first_", "unknown_last_")) and value]
    places: dict[str, str] = {}
    for place in [*(metric.get("unknown_places") or []), *by_kind]:
        for name in place["_unknown"]:
            places.setdefault(name, place["_position"])
    return dict(sorted(places.items())[:UNKNOWN_NAMES_AT_MOST])


def _captured(metric: dict[str, Any]) -> list[dict[str, Any]]:
    return [*(metric.get("captured") or []), *(metric.get("captured_long") or [])]


@dataclass
class Captured:
    """The quarantined records of one batch; ``complete`` when the metrics carried them all."""

    malformed: list[CapturedRecord] = field(default_factory=list)
    unreadable: list[CapturedRecord] = field(default_factory=list)
    rejected: list[CapturedRecord] = field(default_factory=list)
    late: list[CapturedRecord] = field(default_factory=list)
    complete: bool = True

    def add_malformed(self, source: str, metric: dict[str, Any]) -> None:
        """The malformed records of a ``source:<name>`` metric."""
        found = _captured(metric)
        self.complete = self.complete and len(found) == int(metric["malformed"])
        for record in found:
            self.malformed.append(
                {
                    "source": source,
                    "position": record.get("_position"),
                    "raw": record.get("_raw"),
                    "reason": "malformed",
                    "detail": record.get("_detail"),
                }
            )

    def add_unreadable(self, source: str, path: str, record: UnreadableFile) -> None:
        """A whole file that could not be read."""
        kept = record["kept"]
        self.unreadable.append(
            {
                "source": source,
                "position": file_position(path),
                "raw": None,
                "reason": "malformed",
                "detail": record["reason"] + (describe_kept(kept) if kept else ""),
            }
        )

    def add_rejected(self, metric: dict[str, Any]) -> None:
        """The rejected rows of the ``rules`` metric."""
        found = _captured(metric)
        self.complete = self.complete and len(found) == int(metric["rejected"])
        for record in found:
            rules = list(record["rules"])
            self.rejected.append(
                {
                    "source": record.get("source"),
                    "position": record.get("_position"),
                    "raw": record.get("_raw"),
                    "reason": rules[0],
                    "detail": "breaks " + ", ".join(rules),
                }
            )

    def records(self, finder: PositionFinder) -> list[CapturedRecord]:
        """All of them, with positions as people read them."""
        return self.unreadable + finder.locate(self.malformed + self.rejected + self.late)


def quarantine_row(pipeline: str, run_id: str, record: CapturedRecord) -> dict[str, object]:
    """A captured record as a row of the quarantine table."""
    return {"pipeline": pipeline, "run_id": run_id, **record, "quarantined_at": datetime.now(UTC)}
