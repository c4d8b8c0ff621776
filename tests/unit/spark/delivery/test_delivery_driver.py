"""What the driver that feeds sinks answers (no JVM is started here)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NoReturn

import pytest

from tests.unit.settled_projects import make_project, make_settled
from tidegate.spark.delivery import job
from tidegate.spark.driver.order import DeliveryOrder


def test_any_error_of_spark_is_a_fault_of_the_sinks_and_not_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pyspark asserts what holds while its context lives: a sink that was not fed must not keep the table waiting."""
    project = make_project(tmp_path)
    make_settled(project, "flow")

    def fail(*_: object) -> NoReturn:
        raise AssertionError("the context has ended")

    monkeypatch.setattr(job, "_feed", fail)
    assert job.main(DeliveryOrder(str(tmp_path), "flow", "r1", "1-x", ["first", "second"])) == 0
    answer = json.loads(project.paths("flow").delivery_result("r1").read_bytes())
    assert answer["error"] is None
    assert {name: fault["message"] for name, fault in answer["faults"].items()} == dict.fromkeys(
        ("first", "second"), "AssertionError: the context has ended"
    )
