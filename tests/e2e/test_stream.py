"""``tidegate stream`` and ``tidegate state`` through the command line."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.project import in_session
from tests.support.scene import NAME, make_scene

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_stream_publishes_as_records_come_and_stops_cleanly(tmp_path: Path) -> None:
    """Two deliveries while it runs."""
    scene = make_scene(tmp_path / "project")
    process = scene.start("stream", NAME, "--every", "1 second", "--json")
    try:
        for number in range(2):
            scene.offer()
            until = time.monotonic() + 90
            while not _published(scene.state, number + 1):
                assert process.poll() is None and time.monotonic() < until, "nothing was published"
                time.sleep(0.2)
        time.sleep(1.5)  # into the pause between two runs
    finally:
        process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=10)
    reports = [json.loads(line) for line in out.splitlines()]
    assert [report["outcome"] for report in reports] == ["published"] * 2, err.decode()
    assert process.returncode in (0, 75)  # in a pause, or in the middle of a look
    scene.wait_until_gone()
    scene.check_complete()


@pytest.fixture
def with_ctrl_c() -> Iterator[None]:
    """What is started hears Ctrl-C, also when these tests run in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_a_stream_without_a_rhythm_looks_again_at_once(tmp_path: Path, with_ctrl_c: None) -> None:
    scene = make_scene(tmp_path / "project")
    process = scene.start("stream", NAME)
    try:
        scene.offer()
        until = time.monotonic() + 90
        while not _published(scene.state, 1):
            assert process.poll() is None and time.monotonic() < until, "nothing was published"
            time.sleep(0.2)
    finally:
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=10)
    assert process.returncode == 0 or (process.returncode == 75 and b"(SIGINT)" in err), err.decode()
    scene.wait_until_gone()
    scene.check_complete()


def test_what_a_stream_cannot_do_is_refused(tmp_path: Path) -> None:
    scene = make_scene(tmp_path / "project")
    scene.offer()
    for words, said in {
        ("--continuous", "1 second"): "no batches that could be checked",
        ("--every", "now and then"): "now and then",
    }.items():
        process = scene.start("stream", NAME, *words)
        _, err = process.communicate(timeout=30)
        assert process.returncode == 64 and said in err.decode(), err.decode()
    assert not scene.state.exists()


def _published(state: Path, count: int) -> bool:
    found = []
    for path in (state / "runs").glob("*.json") if (state / "runs").is_dir() else ():
        found.append(json.loads(path.read_text())["outcome"])
    return found.count("published") >= count


def test_the_state_of_a_query_without_state(tmp_path: Path, spark: SparkSession) -> None:
    scene = make_scene(tmp_path / "project")
    scene.offer()
    scene.run(submit=in_session(spark))
    scene.tidegate("state", NAME, expect=64)
