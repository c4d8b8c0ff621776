"""Deferred increments: held ones (``on_critical: continue``): later ones have passed them, a person decides on each.

The table's log has moved on past their batches, in a commit without rows that says ``waiting``. What a decision needs
is in one file per run: the verdict and the manifests. Their staged files stay where they are, because that file names
them. What is decided is published under an id made from the increment: the log takes it once.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from tidegate.core import storage
from tidegate.core.errors import HeldError
from tidegate.core.paths import PipelinePaths
from tidegate.runs import errors
from tidegate.runs.reports.verdicts import StoredVerdict, quote_word
from tidegate.state.manifest import BatchManifest, keys_from_json, manifest_from_json, manifest_to_json
from tidegate.table.log.state import read_table_state
from tidegate.table.publish.rework import RELEASE, Rework

WAITED = "tidegate.waited"
"""In the commit of a decision: the batches that it is on, [query id, first, last] for each query."""


@dataclass(frozen=True)
class WaitingIncrement:
    """What waits: ``manifests`` are all that the verdict speaks of, ``since`` is when it was passed, ``begun`` is the
    outcome of the decision that is being carried out."""

    verdict: StoredVerdict
    manifests: list[BatchManifest]
    since: str
    begun: Literal["published", "discarded"] | None = None

    @property
    def run_id(self) -> str:
        """The run that it was held under."""
        return self.verdict.run_id

    @property
    def app_id(self) -> str:
        """What the commit of the decision carries in the place of a query id: the same for these batches, whoever
        decides what."""
        query_id, batch_id = self.manifests[-1].key
        return Rework(self.manifests[-1].pipeline, RELEASE, f"{self.run_id} {query_id} {batch_id}").app_id

    @property
    def spans(self) -> list[tuple[str, int, int]]:
        """(query id, first batch, last batch) for each query."""
        batches: dict[str, list[int]] = {}
        for query_id, batch_id in (one.key for one in self.manifests):
            batches.setdefault(query_id, []).append(batch_id)
        return [(query_id, min(some), max(some)) for query_id, some in batches.items()]

    @property
    def attempts(self) -> set[str]:
        """The folders of its staged files, relative to the state folder."""
        files = [file for one in self.manifests for file in (*one.files, *one.quarantine_files)]
        return {str(Path(*Path(file.path).parts[:4])) for file in files}


def save_waiting(paths: PipelinePaths, waiting: WaitingIncrement) -> None:
    """Store it; the file is whole or not there."""
    value = {
        "verdict": asdict(waiting.verdict),
        "manifests": [json.loads(manifest_to_json(one)) for one in waiting.manifests],
        "since": waiting.since,
        "begun": waiting.begun,
    }
    storage.replace(paths.waiting_increment(waiting.run_id), storage.dump_json(value))


def load_waiting(paths: PipelinePaths, run_id: str) -> WaitingIncrement | None:
    """The deferred increment of this run, or None."""
    return _read(paths.waiting_increment(run_id))


def list_waiting(paths: PipelinePaths) -> list[WaitingIncrement]:
    """All that wait, the longest first."""
    found = [_read(path) for path in storage.list_folder(paths.waiting, "[!.]*.json")]
    return sorted((one for one in found if one is not None), key=lambda one: one.since)


def list_waiting_undecided(paths: PipelinePaths) -> list[WaitingIncrement]:
    """Those that the table's log holds no decision on; one that was decided is cleared away by the next run."""
    found = list_waiting(paths)
    decided = find_decided(paths, found)
    return [one for one in found if one.app_id not in decided]


def find_decided(paths: PipelinePaths, waiting: Collection[WaitingIncrement]) -> set[str]:
    """The app ids of those that the table's log holds a decision on."""
    if not waiting:
        return set()
    state = read_table_state(paths.table, tuple(sorted(one.app_id for one in waiting)))
    return set() if state is None else {one.app_id for one in waiting if state.txns.get(one.app_id, -1) >= 0}


def waiting_error(name: str, verdict: StoredVerdict) -> HeldError:
    """The error of a deferred increment: the rule, that later runs continue, and the commands."""
    return errors.INCREMENT_WAITS(
        where=f"run {verdict.run_id} of pipeline {name}; the table is untouched",
        reasons="; ".join(verdict.reasons) or ", ".join(verdict.failed_critical),
        pipeline=name,
        run_id=quote_word(verdict.run_id),
    )


def _read(path: Path) -> WaitingIncrement | None:
    value = storage.read_json(path)
    if value is None:
        return None
    with storage.unreadable_is_named(path):
        verdict = StoredVerdict(**{**value["verdict"], "batches": keys_from_json(value["verdict"]["batches"])})
        manifests = [manifest_from_json(json.dumps(one)) for one in value["manifests"]]
        return WaitingIncrement(verdict, manifests, str(value["since"]), value.get("begun"))
