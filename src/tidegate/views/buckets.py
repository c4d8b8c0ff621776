"""What a project keeps or reads on object stores, and whether a run may."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tidegate.core import storage
from tidegate.core.errors import TidegateError
from tidegate.core.extras import explain_missing
from tidegate.spec.document import KeyPath
from tidegate.spec.models import PipelineSpec
from tidegate.spec.project import PROJECT_FILE, Project

PATIENCE_SECONDS = 5.0
"""A person waits for the answer; a run waits longer."""


@dataclass(frozen=True)
class Place:
    """A prefix of a bucket, and the key of a file of the project that names it."""

    name: str
    path: storage.ObjectPath
    file: str
    key: KeyPath
    only_read: bool = False

    @property
    def uses(self) -> str:
        """What a run does there."""
        return "listed and read" if self.only_read else "listed, read, written and deleted, under conditions"

    def find_fault(self) -> TidegateError | None:
        """The error that a run would end with because of this place; it is asked with a few requests."""
        try:
            # Late: it brings the client of object stores.
            from tidegate.core.storage import object_probe
        except ImportError as error:
            if (known := explain_missing(error)) is None:
                raise
            return known
        with storage.limit_patience(PATIENCE_SECONDS):
            return object_probe.find_missing_rights(self.path, only_read=self.only_read)


def list_places(project: Project, specs: Iterable[PipelineSpec]) -> list[Place]:
    """The prefixes that a project and these pipelines name; one inside of another that is used as much is left out."""
    found: list[Place] = []
    for place in _list_all(project, specs):
        if not any(place.path.is_relative_to(one.path) and (place.only_read or not one.only_read) for one in found):
            found.append(place)
    return found


def _list_all(project: Project, specs: Iterable[PipelineSpec]) -> Iterator[Place]:
    for key in ("warehouse", "state", "quarantine"):
        path = getattr(project, key)
        if isinstance(path, storage.ObjectPath):
            yield Place(key, path, PROJECT_FILE, (key,))
    for spec in specs:
        file = f"jobs/{spec.name}/pipeline.yaml"
        if spec.table.path and isinstance(path := project.table_at(spec.table.path), storage.ObjectPath):
            yield Place(f"table of {spec.name}", path, file, ("table", "path"))
        for name, source in spec.file_sources.items():
            path = project.place(re.split(r"[*?\[{]", source.path)[0])
            if isinstance(path, storage.ObjectPath):
                yield Place(f"source {name} of {spec.name}", path, file, ("sources", name, "path"), only_read=True)
            if source.notifications is None or source.notifications.path is None:
                continue
            if isinstance(path := project.place(source.notifications.path), storage.ObjectPath):
                at = ("sources", name, "notifications", "path")
                yield Place(f"notifications of source {name} of {spec.name}", path, file, at, only_read=True)
