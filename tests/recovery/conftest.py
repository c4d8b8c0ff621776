"""Scenes that several sweeps start from; each test works on a copy."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.project import in_session
from tests.support.scene import NAME, Snapshot, make_scene
from tidegate.core.storage import ObjectPath

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def published(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Snapshot:
    """One file offered and published: the state in which a pipeline spends its life."""
    folder = tmp_path_factory.mktemp("scene")
    scene = make_scene(folder / "live")
    scene.offer()
    scene.run("first", submit=in_session(spark))
    scene.check_complete()
    return scene.save(folder / "published")


@pytest.fixture(scope="session")
def offered(published: Snapshot) -> Snapshot:
    """Three files more than are published."""
    scene = published.restore()
    for _ in range(3):
        scene.offer()
    return scene.save(published.folder.with_name("offered"))


@pytest.fixture(scope="session")
def staged(offered: Snapshot) -> Snapshot:
    """These files staged in two batches and not audited."""
    scene = offered.restore()
    scene.tidegate("ingest", NAME, "--run-id", "second")
    return scene.save(offered.folder.with_name("staged"))


@pytest.fixture(scope="session")
def audited(staged: Snapshot) -> Snapshot:
    """The same, audited and not published."""
    scene = staged.restore()
    scene.tidegate("audit", NAME, "--run-id", "second")
    return scene.save(staged.folder.with_name("audited"))


@pytest.fixture
def lake(request: pytest.FixtureRequest, devices: int) -> Path | None:
    """Where the tables of a test are: in a bucket if its parameter ``devices`` is 0, else None, beside its state."""
    return None if devices else ObjectPath(request.getfixturevalue("s3_bucket").url)


_COUNTED: dict[tuple[Path, tuple[str, ...]], int] = {}


def count_steps(start: Snapshot, command: tuple[str, ...]) -> int:
    """How many durable steps a command takes that nobody stops: it runs to its end, once for all tests."""
    if (start.folder, command) not in _COUNTED:
        scene = start.restore()
        scene.tidegate(*command, fault="1000000|kill")
        _COUNTED[start.folder, command] = len(scene.steps())
        assert scene.steps()[5:], "the steps were not counted"
    return _COUNTED[start.folder, command]
