"""The order of the ingest step to its Spark driver, as one JSON file, and the driver's answer.

A file, not arguments: the command line stays short, holds no secret and no text from a trigger form.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tidegate.core import storage
from tidegate.core.errors import TidegateError
from tidegate.sources.files.ledger import LinkedFile
from tidegate.sources.port import Pinned
from tidegate.state.manifest import TakenFile


@dataclass(frozen=True)
class Bounds:
    """The limits of a side job: what it reads of the source, and which rows it writes."""

    within: dict[str, list[str]]
    """{partition column: values}: the rows that count, values as the table's folders have them."""
    left_out: str = ""
    """A parquet file (source, position, digest) of records that stay in quarantine and are excluded; "" for none."""
    closes_at_ms: int | None = None
    """For a query that keeps state: all is read as one batch, in which no record is late, and its windows are closed by
    exactly this watermark. None: as in a run."""
    days: list[dict[str, list[str]]] = field(default_factory=list)
    """Where the gate judges the partitions one by one: each of them, as in ``within``."""
    closes_all: bool = False
    """Whether windows that are open at the end are closed: the pipeline's query has closed them after no record came
    for long."""


@dataclass(frozen=True)
class IngestOrder:
    """One ingest. ``links`` maps source -> intake link -> its file, of all that Spark is to read."""

    project_root: str
    pipeline: str
    run_id: str
    token: str
    master: str = "local[*]"
    links: dict[str, dict[str, LinkedFile]] = field(default_factory=dict)
    partition_columns: dict[str, list[str]] = field(default_factory=dict)
    pending: dict[str, dict[str, int]] = field(default_factory=dict)
    statics: dict[str, Pinned] = field(default_factory=dict)
    """Static source -> the version that this run reads."""
    table_schema_json: str | None = None
    table_partition_by: list[str] | None = None
    settled: dict[str, int] = field(default_factory=dict)
    """The last batch per query that the table's log holds: Spark may replay it, but it must not be staged again."""
    generation: int = 0
    """The query it is for, by its checkpoint and birth record, even if a successor begins meanwhile."""
    beside: str = ""
    """The folder of a side job, below the state folder; "" for a run."""
    bounds: Bounds | None = None
    """The limits of a side job."""
    of_texts: bool = False
    """Whether a side job is given the texts of its records, with their places (``links``), and reads no source."""
    one_row_each: bool = False
    """Whether no record may become several rows, because some of the rows may be in the table."""

    @property
    def within(self) -> dict[str, list[str]] | None:
        """The partitions of a side job; None for a run."""
        return None if self.bounds is None else self.bounds.within

    @property
    def days(self) -> list[dict[str, list[str]]]:
        """The partitions of a side job that are judged one by one (:attr:`Bounds.days`)."""
        return [] if self.bounds is None else self.bounds.days

    @property
    def closes_at_ms(self) -> int | None:
        """The watermark that closes the windows of a side job (:attr:`Bounds.closes_at_ms`)."""
        return None if self.bounds is None else self.bounds.closes_at_ms

    def original(self, link: str) -> str:
        """The user's file behind an intake link; the link itself when it does not belong to a pending file."""
        file = self._file(link)
        return link if file is None else file.get("file") or file["path"]

    def taken_as(self, link: str, size: int, mtime_ns: int) -> TakenFile:
        """The manifest's entry for a link whose file had this size and time when it was read."""
        file = self._file(link)
        path = link if file is None else file["path"]
        taken: TakenFile = {"path": path, "size": size, "mtime_ns": mtime_ns, "link": link}
        if file is not None and "piece" in file:
            taken["piece"] = file["piece"]
        return taken

    def _file(self, link: str) -> LinkedFile | None:
        return next((links[link] for links in self.links.values() if link in links), None)


def write_order(path: Path, order: IngestOrder | DeliveryOrder | ExecutorsOrder) -> None:
    """Store the order."""
    storage.replace(path, storage.dump_json(order, indent=None))


def read_order(path: Path) -> IngestOrder:
    """The order in ``path``."""
    value = json.loads(storage.read(path))
    bounds = value.get("bounds")
    return IngestOrder(**{**value, "bounds": None if bounds is None else Bounds(**bounds)})


def write_result(path: Path, error: TidegateError | None, **figures: object) -> None:
    """Store the driver's answer, with how many requests to object stores it has sent."""
    value = {"error": error.to_dict() if error else None, "requests": storage.count_requests(), **figures}
    storage.replace(path, storage.dump_json(value))


def read_result(path: Path) -> dict[str, Any] | None:
    """The answer that :func:`write_result` wrote, None where there is none; the driver's requests are counted as this
    process's."""
    result: dict[str, Any] | None = storage.read_json(path)
    storage.note_requests(0 if result is None else result["requests"])
    return result


def emit(event: str, **values: object) -> None:
    """One progress line on stdout, for the terminal and the task log."""
    print("TIDEGATE " + json.dumps({"event": event, **values}, default=str), flush=True)


@dataclass(frozen=True)
class DeliveryOrder:
    """Feed these sinks. ``kind`` distinguishes the order from an ingest's."""

    project_root: str
    pipeline: str
    run_id: str
    token: str
    sinks: list[str] = field(default_factory=list)
    master: str = "local[*]"
    kind: str = "delivery"


NO_PYTHON = "null"
"""The answer of an executor without the Python that it is to run."""


@dataclass(frozen=True)
class ExecutorsOrder:
    """Ask each executor for its Python and the versions of ``modules``; the answers go to the file ``result``."""

    project_root: str
    result: str
    modules: list[str]
    seconds: int
    """For executors to come, and again for their answers."""
    kind: str = "executors"
