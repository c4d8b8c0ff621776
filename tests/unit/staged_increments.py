"""An increment in staging, made by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from tests.support.held import COLUMNS, Held
from tests.support.staged import QUERY, Stager
from tidegate.core import storage
from tidegate.state.manifest import SourceRange, StagedFile, write_manifest
from tidegate.table.quarantine.read import write_quarantine_rows


def stage(held: Held, good: int, malformed: Mapping[str, int], whole: Sequence[Mapping[str, Any]] = ()) -> None:
    """A batch of good records and of malformed ones, {detail: how many}."""
    manifest = Stager(held.paths, COLUMNS, []).stage(held.next_batch, [{"id": n, "n": n} for n in range(good)])
    path = held.paths.staging / QUERY / f"{held.next_batch:012d}" / "a1" / "quarantine" / "part-0.parquet"
    aside = {"reason": "malformed", "raw": "{", "quarantined_at": datetime(2026, 1, 1, tzinfo=UTC)}
    details = [detail for detail, count in malformed.items() for _ in range(count)]
    count = write_quarantine_rows(path, [{**aside, "detail": detail} for detail in details])
    name = str(path.relative_to(held.paths.state))
    file = StagedFile(name, count, path.stat().st_size, {}, storage.digest(path))
    manifest = replace(
        manifest,
        sources={"orders": SourceRange(good + count, count, whole_files=[dict(one) for one in whole])},
        quarantine_files=[file],
        quarantined=count,
    )
    write_manifest(held.paths.manifest(QUERY, held.next_batch), manifest)
    held.next_batch += 1
