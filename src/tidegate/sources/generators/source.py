"""``rate`` and ``socket`` as sources: each run first receives records into files, which are then read like others."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tidegate.core import storage
from tidegate.core.outputs import TriedLook
from tidegate.core.paths import PipelinePaths
from tidegate.sources.files.ledger import Ledger
from tidegate.sources.files.scan import EMPTY_SCAN, FilesScan
from tidegate.sources.files.source import FilesArrival, FilesStream
from tidegate.sources.files.take_over import FilesHandOver
from tidegate.sources.generators.socket_listener import Listeners
from tidegate.sources.generators.spool import describe_not_replayable, receive, remove_spooled
from tidegate.sources.port import ReadBefore, SoFar
from tidegate.spec.as_read import SpooledSource
from tidegate.spec.project import Project

RECEIVES_FIRST = "the next run first receives"


class ReceivedStream(FilesStream):
    """The files of one spool. ``listeners`` keep the connection of a socket between runs."""

    listens = True
    is_replayable = False
    start_key = None
    spec: SpooledSource

    def __init__(
        self,
        project: Project,
        paths: PipelinePaths,
        name: str,
        spec: SpooledSource,
        ledger: Ledger | None,
        listeners: Listeners | None = None,
    ) -> None:
        super().__init__(project, paths, name, spec, ledger)
        self._listeners = listeners

    def receive(self) -> list[str]:
        """Receive into at most one file. Raises TryAgainError SOCKET_AWAY when no earlier records are pending."""
        notes = receive(self.paths, self.name, self.spec, self._listeners)
        return [describe_not_replayable(self.name, self.spec), *notes]

    def scan(self) -> FilesScan:
        """The spool, compared with the ledger; empty before the first run."""
        return super().scan() if storage.exists(self.paths.spool(self.name)) else EMPTY_SCAN

    def look(self, so_far: SoFar) -> FilesArrival:
        """Find received files that are in no batch."""
        arrival = super().look(so_far)
        arrival.summary["replayable"] = False
        return arrival

    def describe_ahead(self) -> list[str]:
        """Note that the next run receives first: the source was not contacted."""
        coming = f"{RECEIVES_FIRST} what source {self.name} has; it was not contacted now"
        return [describe_not_replayable(self.name, self.spec), coming]

    def may_continue(self, read: ReadBefore) -> bool:
        """Never: what such a source sent before the first run cannot be received again."""
        return False

    def start_from_spec(self) -> FilesHandOver:
        """Start with what it sends from the first run on."""
        return FilesHandOver(self.name)

    def settle(self, links: Iterable[str]) -> None:
        """Remove the files whose rows are published."""
        remove_spooled(self.paths, self.name, links, self.ledger)

    def sample(self, folder: Path, rows: int) -> tuple[dict[str, object], TriedLook | None]:
        """Nothing to sample: what it sends during ``try`` is not kept."""
        return {}, None
