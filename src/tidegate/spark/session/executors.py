"""The executors of a cluster: whether there are any, and whether they see the project's storage.

In one JVM this is not needed. On a cluster Spark waits for executors without end and without a message; and an
executor without the project's storage writes its rows into a folder of the same name on its own disk, and says that
all went well.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tidegate.core.errors import TryAgainError, UsageError
from tidegate.core.paths import PipelinePaths
from tidegate.spark import errors
from tidegate.spark.catalyst.private_api import SPARK_ERRORS, ExecutorView
from tidegate.spark.catalyst.state import StateStores, find_missing_state
from tidegate.spark.driver.cluster import EXECUTOR_WAIT, no_executors
from tidegate.spark.driver.failures import application_ended, explain_other_spark, first_lines
from tidegate.spark.driver.order import emit
from tidegate.spark.reading.sending import find_unseen

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_WATCH_SECONDS = 1.0
_SAY_EVERY_SECONDS = 15.0
_FIRST_SECONDS = 5.0
_EVENTS_MILLISECONDS = 60_000
_PASSING = ("ExecutorLostFailure", "Lost executor", "FetchFailed", "No space left")
_MISSING_FILE = re.compile(r"file:/*(/[^\s'\"]+?)\.?(?=[\s'\"]|$)")


class ComputedTwice(Exception):
    """Rows of a batch went through the query twice, because an executor was lost that had the first ones."""


class Executors:
    """The executors of one session; on a local master everything here does nothing."""

    def __init__(self, spark: SparkSession, paths: PipelinePaths) -> None:
        self._spark = spark
        self._paths = paths
        self._view = ExecutorView(spark)
        self.are_remote = not self._view.is_local
        self.unseen = find_unseen(spark, paths)
        """The working copy of the state, where executors do not see it: then they need none of the storage."""
        self._seen: set[str] = set()
        self._last_job = -1
        self._no_executors: TryAgainError | None = None

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Within it, jobs that wait for an executor longer than the limit are cancelled: NO_EXECUTORS."""
        if not self.are_remote:
            yield
            return
        done = threading.Event()
        watcher = threading.Thread(target=self._watch, args=(done,), name="tidegate-executors", daemon=True)
        watcher.start()
        try:
            yield
        finally:
            done.set()
            # Whatever the cancelled jobs end with.
            if isinstance(error := sys.exception(), Exception) and self._no_executors is not None:
                raise self._no_executors from error

    def check_storage(self, *, again: bool = False) -> None:
        """Have each executor read a file of the state folder and write one next to it: STORAGE_NOT_SHARED.

        Costs a small job when there are executors that were not asked yet; with ``again`` all are asked.
        """
        if not self.are_remote:
            return
        self.check_there()
        if self.unseen is not None:
            return
        until = time.monotonic() + _FIRST_SECONDS
        while not self._view.list_ids() and time.monotonic() < until:
            time.sleep(0.05)  # or it would be asked a second time, as one that joined while none was asked
        now = self._view.list_ids()
        while again or not now or now - self._seen:
            self._ask()
            self._seen |= now
            again, now = False, self._view.list_ids()  # who joined meanwhile may have had no task

    def check_there(self) -> None:
        """Raise the run's error when no executor came in time, or the cluster has ended the application."""
        if self._no_executors is not None:
            raise self._no_executors
        if self.are_remote and self._view.is_stopped:
            raise application_ended(self._paths.name)

    def check_seen(self, error_text: str) -> None:
        """Raise STORAGE_NOT_SHARED for a file that an executor does not find and that is there.

        The executor answered from the staging folder before; a separate mount may hide another part of the project.
        """
        missing = _MISSING_FILE.search(error_text) if self.are_remote and self.unseen is None else None
        if missing and os.path.exists(missing[1]):
            raise self._not_shared(f"an executor does not find {os.path.realpath(missing[1])}, which is there")

    def check_state(self, checkpoint: Path, stores: Sequence[StateStores]) -> None:
        """The state that a batch's tasks have written is in the checkpoint: else STORAGE_NOT_SHARED, before the batch
        counts as done."""
        missing = find_missing_state(checkpoint, stores) if self.are_remote else []
        if missing:
            raise self._not_shared(
                f"the state of the batch was written in {len(missing)} partitions where it cannot be seen, first "
                f"{missing[0]}; executors are on {', '.join(self._view.list_hosts())}"
            )

    def check_computed_once(self, run_id: str) -> None:
        """Raise ComputedTwice when a stage of this query run was computed again, in whole or in part.

        Spark adds what `observe` counts and collects whenever a task in front of a shuffle ends, also when the same
        task ran before on an executor that was lost meanwhile: such a batch has records twice in its counts and in
        quarantine, while its rows are right.
        """
        if not self.are_remote:
            return
        try:
            self._view.wait_for_events(_EVENTS_MILLISECONDS)  # events of stages arrive late
        except SPARK_ERRORS as error:
            raise ComputedTwice("it is not known whether a stage was computed again") from error
        tracker = self._spark.sparkContext.statusTracker()
        jobs = [job for job in tracker.getJobIdsForGroup(run_id) if job > self._last_job]
        stages = {stage for job in jobs if (of_job := tracker.getJobInfo(job)) for stage in of_job.stageIds}
        self._last_job = max(jobs, default=self._last_job)
        again = [
            stage
            for stage in sorted(stages)
            if (info := tracker.getStageInfo(stage))
            and (info.currentAttemptId or info.numCompletedTasks > info.numTasks)
        ]
        if again:
            raise ComputedTwice(f"stages {', '.join(map(str, again))}")

    def _ask(self) -> None:
        probes = self._paths.staging / "probe"
        try:
            self._ask_in(probes)
        finally:
            with contextlib.suppress(OSError):  # what a killed run left is swept with the attempts
                probes.rmdir()

    def _ask_in(self, probes: Path) -> None:
        nonce = secrets.token_hex(6)
        folder = probes / nonce
        asked, answered = folder / "asked", folder / "answered"
        asked.mkdir(parents=True)
        # Spark deals out tasks one to each executor in turn.
        count = 2 * max(int(self._spark.sparkContext.defaultParallelism), len(self._view.list_ids()))
        for number in range(count):
            (asked / f"{number:04d}.txt").write_text(f"{nonce}-{number}\n")
        session = self._spark.newSession()
        session.conf.set("spark.sql.files.maxPartitionBytes", "1m")
        session.conf.set("spark.sql.files.openCostInBytes", "1m")  # a task for each file
        session.conf.set("spark.sql.sources.parallelPartitionDiscovery.threshold", "1000000")
        session.conf.set(
            "spark.sql.files.ignoreMissingFiles", "true"
        )  # who does not see a file is silent, and found out
        host = "try_reflect('java.net.InetAddress', 'getLocalHost')"
        frame = session.read.text(str(asked)).selectExpr(f"concat(value, ' ', coalesce({host}, '')) AS value")
        try:
            frame.write.text(str(answered))
        except SPARK_ERRORS as error:
            if self._no_executors is not None or self._view.is_stopped:
                raise
            if any(words in str(error) for words in _PASSING):
                raise  # not the storage's fault: it has another error code
            if (differs := explain_other_spark(str(error), self._paths.name)) is not None:
                raise differs from error
            causes = [line.strip() for line in str(error).splitlines() if line.startswith("Caused by")]
            reason = (causes[-1].removeprefix("Caused by: ") if causes else first_lines(error))[:300]
            raise self._not_shared(f"one of those on {', '.join(self._view.list_hosts())} said: {reason}") from error
        try:
            lines = [line for file in answered.glob("part-*") for line in file.read_text().splitlines()]
        except OSError as error:
            raise self._not_shared(
                f"what they write cannot be read here ({error.strerror}): they run as another user"
            ) from error
        missing = count - len({line.split(" ")[0] for line in lines})
        if missing:
            answers = {line.partition(" ")[2] for line in lines}
            silent = [one for one in self._view.list_hosts() if not any(one in answer.split("/") for answer in answers)]
            raise self._not_shared(
                f"of {count} files that they were to read and answer with a file next to it, {missing} have no answer; "
                f"those on {', '.join(silent or self._view.list_hosts())} have other folders under these paths"
            )
        self._remove_probe(folder)

    def _remove_probe(self, folder: Path) -> None:
        """Remove the answers, as a later run must remove what executors leave in staging."""
        try:
            shutil.rmtree(folder)
        except FileNotFoundError:
            pass  # swept by a run that has taken over
        except OSError as error:
            raise self._not_shared(
                f"what they wrote cannot be removed here ({error.strerror}): they run as another user"
            ) from error

    def _not_shared(self, what: str) -> UsageError:
        fix = "mount the project's folder (data and sources) on each worker under the same path, for the same user; or "
        fix += "take the worker out of the cluster"
        return errors.STORAGE_NOT_SHARED(where=str(self._paths.staging), fault=what, fix=fix)

    def check_no_state(self, job_folder: Path) -> None:
        """Raise STORAGE_NOT_SHARED for a query that keeps state, where executors do not see the state folder."""
        if self.unseen is None:
            return
        raise errors.STORAGE_NOT_SHARED(
            where=str(job_folder),
            fault="the query keeps state (windows, duplicates, joins of streams), which tasks read and write as files",
            fix=f"`spark: {{master: 'local[*]'}}` in {job_folder}/pipeline.yaml runs it without executors; or keep "
            "`state:` in a folder that each worker mounts under the same path",
        )

    def _watch(self, done: threading.Event) -> None:
        limit = self._view.read_seconds(EXECUTOR_WAIT)
        tracker = self._spark.sparkContext.statusTracker()
        since: float | None = None
        said_at = time.monotonic()
        while not done.wait(_WATCH_SECONDS):
            if self._view.is_stopped:
                return
            now = time.monotonic()
            if self._view.list_ids() or not tracker.getActiveStageIds():
                since = None
                continue
            if since is None:
                since = said_at = now
            if now - since >= limit:
                self._no_executors = no_executors(
                    self._view.read_setting, f"pipeline {self._paths.name}", self._view.master, limit
                )
                self._view.cancel_all_jobs()  # jobs that start anyway are cancelled after the next limit
                since = None
                continue
            if now - said_at >= _SAY_EVERY_SECONDS:
                said_at = now
                emit("progress", note=f"waiting for an executor of {self._view.master} ({now - since:.0f} s)")
