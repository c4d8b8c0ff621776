"""``rate`` and ``socket`` as sources: each run receives what there is into files, which are taken like any others."""

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
        """Receive into one file or none. Raises TryAgainError SOCKET_AWAY when nothing waits from before."""
        told = receive(self.paths, self.name, self.spec, self._listeners)
        return [describe_not_replayable(self.name, self.spec), *told]

    def scan(self) -> FilesScan:
        """The spool, compared with the ledger; empty before the first run."""
        return super().scan() if storage.exists(self.paths.spool(self.name)) else EMPTY_SCAN

    def look(self, so_far: SoFar) -> FilesArrival:
        """What was received and is in no batch."""
        arrival = super().look(so_far)
        arrival.summary["replayable"] = False
        return arrival

    def describe_ahead(self) -> list[str]:
        """That the next run receives first: nothing was asked of the source."""
        coming = f"{RECEIVES_FIRST} what source {self.name} has; nothing was asked of it now"
        return [describe_not_replayable(self.name, self.spec), coming]

    def may_continue(self, read: ReadBefore) -> bool:
        """Never: what such a source had sent cannot be asked for again, and begins with the first run."""
        return False

    def begin_beside(self) -> FilesHandOver:
        """With what it sends from the first run on."""
        return FilesHandOver(self.name)

    def settle(self, links: Iterable[str]) -> None:
        """Remove the files whose rows are published."""
        remove_spooled(self.paths, self.name, links, self.ledger)

    def sample(self, folder: Path, rows: int) -> tuple[dict[str, object], TriedLook | None]:
        """What it sends while it is tried: nothing is kept of it."""
        return {}, None
