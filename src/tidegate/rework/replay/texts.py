"""Write the records of a replay as files in its own intake, each with text and position."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tidegate.core import storage
from tidegate.core.paths import PipelinePaths
from tidegate.sources.files.ledger import LinkedFile
from tidegate.spec.as_read import PLACE_COLUMN, TEXT_COLUMN

_BUFFERED_CHARACTERS = 16 << 20
_SCHEMA = pa.schema([(TEXT_COLUMN, pa.string()), (PLACE_COLUMN, pa.string())])


class TextFiles:
    """Files of texts in the intakes of a job. ``links`` are the written files, as in an order."""

    def __init__(self, paths: PipelinePaths) -> None:
        self._paths = paths
        self._buffered: dict[tuple[str, str], list[tuple[str, str | None]]] = {}
        self._characters = 0
        self._written = 0
        self.links: dict[str, dict[str, LinkedFile]] = {}
        self.bytes = 0

    def take(self, source: str, folder: str, text: str, position: str | None) -> None:
        """Add one text; texts are buffered, and written after some millions of characters."""
        self._buffered.setdefault((source, folder), []).append((text, position))
        self._characters += len(text)
        if self._characters >= _BUFFERED_CHARACTERS:
            self.flush()

    def flush(self) -> None:
        """Write the buffered texts."""
        for (source, folder), rows in self._buffered.items():
            name = f"{self._written:08d}.parquet"
            link = f"{folder}/{name}" if folder else name
            path = self._paths.intake(source) / link
            columns = {TEXT_COLUMN: [text for text, _ in rows], PLACE_COLUMN: [place for _, place in rows]}
            with storage.create(path) as handle:
                pq.write_table(pa.table(columns, schema=_SCHEMA), handle)
            size = storage.stat(path)
            file: LinkedFile = {"path": link, "size": size.size_bytes, "mtime_ns": size.modified_ns}
            self.links.setdefault(source, {})[link] = file
            self.bytes += size.size_bytes
            self._written += 1
        self._buffered, self._characters = {}, 0

    @property
    def partition_columns(self) -> dict[str, list[str]]:
        """The columns in folder names, by source."""
        found = {}
        for source, links in self.links.items():
            parts = {part.partition("=")[0] for link in links for part in Path(link).parent.parts if "=" in part}
            found[source] = sorted(parts)
        return found
