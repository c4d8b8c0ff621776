"""Every path of a pipeline. No other module joins a path of the state folder's first level; what is below one of
them is named by the module it belongs to."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import quote

from tidegate.core import storage

_LONGEST_FILE_NAME = 200
"""A file system allows 255 bytes, and suffixes and the hidden name of a file being written come on top."""


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

    def beside(self, folder: str) -> PipelinePaths:
        """The paths of a side job, concurrent with the pipeline's runs. Its checkpoint, staging and manifests are in
        ``folder`` below the state folder; table, quarantine and lease are the pipeline's."""
        return replace(self, state=self.state / folder, generation=0, lease_folder=self.lease)

    @property
    def is_side_job(self) -> bool:
        """Whether these are the paths of a side job."""
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

    @property
    def queries(self) -> Path:
        """A folder for each query after the first one, by its number."""
        return self.state / "queries"

    @property
    def query_folder(self) -> Path:
        """Where the query has its checkpoint and its birth record; the first one has them in the state folder."""
        number = self.newest_generation() if self.generation is None else self.generation
        return self.queries / f"{number:06d}" if number else self.state

    def retired(self, query_id: str) -> Path:
        """The record that a query is over."""
        return self.state / "retired" / f"{query_id}.json"

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

    @property
    def ledger(self) -> Path:
        """The ledger of the files taken from file sources (SQLite)."""
        return self.state / "ledger.sqlite"

    def intake(self, source: str) -> Path:
        """Links to the files of one source that are still to be read."""
        return self.state / "intake" / source

    def static(self, source: str) -> Path:
        """The copies of one static source that runs read, a folder per version."""
        return self.state / "static" / source

    def static_version(self, source: str) -> Path:
        """Which of them runs read."""
        return self.static(source) / "version.json"

    def spool(self, source: str) -> Path:
        """The spool: the records received by one source of type rate or socket."""
        return self.state / "spool" / source

    def spool_arrivals(self, source: str) -> Path:
        """The lines that a connection of such a source receives between reads of runs."""
        return self.state / "spool" / f"{source}.arriving"

    def spool_position(self, source: str) -> Path:
        """How far that source has come: a note numbered like its newest file."""
        return self.state / "spool" / f"{source}.position"

    @property
    def staging(self) -> Path:
        """Attempt folders of staged batches."""
        return self.state / "staging"

    def attempts(self, query_id: str, batch_id: int) -> Path:
        """The attempt folders of one batch."""
        return self.staging / query_id / f"{batch_id:012d}"

    @property
    def manifests(self) -> Path:
        """Batch manifests, until their batch is settled."""
        return self.state / "manifests"

    def manifest(self, query_id: str, batch_id: int) -> Path:
        """The manifest of one batch."""
        return self.manifests / query_id / f"{batch_id:012d}.json"

    def folded(self, query_id: str, batch_id: int) -> Path:
        """The latest rows per key of an increment that ends with this batch (update, complete)."""
        return self.manifests / query_id / f"folded-{batch_id:012d}.json"

    def merge_folder(self, query_id: str, batch_id: int, token: str) -> Path:
        """Where one attempt copies files without the replaced rows, next to the attempts of the batch."""
        return self.attempts(query_id, batch_id) / f"merge-{token}"

    @property
    def verdicts(self) -> Path:
        """Verdicts on increments."""
        return self.state / "verdicts"

    def verdict(self, run_id: str) -> Path:
        """The gate's verdict on the increment of a run."""
        return self.verdicts / f"{encode_run_id(run_id)}.json"

    @property
    def decisions(self) -> Path:
        """Decisions on held increments, in a separate folder: no run id can look like one."""
        return self.state / "decisions"

    def decision(self, run_id: str) -> Path:
        """The person's decision on a held increment."""
        return self.decisions / f"{encode_run_id(run_id)}.json"

    @property
    def rollback(self) -> Path:
        """A rollback that a person decided on, until it is carried out: there is never more than one."""
        return self.state / "rollback.json"

    @property
    def lost_rows(self) -> Path:
        """Rows that a repair took out of the log with damaged files, and what became of them."""
        return self.state / "lost_rows"

    @property
    def waiting(self) -> Path:
        """Held increments that later ones have passed, until a person decides on them."""
        return self.state / "waiting"

    def waiting_increment(self, run_id: str) -> Path:
        """The deferred increment of a run: its verdict and its manifests."""
        return self.waiting / f"{encode_run_id(run_id)}.json"

    @property
    def intents(self) -> Path:
        """Publishes that were begun and must be finished first."""
        return self.state / "intents"

    @property
    def lease(self) -> Path:
        """Folder of the lease's tokens."""
        return self.state / "lease" if self.lease_folder is None else self.lease_folder

    @property
    def refused(self) -> Path:
        """The last run that found the lease taken."""
        return self.state / "refused.json"

    @property
    def backfills(self) -> Path:
        """The state of backfills: a folder for each, and one in it for each interval."""
        return self.state / "backfills"

    @property
    def replays(self) -> Path:
        """The state of replays of quarantined records: a folder for each, and one in it for each try."""
        return self.state / "replays"

    @property
    def runs(self) -> Path:
        """Folder of the run reports."""
        return self.state / "runs"

    def report(self, run_id: str) -> Path:
        """The report of one run."""
        return self.runs / f"{encode_run_id(run_id)}.json"

    def progress(self, run_id: str) -> Path:
        """The progress events of one run's batches, a JSON object a line."""
        return self.runs / f"{encode_run_id(run_id)}.progress.jsonl"

    @property
    def untold(self) -> Path:
        """Runs whose outcome the tasks in Airflow have not reported yet."""
        return self.state / "untold"

    def untold_run(self, run_id: str) -> Path:
        """The last report on a run whose tasks have begun."""
        return self.untold / f"{encode_run_id(run_id)}.json"

    @property
    def exchanges(self) -> Path:
        """Messages between runs and their Spark drivers: a folder per run."""
        return self.state / "orders"

    def exchange(self, run_id: str) -> Path:
        """Messages between one run and its Spark drivers: orders, answers, logs."""
        return self.exchanges / encode_run_id(run_id)

    def order(self, run_id: str) -> Path:
        """The order of the ingest step for its Spark driver."""
        return self.exchange(run_id) / "order.json"

    def ingest_result(self, run_id: str) -> Path:
        """The answer of the Spark driver: done, or the error that ended it."""
        return self.exchange(run_id) / "result.json"

    def driver_log(self, run_id: str) -> Path:
        """The log of the Spark driver of a run; removed when the run went well."""
        return self.exchange(run_id) / "driver.log"

    def driver_results(self, run_id: str) -> Path:
        """The results of Great Expectations in the ingest driver, for increments too large for pandas."""
        return self.exchange(run_id) / "quality.json"

    def delivery_order(self, run_id: str) -> Path:
        """The order of a run for the Spark driver that feeds sinks."""
        return self.exchange(run_id) / "delivery.json"

    def delivery_result(self, run_id: str) -> Path:
        """The answer of that driver."""
        return self.exchange(run_id) / "delivery-result.json"

    def delivery_log(self, run_id: str) -> Path:
        """The log of that driver; removed when all was fed."""
        return self.exchange(run_id) / "delivery.log"

    @property
    def sinks(self) -> Path:
        """How far the sinks were fed."""
        return self.state / "sinks"

    @property
    def project_id(self) -> Path:
        """Distinguishes this project from others on the same brokers; one file for all pipelines."""
        return self.state.parent / ".project.json"

    def sink(self, name: str) -> Path:
        """How far a sink was fed: a folder per table that was ever in place, with numbered notes."""
        return self.sinks / encode_run_id(name)

    @property
    def definition(self) -> Path:
        """The definition of the pipeline when it last read something."""
        return self.state / "definition.json"

    @property
    def unreadable(self) -> Path:
        """Files that could not be read (a torn gzip, a broken parquet footer), kept whole."""
        return self.state / "unreadable"

    @property
    def published(self) -> Path:
        """The state of the last publish: a note numbered by the table's version: table id, query id, batch id."""
        return self.state / "published"

    @property
    def quarantined(self) -> Path:
        """A note numbered by the version that the quarantine table has reached."""
        return self.state / "quarantined"

    @property
    def adoption(self) -> Path:
        """The adoption of a table that was begun and is not finished."""
        return self.state / "adoption.json"

    @property
    def adopted(self) -> Path:
        """The adoption of the table, with the progress of the job that wrote it."""
        return self.state / "adopted.json"

    def removed(self, target: str) -> Path:
        """Up to which version the files are removed that versions of the ``table`` or ``quarantine`` replaced."""
        return self.state / "removed" / f"{target}.json"

    def looked_up_to(self, target: str) -> Path:
        """The version up to which the ``table`` or ``quarantine`` was looked through for what others left behind."""
        return self.state / "removed" / f"{target}-left-behind.json"

    @property
    def seals(self) -> Path:
        """Digests of the checkpoint's files when they were last consistent: a folder per query, with notes."""
        return self.state / "seals"

    @property
    def open_state(self) -> Path:
        """The open state of stateful queries between runs: a folder per query, with notes numbered by batch."""
        return self.state / "open_state"

    @property
    def set_aside(self) -> Path:
        """Backups: staging and data files moved away by a repair; late output of a query."""
        return self.state / "set_aside"

    @property
    def losses(self) -> Path:
        """Losses that a person accepted, one JSON object a line."""
        return self.state / "accepted_losses.jsonl"


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
