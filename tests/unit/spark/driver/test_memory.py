"""A driver that ran out of memory: what the error says of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegate.core.errors import TryAgainError, UsageError
from tidegate.spark.driver.order import IngestOrder
from tidegate.spark.driver.submit import describe_batch, driver_died, out_of_memory, ran_out
from tidegate.state.batch_files import Given
from tidegate.state.topics import TopicPartition

_FILES = {
    "1-a.json": {"path": "data/in/a.json", "size": 10, "mtime_ns": 1},
    "2-b.json": {"path": "data/in/b.json", "size": 62_914_560, "mtime_ns": 1},
    "3-c.json": {"path": "data/in/c.json", "size": 20, "mtime_ns": 1},
}
_ORDER = IngestOrder(project_root="/p", pipeline="orders", run_id="r", token="t", links={"s": _FILES})


def test_the_batch_in_hand_is_told_with_its_largest_file() -> None:
    told = describe_batch(_ORDER, 7, {"s": Given(["1-a.json", "2-b.json"])})
    assert told == "batch 7 (s: 2 files, the largest data/in/b.json of 62,914,560 bytes)"
    assert describe_batch(_ORDER, 0, {"s": Given(["3-c.json"])}) == "batch 0 (s: 1 file data/in/c.json of 20 bytes)"
    first, second, other = TopicPartition("clicks", 0), TopicPartition("clicks", 1), TopicPartition("trades", 0)
    offsets = {"k": Given(begins={second: 5}, ends={second: 9, other: 7, first: 4})}
    assert describe_batch(_ORDER, 1, offsets) == (
        "batch 1 (k: topic clicks, partitions and offsets 0: None to 4, 1: 5 to 9; "
        "k: topic trades, partitions and offsets 0: None to 7)"
    )


def test_the_error_names_the_setting_and_twice_the_memory() -> None:
    error = out_of_memory("orders", "1g", "batch 7", Path("/state/driver.log"))
    assert error.code == "OUT_OF_MEMORY" and error.exit_code == 64
    assert "the driver had 1g" in error.message and "batch 7" in error.message
    assert "spark.driver.memory: 2g" in str(error.fix) and "`tidegate run orders`" in str(error.fix)
    assert "spark.driver.memory: 1024m" in str(out_of_memory("orders", "512m", "", Path("log")).fix)


@pytest.mark.parametrize(("exit_code", "found"), [(52, True), (1, False), (137, False), (0, False)])
def test_only_sparks_own_code_means_memory(exit_code: int, found: bool) -> None:
    assert ran_out(exit_code, None, on_cluster=False) is found
    assert ran_out(exit_code, None, on_cluster=True) is found


def test_an_answer_says_it_itself_and_on_a_cluster_it_may_be_an_executors() -> None:
    told = UsageError("OUT_OF_MEMORY", "")
    assert ran_out(0, told, on_cluster=False) and not ran_out(0, told, on_cluster=True)
    assert not ran_out(52, TryAgainError("DISK_FULL", ""), on_cluster=False)


@pytest.mark.parametrize(
    ("exit_code", "said", "fix"),
    [
        (
            -9,
            "was killed (SIGKILL, most often by the kernel",
            "more memory",
        ),
        (137, "was killed (SIGKILL, most often by the kernel", "`airflow: {slots: ...}`"),
        (-15, "was ended by signal 15 without a result", "`tidegate doctor`"),
        (1, "ended with code 1 without a result", "`tidegate doctor`"),
    ],
)
def test_a_driver_that_gave_no_answer(exit_code: int, said: str, fix: str, tmp_path: Path) -> None:
    log = tmp_path / "driver.log"
    log.write_text("one\nlast words\n")
    error = driver_died("orders", exit_code, log)
    assert (error.code, error.exit_code) == ("DRIVER_DIED", 75)
    assert said in error.message and error.message.endswith("; its log ends: one | last words")
    assert fix in str(error.fix) and "`tidegate run orders`" in str(error.fix)
