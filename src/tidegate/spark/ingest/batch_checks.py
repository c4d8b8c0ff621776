"""Checks that refuse a batch: a checkpoint gives other records than before, files are gone, or rows differ."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

from tidegate.core import storage
from tidegate.core.errors import DisagreementError
from tidegate.core.paths import PipelinePaths
from tidegate.sources import errors as source_errors
from tidegate.sources.readers.links import has_input, stat_link
from tidegate.sources.readers.unreadable import PartUnreadable
from tidegate.spark import errors
from tidegate.spark.catalyst.private_api import Metric, Metrics
from tidegate.spark.driver.order import IngestOrder
from tidegate.spec.models import PipelineSpec
from tidegate.state.manifest import BatchManifest, Taken, manifest_from_json

Ranges = dict[str, Taken]
"""The input of a batch by source."""


def describe_imbalance(manifest: BatchManifest) -> list[str]:
    """The equations of one batch that do not hold: each figure was counted at another place."""
    wrong = []
    for name, source in manifest.sources.items():
        if source.entered is not None and source.rows != source.malformed + source.entered:
            wrong.append(
                f"source {name}: read {source.rows} != malformed {source.malformed} + entered {source.entered}"
            )
    if manifest.transformed != manifest.rejected + manifest.staged:
        wrong.append(f"transformed {manifest.transformed} != rejected {manifest.rejected} + staged {manifest.staged}")
    if manifest.quarantined != manifest.malformed + manifest.late + manifest.rejected:
        wrong.append(
            f"quarantined {manifest.quarantined} != malformed {manifest.malformed} + late {manifest.late} "
            f"+ rejected {manifest.rejected}"
        )
    return wrong


@dataclass(frozen=True)
class BatchChecks:
    """The checks of one run's batches; each raises what the run then ends with."""

    spec: PipelineSpec
    paths: PipelinePaths
    order: IngestOrder

    def check_pending(self, batch_id: int, ranges: Ranges) -> None:
        """Refuse links that are not pending: the checkpoint was made for another place or another intake."""
        for name, taken in ranges.items():
            foreign = [link for link in taken.links if link not in self.order.links.get(name, {})]
            if foreign:
                again = f"{len(foreign)} files of source {name} again that were staged before, first {foreign[0]}"
                raise self._differs(self.paths.checkpoint, batch_id, f"would read {again}")

    def check_present(self, batch_id: int, ranges: Ranges) -> None:
        """A missing file would end the run with FILE_VANISHED, which a retry does not cure."""
        for name, taken in ranges.items():
            gone = [link for link in taken.links if not has_input(self.paths.intake(name) / link)]
            if gone:
                raise errors.STATE_INPUT_GONE(
                    where=str(self.paths.intake(name)),
                    batch_id=batch_id,
                    number=len(gone),
                    source=name,
                    example=self.order.original(gone[0]),
                    pipeline=self.spec.name,
                )

    def check_same_ranges(self, manifest_path: Path, ranges: Ranges) -> None:
        """A batch that was staged before takes the same records as then."""
        there = manifest_from_json(storage.read(manifest_path))
        for name, taken in ranges.items():
            kept = there.sources[name]
            links = sorted(file["link"] for file in kept.files or [])
            if sorted(taken.links) != links or taken.offsets != kept.offsets:
                difference = "was staged with other records than the checkpoint now gives it"
                raise self._differs(manifest_path, there.batch_id, difference)

    def _differs(self, where: Path, batch_id: int, difference: str) -> DisagreementError:
        return errors.CHECKPOINT_READS_OTHER_RECORDS(
            where=str(where), batch_id=batch_id, difference=difference, pipeline=self.spec.name
        )

    def check_same_rows(self, manifest_path: Path, rules: Metric) -> None:
        """A batch that is computed again must give as many rows: else its state is not the one that was staged."""
        if not storage.exists(manifest_path):
            return
        there = manifest_from_json(storage.read(manifest_path))
        if int(rules["transformed"]) != there.transformed:
            raise errors.BATCH_NOT_REPEATABLE(
                where=str(manifest_path), batch_id=there.batch_id, then=there.transformed, now=rules["transformed"]
            )

    def check_statics(self, metrics: Metrics) -> None:
        """A malformed record of a static source cannot be quarantined: it would be missing from a join."""
        for name in self.spec.statics:
            metric = metrics.get(f"static:{name}") or {}
            if metric.get("malformed"):
                place = self.spec.file_sources[name].path if name in self.spec.file_sources else name
                first, pinned = metric["first"], self.order.statics[name]
                place_of = str(first.get("_position")).partition("#")[0]
                link = place_of.partition(f"/{Path(pinned.get('folder', '')).name}/")[2]
                files = dict(zip(pinned.get("links", ()), pinned.get("files", ()), strict=True))
                self._forget_version(name)
                raise errors.STATIC_MALFORMED(
                    where=files.get(unquote(link), place_of),
                    number=metric["malformed"],
                    source=name,
                    fault=first.get("_detail") or "malformed",
                    record=str(first.get("_raw"))[:200],
                    place=place,
                    pipeline=self.spec.name,
                )

    def check_statics_readable(self, cause: str) -> None:
        """Raise STATIC_UNREADABLE where ``cause``, an error of Spark's, names a file of a static source."""
        fault = PartUnreadable.find(cause)
        if fault is None or fault.errno is not None:
            return
        for name in self.spec.statics:
            pinned = self.order.statics[name]
            for link, file in zip(pinned.get("links", ()), pinned.get("files", ()), strict=True):
                if fault.path == f"{pinned['folder']}/{link}":
                    self._forget_version(name)
                    raise source_errors.STATIC_UNREADABLE(
                        where=file,
                        path=file,
                        source_name=name,
                        why=fault.reason,
                        fix=source_errors.CORRECT_FILE,
                        pipeline=self.spec.name,
                    )

    def _forget_version(self, name: str) -> None:
        """This version never gave a row: the batch may see the corrected one."""
        storage.remove(self.paths.static_version(name))


class InputState(NamedTuple):
    """A file behind a link: ``changed_ns`` is its ctime, which a writer cannot set."""

    size: int
    mtime_ns: int
    changed_ns: int


@dataclass
class InputStates:
    """The states of the files behind links, as they were when :meth:`note` was called last."""

    states: dict[Path, InputState] = field(default_factory=dict)
    _digests: dict[Path, str] = field(default_factory=dict)
    _in_doubt: bool = False

    def note(self, links: Iterable[Path]) -> None:
        """Take the states of ``links``; to be called before Spark can have looked at them. A file that is not there has
        none."""
        self.states, self._digests = {}, {}
        for link in links:
            try:
                self.states[link] = _state_of(link)
                if self._in_doubt:
                    self._digests[link] = storage.digest(link)
            except FileNotFoundError:
                continue

    def changed(self, links: Iterable[Path]) -> list[Path]:
        """The ``links`` whose files have changed. Raises FileNotFoundError for one that is gone.

        A file of the same size and time may have been overwritten and its time restored (see ctime), or may only have
        been renamed, linked or given other rights. The first time it counts as changed; from then on digests are noted
        too, and decide.
        """
        found = []
        for link in links:
            before, now = self.states.get(link), _state_of(link)
            if before is None or before[:2] != now[:2]:
                found.append(link)
            elif before != now and (link not in self._digests or self._digests[link] != storage.digest(link)):
                self._in_doubt = True
                found.append(link)
        return found


def _state_of(link: Path) -> InputState:
    found = stat_link(link)
    changed_ns = found.st_ctime_ns if isinstance(found, os.stat_result) else found.st_mtime_ns
    return InputState(found.st_size, found.st_mtime_ns, changed_ns)
