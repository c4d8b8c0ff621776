"""One stack for the tests of a module: they go on from each other, in their order."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from tests.compose.records import Records
from tests.compose.stack import Stack, running_stack


@pytest.fixture(scope="session", autouse=True)
def container_engine() -> None:
    """Skip where no engine answers."""
    if subprocess.run(["docker", "info"], capture_output=True).returncode:
        pytest.skip("no container engine answers: make compose-test brings one")


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A checkout with its .env; nothing is started yet."""
    with running_stack(tmp_path_factory.mktemp("compose"), AIRFLOW_PARALLELISM="4") as stack:
        yield stack


@pytest.fixture(scope="module")
def records(stack: Stack) -> Records:
    """What was made for the pipelines of the stack."""
    return Records(stack)
