"""What errors of work beside the runs say of the next run."""

from __future__ import annotations

import pytest

from tidegate.core import errors as core_errors
from tidegate.core.errors import TidegateError
from tidegate.rework import errors as rework_errors
from tidegate.runs.opening import describe_for_side_job
from tidegate.sources import errors as sources_errors
from tidegate.spark import errors as spark_errors

NEXT = "continues with its own work; nothing is lost, and the same command starts the failed part again"


@pytest.mark.parametrize(
    ("error", "fix"),
    [
        (
            spark_errors.TRANSFORM_FAILED_ON_ROW(failure="it failed", name="events", error="x"),
            "correct the transform, or let it give null for such a value (try_cast, try_to_timestamp, try_divide) and "
            "a rule quarantine its row (docs/how-to/your-own-data.md), then run the same command again with --run-id "
            "bf1",
        ),
        (
            core_errors.DISK_FULL(path="/d/x", parent="/d"),
            "free space (df -h /d), then run the same command again with --run-id bf1",
        ),
        (
            core_errors.NOT_PERMITTED(user="u", use="read", path="/d", reason="", command="chmod"),
            "chmod, then run the same command again with --run-id bf1",
        ),
        (
            sources_errors.FILE_CHANGING(changes="a changed"),
            "let writers finish first: write under a hidden or .tmp name, then rename, or set `settle:` for a stream; "
            "then run the same command again with --run-id bf1",
        ),
    ],
)
def test_the_same_command_begins_anew(error: TidegateError, fix: str) -> None:
    describe_for_side_job(error, "backfill", "events", "bf1")
    assert (error.next_run, error.fix) == (NEXT, fix)


def test_a_replay_is_named_by_another_option() -> None:
    error = core_errors.DISK_FULL(path="/d/x", parent="/d")
    describe_for_side_job(error, "replay", "events", "my replay")
    assert error.fix == "free space (df -h /d), then run the same command again with --as 'my replay'"


@pytest.mark.parametrize("kind", ["rollback", "maintain", "adopt"])
def test_what_the_next_run_finishes_stays(kind: str) -> None:
    error = core_errors.DISK_FULL(path="/d/x", parent="/d")
    describe_for_side_job(error, kind, "events", "b")
    assert error.next_run == "completes what was begun, if anything was; nothing is lost"


def test_what_does_not_speak_of_a_run_stays() -> None:
    error = rework_errors.BACKFILL_ARGUMENTS(fault="x")
    before = str(error)
    describe_for_side_job(error, "backfill", "events", "b")
    assert str(error) == before
