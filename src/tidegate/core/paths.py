"""Every path of a pipeline. No other module joins a path of the state folder's first level; what is below one of
them is named by the module it belongs to."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from tidegate.core import storage

if TYPE_CHECKING:
    from tidegate.core.storage.mirror import Mirror

_LONGEST_FILE_NAME = 200
"""A file system allows 255 bytes, and suffixes and the hidden name of a file being written come on top."""


class _Below:
    """A file or folder at the first level of the state folder."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, paths: PipelinePaths, _owner: object) -> Path:
        return paths.fresh_state / self._name


class _Shared(_Below):
    """The same for what others than the holder of the lease write: on an object store it is not in the working
    copy."""

    def __get__(self, paths: PipelinePaths, _owner: object) -> Path:
        return (paths.state if paths.mirror is None else paths.mirror.remote) / self._name


class _Named:
    """A function from the name of a source, target or query to its path, given as a pattern below the state folder."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern

    def __get__(self, paths: PipelinePaths, _owner: object) -> Callable[[str], Path]:
        return lambda name: paths.fresh_state / self._pattern.format(self._encode(name))

    def _encode(self, name: str) -> str:
        return name


class _OfRun(_Named):
    """The same for a run id or the name of a sink, which may contain any character."""

    def _encode(self, name: str) -> str:
        return encode_run_id(name)


@dataclass(frozen=True)
class PipelinePaths:
    """The paths of one pipeline."""

    name: str
    job: Path
    table: Path
    quarantine: Path
    state: Path
    generation: int | None = None
    """Which of the pipeline's queries ``checkpoint`` and ``birth`` are of; None: the newest one that was begun."""
    lease_folder: Path | None = None
    """The pipeline's own lease folder, for a side job; None: below ``state``."""
    mirror: Mirror | None = None
    """Of a state on an object store, whose working copy on this machine ``state`` is."""

    @property
    def fresh_state(self) -> Path:
        """``state``, brought up to date when nothing on this machine works with it."""
        if self.mirror is not None:
            self.mirror.refresh()
        return self.state

    @property
    def state_name(self) -> str:
        """The same on each machine: the folder, or on an object store the URI."""
        if self.mirror is None:
            return str(self.state)
        return str(self.mirror.remote / self.state.relative_to(self.mirror.local))

    def portable(self, path: Path, data: bytes) -> bytes:
        """The bytes of a file of the state as any machine would have them."""
        return data if self.mirror is None else self.mirror.portable(path, data)

    def beside(self, folder: str) -> PipelinePaths:
        """The paths of a side job, concurrent with the pipeline's runs. Its checkpoint, staging and manifests are in
        ``folder`` below the state folder; table, quarantine and lease are the pipeline's."""
        return replace(self, state=self.state / folder, generation=0, lease_folder=self.lease)

    @property
    def is_side_job(self) -> bool:
        """Return whether these are the paths of a side job."""
        return self.lease_folder is not None

    def pinned(self) -> PipelinePaths:
        """The same paths, for good those of the query that is the newest one now. A process that writes to
        a checkpoint uses pinned paths: if it was suspended, it never writes into its successor's checkpoint."""
        return self if self.generation is not None else replace(self, generation=self.newest_generation())

    def newest(self) -> PipelinePaths:
        """The paths of whichever query is the newest one."""
        return replace(self, generation=None)

    def newest_generation(self) -> int:
        """The number of the newest query that was begun. A folder that is still empty does not count."""
        for number in sorted((int(name) for name in storage.list_names(self.queries) if name.isdigit()), reverse=True):
            folder = replace(self, generation=number).query_folder
            if storage.exists(folder / "birth.json") or storage.exists(folder / "checkpoint" / "metadata"):
                return number
        return 0

    queries = _Below("queries")
    """A folder for each query after the first one, by its number."""

    @property
    def query_folder(self) -> Path:
        """Where the query has its checkpoint and its birth record; the first one has them in the state folder."""
        number = self.newest_generation() if self.generation is None else self.generation
        return self.queries / f"{number:06d}" if number else self.fresh_state

    retired = _Named("retired/{}.json")
    """The record that a query is over."""

    @property
    def spec(self) -> Path:
        """``pipeline.yaml``."""
        return self.job / "pipeline.yaml"

    @property
    def checkpoint(self) -> Path:
        """The Structured Streaming checkpoint."""
        return self.query_folder / "checkpoint"

    @property
    def batches(self) -> Path:
        """Batch files of the query's sources (:mod:`tidegate.state.batch_files`)."""
        return self.query_folder / "batches"

    @property
    def birth(self) -> Path:
        """The birth record of the checkpoint: pinned settings, starting offsets, spec fingerprint."""
        return self.query_folder / "birth.json"

    ledger = _Below("ledger.sqlite")
    """The ledger of the files taken from file sources (SQLite)."""
    intake = _Named("intake/{}")
    """Links to the files of one source that are still to be read."""
    static = _Named("static/{}")
    """The copies of one static source that runs read, a folder per version."""

    def static_version(self, source: str) -> Path:
        """Which of them runs read."""
        return self.static(source) / "version.json"

    spool = _Named("spool/{}")
    """The spool: the records received by one source of type rate or socket."""
    spool_arrivals = _Named("spool/{}.arriving")
    """The lines that a connection of such a source receives between reads of runs."""
    spool_position = _Named("spool/{}.position")
    """How far that source has come: a note numbered like its newest file."""
    staging = _Below("staging")
    """Attempt folders of staged batches."""

    def attempts(self, query_id: str, batch_id: int) -> Path:
        """The attempt folders of one batch."""
        return self.staging / query_id / f"{batch_id:012d}"

    manifests = _Below("manifests")
    """Batch manifests, until their batch is settled."""

    def manifest(self, query_id: str, batch_id: int) -> Path:
        """The manifest of one batch."""
        return self.manifests / query_id / f"{batch_id:012d}.json"

    def folded(self, query_id: str, batch_id: int) -> Path:
        """The latest rows per key of an increment that ends with this batch (update, complete)."""
        return self.manifests / query_id / f"folded-{batch_id:012d}.json"

    def merge_folder(self, query_id: str, batch_id: int, token: str) -> Path:
        """Where one attempt copies files without the replaced rows, next to the attempts of the batch."""
        return self.attempts(query_id, batch_id) / f"merge-{token}"

    verdicts = _Below("verdicts")
    """Verdicts on increments."""
    verdict = _OfRun("verdicts/{}.json")
    """The gate's verdict on the increment of a run."""
    decisions = _Below("decisions")
    """Decisions on held increments, in a separate folder: no run id can look like one."""
    decision = _OfRun("decisions/{}.json")
    """The person's decision on a held increment."""
    rollback = _Below("rollback.json")
    """A rollback that a person decided on, until it is carried out: there is never more than one."""
    lost_rows = _Below("lost_rows")
    """Rows that a repair took out of the log with damaged files, and what became of them."""
    waiting = _Below("waiting")
    """Held increments that later ones have passed, until a person decides on them."""
    waiting_increment = _OfRun("waiting/{}.json")
    """The deferred increment of a run: its verdict and its manifests."""
    intents = _Below("intents")
    """Publishes that were begun and must be finished first."""

    @property
    def lease(self) -> Path:
        """Folder of the lease's tokens."""
        return self._lease if self.lease_folder is None else self.lease_folder

    _lease = _Shared("lease")

    @property
    def refused(self) -> Path:
        """The last run that found the lease taken; on an object store the holder sees it in its own folder."""
        return (self.state if self.mirror is None else self._lease) / "refused.json"

    backfills = _Below("backfills")
    """The state of backfills: a folder for each, and one in it for each interval."""
    replays = _Below("replays")
    """The state of replays of quarantined records: a folder for each, and one in it for each try."""
    runs = _Below("runs")
    """Folder of the run reports."""
    report = _OfRun("runs/{}.json")
    """The report of one run."""
    progress = _OfRun("runs/{}.progress.jsonl")
    """The progress events of one run's batches, a JSON object a line."""
    untold = _Shared("untold")
    """Runs whose outcome the tasks in Airflow have not reported yet."""

    def untold_run(self, run_id: str) -> Path:
        """The last report on a run whose tasks have begun."""
        return self.untold / f"{encode_run_id(run_id)}.json"

    exchanges = _Below("orders")
    """Messages between runs and their Spark drivers: a folder per run."""
    exchange = _OfRun("orders/{}")
    """Messages between one run and its Spark drivers: orders, answers, logs."""
    spill = _OfRun("orders/{}/spill")
    """The rows of custom SQL that do not fit in memory."""
    order = _OfRun("orders/{}/order.json")
    """The order of the ingest step for its Spark driver."""
    ingest_result = _OfRun("orders/{}/result.json")
    """The answer of the Spark driver: done, or the error that ended it."""
    driver_log = _OfRun("orders/{}/driver.log")
    """The log of the Spark driver of a run; removed when the run went well."""
    driver_results = _OfRun("orders/{}/quality.json")
    """The results of Great Expectations in the ingest driver, for increments too large for pandas."""
    delivery_order = _OfRun("orders/{}/delivery.json")
    """The order of a run for the Spark driver that feeds sinks."""
    delivery_result = _OfRun("orders/{}/delivery-result.json")
    """The answer of that driver."""
    delivery_log = _OfRun("orders/{}/delivery.log")
    """The log of that driver; removed when all was fed."""
    sinks = _Below("sinks")
    """How far the sinks were fed."""

    @property
    def project_id(self) -> Path:
        """Distinguishes this project from others on the same brokers; one file for all pipelines."""
        return (self.state if self.mirror is None else self.mirror.remote).parent / ".project.json"

    sink = _OfRun("sinks/{}")
    """How far a sink was fed: a folder per table that was ever in place, with numbered notes."""
    definition = _Below("definition.json")
    """The definition of the pipeline when it last read something."""
    unreadable = _Below("unreadable")
    """Files that could not be read (a torn gzip, a broken parquet footer), kept whole."""
    published = _Below("published")
    """The state of the last publish: a note numbered by the table's version: table id, query id, batch id."""
    quarantined = _Below("quarantined")
    """A note numbered by the version that the quarantine table has reached."""
    adoption = _Below("adoption.json")
    """The adoption of a table that was begun and is not finished."""
    adopted = _Below("adopted.json")
    """The adoption of the table, with the progress of the job that wrote it."""
    removed = _Named("removed/{}.json")
    """Up to which version the files are removed that versions of the ``table`` or ``quarantine`` replaced."""
    looked_up_to = _Named("removed/{}-left-behind.json")
    """The version up to which the ``table`` or ``quarantine`` was looked through for what others left behind."""
    seals = _Below("seals")
    """Digests of the checkpoint's files when they were last consistent: a folder per query, with notes."""
    open_state = _Below("open_state")
    """The open state of stateful queries between runs: a folder per query, with notes numbered by batch."""
    set_aside = _Below("set_aside")
    """Backups: staging and data files moved away by a repair; late output of a query."""
    losses = _Below("accepted_losses.jsonl")
    """Losses that a person accepted, one JSON object a line."""


def find_cache() -> Path:
    """The folder for what this machine can do without: ``$XDG_CACHE_HOME``, or ``~/.cache``."""
    base = os.environ.get("XDG_CACHE_HOME")
    return Path(base) if base and os.path.isabs(base) else Path.home() / ".cache"


def encode_run_id(run_id: str) -> str:
    """A run id as a file name of at most 200 characters: nothing in it can leave its folder, and no two have the same.

    One that is longer when encoded keeps its beginning, which a person (and ``status``) knows it by, and ends in its
    digest. ``%-`` sets that off: percent-encoding never gives it.
    """
    name = quote(run_id, safe="+:@=,~ ", errors="surrogatepass")
    if name.startswith("."):
        name = "%2E" + name[1:]
    if len(name) <= _LONGEST_FILE_NAME:
        return name
    digest = hashlib.sha256(run_id.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{name[: _LONGEST_FILE_NAME - len(digest) - 2]}%-{digest}"
