"""A folder of the machine in the place of the volume `data`, given to the containers' user, on a file system that fills
up: docs/how-to/from-laptop-to-team.md has the lines.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.compose.pipelines import prepare_pipelines
from tests.compose.records import Records
from tests.compose.stack import RUN_SECONDS, Stack, running_stack

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OVERRIDE = """volumes:
  data:
    driver: local
    driver_opts: {{type: none, o: bind, device: {folder}}}
"""


@pytest.fixture(scope="module")
def own_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A file system of its own of 300 MB that belongs to the user of the image."""
    folder = tmp_path_factory.mktemp("own") / "data"
    folder.mkdir()
    if os.geteuid():
        pytest.skip("only root can mount a file system and give it away")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=300m,uid=10001,gid=10001", "tmpfs", folder], check=True)
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


@pytest.fixture(scope="module")
def stack(own_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """The core services, with their data in that folder."""
    folder = tmp_path_factory.mktemp("compose")
    with running_stack(folder, "tidegate-test-own", AIRFLOW_PARALLELISM="4") as stack:
        prepare_pipelines(stack.folder)
        (stack.folder / "docker-compose.override.yaml").write_text(OVERRIDE.format(folder=own_folder))
        stack.up("core")
        yield stack


def test_a_run_on_a_full_disk_says_so_and_goes_on_when_there_is_room(
    stack: Stack, records: Records, own_folder: Path, tmp_path: Path, spark: SparkSession
) -> None:
    records.make("orders", 20_000)
    stack.run("sh", "-c", "dd if=/dev/zero of=data/filler bs=64k 2>/dev/null || true")
    stack.run("truncate", "--size=-300K", "data/filler")
    [run] = stack.trigger("orders")
    stack.client.wait_for_task(*run, "ingest", {"up_for_retry"}, RUN_SECONDS)
    log = stack.client.fetch_log(*run, "ingest", 1)
    assert "DISK_FULL" in log and "/opt/tidegate/data" in log, log[-3000:]
    stack.note("a full disk: " + next(line for line in log.splitlines() if line.startswith("DISK_FULL"))[:200])
    stack.run("rm", "data/filler")
    stack.wait_for_runs([run])
    assert (own_folder / "warehouse" / "orders").stat().st_uid == 10001
    records.check(tmp_path, spark, "orders")
