"""A project with one file source, and the steps a run takes with it, without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.unit.taken_files import take_stats, taken_files
from tidegate.core.paths import PipelinePaths
from tidegate.sources.files import intake
from tidegate.sources.files.consumed import finish_clearing
from tidegate.sources.files.findings import note_scan
from tidegate.sources.files.ledger import Ledger, open_ledger
from tidegate.sources.files.notifications import ReadMessages
from tidegate.sources.files.scan import FilesScan, scan_files
from tidegate.sources.readers.links import stat_link
from tidegate.spec.models import FilesSource, PipelineSpec, ProjectSpec
from tidegate.spec.project import Project

SOURCE = "trades"


class Inbox:
    """The folder ``inbox`` of a project; ``spec`` is the source's keys beside type, path and format."""

    def __init__(self, root: Path, ledger: Ledger, **spec: Any) -> None:
        self.root, self.ledger = root, ledger
        self.project = Project(root, ProjectSpec())
        self.clears = "keep"
        self.keys = {"type": "files", "path": "inbox", "format": "json", **spec}

    @property
    def paths(self) -> PipelinePaths:
        """The pipeline's paths."""
        return self.project.paths("orders")

    @property
    def intake(self) -> Path:
        """What Spark would read."""
        return self.paths.intake(SOURCE)

    @property
    def spec(self) -> FilesSource:
        """The source."""
        return FilesSource.read(self.keys)

    @property
    def pipeline(self) -> PipelineSpec:
        """A pipeline that has the source alone."""
        keys = {"version": 1, "name": "orders", "sources": {SOURCE: self.keys}, "maintenance": {"source": self.clears}}
        return PipelineSpec.read(keys)

    def write(self, name: str, text: str | bytes = "{}\n", *, append: bool = False) -> Path:
        """Write a file in place, or append to it."""
        path = self.root / "inbox" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "ab" if append else "wb") as handle:
            handle.write(text.encode() if isinstance(text, str) else text)
        return path

    def scan(self, now: float | None = None, read_messages: ReadMessages | None = None) -> FilesScan:
        """What is new."""
        return scan_files(self.project, self.paths, SOURCE, self.spec, self.ledger, now, read_messages)

    def admit(self, scan: FilesScan | None = None) -> intake.Admitted:
        """Take what is new."""
        entries = (scan or self.scan()).new
        return intake.admit(self.paths, SOURCE, self.spec, entries, self.ledger)

    def restore(self) -> intake.Restored:
        """What each ingest begins with."""
        return intake.restore_links(self.project, self.paths, SOURCE, self.spec, self.ledger)

    def run(self, batch_id: int, now: float | None = None) -> tuple[FilesScan, list[bytes]]:
        """One run: the scan, and what Spark would have read of each file that was owed, in their order."""
        finish_clearing(self.project, self.ledger, self.pipeline, lambda: None)
        self.restore()
        scan = self.scan(now)
        note_scan(self.ledger, SOURCE, scan)
        self.admit(scan)
        intake.sweep_intake(self.paths, SOURCE, self.ledger)
        return scan, self.read(batch_id)

    def stage(self, batch_id: int = 0) -> None:
        """Stage and publish what is pending, files or objects, without reading it."""
        links = [row.link for row in self.ledger.waiting(SOURCE)]
        stats = {link: stat_link(self.intake / link) for link in links}
        files = taken_files(self.ledger, {link: (one.st_size, one.st_mtime_ns) for link, one in stats.items()})
        self.ledger.mark_staged(SOURCE, "q", batch_id, files)  # type: ignore[arg-type]
        self.ledger.mark_published("q", batch_id)
        intake.remove_links(self.paths, self.ledger.removable_links(), self.ledger)

    def read(self, batch_id: int) -> list[bytes]:
        """Stage what is owed, and publish it."""
        links = [row.link for row in self.ledger.rows(SOURCE, state="linked") if (self.intake / row.link).exists()]
        texts = [(self.intake / link).read_bytes() for link in links]
        files = taken_files(self.ledger, take_stats(self.intake, links))
        self.ledger.mark_staged(SOURCE, "q", batch_id, files)
        self.ledger.mark_published("q", batch_id)
        intake.remove_links(self.paths, self.ledger.removable_links(), self.ledger)
        return texts


@contextmanager
def make_inbox(root: Path, **spec: Any) -> Iterator[Inbox]:
    """An inbox in the empty folder ``root``."""
    (root / "inbox").mkdir(parents=True, exist_ok=True)
    with open_ledger(Project(root, ProjectSpec()).paths("orders")) as ledger:
        yield Inbox(root, ledger, **spec)
