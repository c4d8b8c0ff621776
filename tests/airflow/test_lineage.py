"""What the tasks tell Airflow's OpenLineage provider, as the provider itself asks for it.

With ``OPENLINEAGE_SPEC=DIR`` (the folder ``spec`` of OpenLineage's repository, which no package brings) every event is
also compared with the JSON Schemas there.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("airflow.providers.openlineage", reason="the OpenLineage provider is not installed")

from airflow.providers.openlineage.extractors.base import DefaultExtractor
from openlineage.client.event_v2 import Job, Run, RunEvent, RunState
from openlineage.client.serde import Serde

from tests.airflow.endings import make_context, make_tasks, run_to_its_end, run_without_spark
from tests.support.held import BAD, GOOD, NAME, Held, commands

SPEC = os.environ.get("OPENLINEAGE_SPEC")


@pytest.fixture
def held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Held]:
    run_without_spark(monkeypatch)
    monkeypatch.setattr("tidegate.airflow.operators.ask", lambda *_: None)
    pipeline = Held(tmp_path / "project", malformed=1)
    settings = "version: 1\nkafka: {bootstrap_servers: 'kafka-1:9094,kafka-2:9094'}\n"
    (pipeline.root / "tidegate.yaml").write_text(settings)
    with commands(lambda: pipeline):
        yield pipeline


def make_event(task: Any, run_id: str, state: RunState = RunState.COMPLETE) -> dict[str, Any]:
    """The event of a task that has ended, as the provider makes and sends it."""
    extractor, ti = DefaultExtractor(task), SimpleNamespace(run_id=run_id)
    found = extractor.extract_on_complete(ti) if state == RunState.COMPLETE else extractor.extract_on_failure(ti)
    event = RunEvent(
        eventType=state,
        eventTime=datetime.now(UTC).isoformat(),
        run=Run("01941f29-7c00-7087-8940-40e5bdb8b7a0"),
        job=Job("default", f"{NAME}.{task.task_id}"),
        producer="https://example.org/test",
        inputs=[] if found is None else found.inputs,
        outputs=[] if found is None else found.outputs,
    )
    value: dict[str, Any] = json.loads(Serde.to_json(event))
    check_schema(value)
    return value


def check_schema(event: dict[str, Any]) -> None:
    """Compare an event, and each facet in it, with the schemas of OpenLineage."""
    if SPEC is None:
        return
    from jsonschema import Draft202012Validator, FormatChecker
    from referencing import Registry, Resource

    files = [Path(SPEC) / "OpenLineage.json", *sorted((Path(SPEC) / "facets").glob("*.json"))]
    schemas = [json.loads(file.read_text()) for file in files]
    registry = Registry().with_resources([(one["$id"], Resource.from_contents(one)) for one in schemas])
    # Facets name the version of the core that they were written for.
    core = Resource.from_contents(schemas[0])
    for schema in schemas:
        for word in json.dumps(schema).split('"'):
            if word.startswith("https://openlineage.io/spec/") and "/OpenLineage.json#" in word:
                registry = registry.with_resource(word.partition("#")[0], core)
    Draft202012Validator(schemas[0], registry=registry, format_checker=FormatChecker()).validate(event)
    known = {one["$id"]: one for one in schemas}
    for dataset in (*event["inputs"], *event["outputs"]):
        for kind in ("facets", "inputFacets", "outputFacets"):
            for facet in dataset.get(kind, {}).values():
                where, _, name = facet["_schemaURL"].partition("#")
                assert where in known, f"{where} is of another version of OpenLineage than {SPEC}"
                schema = {"$ref": f"{where}#{name}"}
                Draft202012Validator(schema, registry=registry, format_checker=FormatChecker()).validate(facet)


def test_a_run_that_publishes_has_both_ends(held: Held) -> None:
    tasks, context = make_tasks(held), make_context("R1")
    held.arriving = [GOOD]
    for task in (tasks.ingest, tasks.audit, tasks.publish):
        assert run_to_its_end(lambda task=task: task.execute(context)) is None  # type: ignore[misc]
    event = make_event(tasks.publish, "R1")
    (source,), (table,) = event["inputs"], event["outputs"]
    assert (source["namespace"], source["name"]) == ("kafka://kafka-1:9094", "orders")
    assert {one["name"]: one["type"] for one in source["facets"]["schema"]["fields"]} == {"id": "bigint", "n": "bigint"}
    assert source["inputFacets"]["inputStatistics"]["rowCount"] == 5
    assert source["inputFacets"]["dataQualityMetrics"]["rowCount"] == 5
    assert (table["namespace"], table["name"]) == ("file", str(held.paths.table))
    assert [one["name"] for one in table["facets"]["schema"]["fields"]] == ["id", "n"]
    assert table["facets"]["version"]["datasetVersion"] == "0"
    assert table["facets"]["lifecycleStateChange"]["lifecycleStateChange"] == "CREATE"
    assert table["facets"]["storage"]["storageLayer"] == "delta"
    statistics = table["outputFacets"]["outputStatistics"]
    assert (statistics["rowCount"], statistics["fileCount"]) == (4, 1)

    (audited,) = make_event(tasks.audit, "R1")["inputs"]
    (rule,) = audited["inputFacets"]["dataQualityAssertions"]["assertions"]
    assert audited["name"] == table["name"] and rule["assertion"] == "expect_column_values_to_not_be_null"
    assert (rule["name"], rule["column"], rule["success"], rule["severity"]) == ("good", "id", True, "error")
    assert rule["actual"] == "0 unexpected"


def test_what_is_held_or_discarded_says_nothing_of_the_table(held: Held) -> None:
    tasks, context = make_tasks(held), make_context("R1")
    held.arriving = [BAD]
    run_to_its_end(lambda: tasks.ingest.execute(context))
    run_to_its_end(lambda: tasks.audit.execute(context))
    for task in (tasks.audit, tasks.publish):
        for state in (RunState.COMPLETE, RunState.FAIL):
            event = make_event(task, "R1", state)
            assert event["inputs"] == event["outputs"] == []
    held.decide("discard")
    assert make_event(tasks.audit, "R1")["inputs"] == make_event(tasks.publish, "R1")["outputs"] == []


def test_what_is_released_has_the_rules_that_did_not_hold(held: Held) -> None:
    tasks, context = make_tasks(held), make_context("R1")
    held.arriving = [BAD]
    run_to_its_end(lambda: tasks.ingest.execute(context))
    run_to_its_end(lambda: tasks.audit.execute(context))
    held.decide("release")
    (audited,) = make_event(tasks.audit, "R1")["inputs"]
    (rule,) = audited["inputFacets"]["dataQualityAssertions"]["assertions"]
    assert (rule["success"], rule["actual"]) == (False, "3 unexpected")
    assert make_event(tasks.publish, "R1")["outputs"][0]["outputFacets"]["outputStatistics"]["rowCount"] == 3


def test_a_run_that_is_unknown_has_no_ends(held: Held) -> None:
    assert make_event(make_tasks(held).publish, "R9")["outputs"] == []
