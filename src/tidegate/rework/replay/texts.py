"""The records of a replay as files in its own intake: a text and its position each (:class:`~..TextsSource`)."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tidegate.core import storage
from tidegate.core.paths import PipelinePaths
from tidegate.sources.files.ledger import LinkedFile
from tidegate.spec.as_read import PLACE_COLUMN, TEXT_COLUMN

_HELD_CHARACTERS = 16 << 20
_SCHEMA = pa.schema([(TEXT_COLUMN, pa.string()), (PLACE_COLUMN, pa.string())])


class TextFiles:
    """Files of texts below the intakes of a job. ``links`` are those that were written, as an order has them."""

    def __init__(self, paths: PipelinePaths) -> None:
        self._paths = paths
        self._held: dict[tuple[str, str], list[tuple[str, str | None]]] = {}
        self._characters = 0
        self._written = 0
        self.links: dict[str, dict[str, LinkedFile]] = {}
        self.bytes = 0

    def take(self, source: str, folder: str, text: str, position: str | None) -> None:
        """One more text; some millions of characters are held, then written."""
        self._held.setdefault((source, folder), []).append((text, position))
        self._characters += len(text)
        if self._characters >= _HELD_CHARACTERS:
            self.flush()

    def flush(self) -> None:
        """Write what is held."""
        for (source, folder), rows in self._held.items():
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
        self._held, self._characters = {}, 0

    @property
    def partition_columns(self) -> dict[str, list[str]]:
        """The columns that are in folder names, by source."""
        found = {}
        for source, links in self.links.items():
            parts = {part.partition("=")[0] for link in links for part in Path(link).parent.parts if "=" in part}
            found[source] = sorted(parts)
        return found
