"""The shipped JSON Schemas: current, and of one mind with the loader."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
import yaml

from tidegate.cli.scaffold.write import init_project
from tidegate.spec import json_schema
from tidegate.spec.pipeline import check_document, list_pipelines
from tidegate.spec.project import load_project
from tidegate.spec.yaml_file import parse_document

REPOSITORY = Path(__file__).parents[3]

# The example of the project's contract: it uses nearly the whole syntax.
CONTRACT_EXAMPLE = """\
version: 1
name: bitcoin_prices
description: Average bitcoin price over 10-minute windows that slide by 5 minutes.
schedule: "*/10 * * * *"           # cron, or null: manual runs only
sources:                           # one or more; the names are the argument names of the transform
  trades:
    type: files                    # files | kafka | rate | socket
    path: data/inbox/trades        # a folder or a glob
    format: json                   # json | csv | text | parquet | orc
    schema: dt TIMESTAMP, amount INT, price DOUBLE        # Spark DDL, or `infer`
    event_time: dt
    watermark: 20 minutes
    settle: 0 seconds              # leave a file alone until it has not changed for so long
    unknown_fields: report         # report | quarantine | rescue (into the column _rescued)
    options: {maxFilesPerTrigger: 500}                    # Spark's own reader options
transform: transform.py            # or transform.sql; left out, rows pass unchanged
trigger: available_now             # available_now | once
output_mode: update                # append | update | complete
watermark_policy: min              # min | max, with watermarks on several sources
close_windows: {when: 30 minutes}  # at_end, or once nothing new has come for so long
table:
  partition_by: [day]
  keys: [start, end]               # output_mode update: the key that a changed row replaces
quality:
  on_critical: hold
  max_quarantine_share: 0.1        # more than this in quarantine is itself a critical failure
sinks:                             # further sinks, fed in order with what was published, at least once
  - {type: kafka, topic: prices, key: start, value: json}         # headers carry run_id and table version
  - {type: foreach_batch, function: "sinks.py:write"}             # write(df, batch_id)
  - {type: foreach, writer: "sinks.py:Writer"}                    # open / process / close
  - {type: console}
spark: {conf: {}}
"""
CONTRACT_PROJECT = """\
version: 1
warehouse: data/warehouse          # tables
state: data/state                  # checkpoints, staging, run reports, leases
quarantine: data/quarantine
spark: {connection: spark_default, master: "local[*]", conf: {}}     # DAGs use the connection, the CLI the master
kafka: {bootstrap_servers: "${KAFKA_BOOTSTRAP_SERVERS:-localhost:9092}"}
lease: {expires_after: 60 seconds}       # without a heartbeat; a dead holder on the same host is replaced at once
"""


def shipped(name: str) -> jsonschema.Draft202012Validator:
    schema = json.loads((json_schema.FOLDER / name).read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def errors(name: str, text: str) -> list[str]:
    return [error.message for error in shipped(name).iter_errors(yaml.safe_load(text))]


def test_the_shipped_schemas_are_current():
    assert json_schema.list_stale() == []
    assert json_schema.main(["--check"]) == 0


def test_every_key_has_a_sentence():
    for schema in json_schema.build_schemas().values():
        for part in (schema, *schema.get("$defs", {}).values()):
            assert all(value["description"].endswith(".") for value in part["properties"].values())


def test_the_examples_of_the_contract():
    assert errors("pipeline.schema.json", CONTRACT_EXAMPLE) == []
    assert errors("tidegate.schema.json", CONTRACT_PROJECT) == []


def faults_of_example(text: str) -> set[tuple[str, str]]:
    document = parse_document(text.encode(), "jobs/bitcoin_prices/pipeline.yaml")
    assert check_document(document, "bitcoin_prices") is not None
    return {(fault.key, fault.code) for fault in document.faults}


def test_the_contract_example_has_no_fault():
    assert faults_of_example(CONTRACT_EXAMPLE) == set()
    waiting_alone = CONTRACT_EXAMPLE.replace("on_critical: hold", "on_critical: continue")
    assert errors("pipeline.schema.json", waiting_alone) == []
    keys = {key for key, _ in faults_of_example(waiting_alone)}
    assert keys == (set() if "output_mode: append" in waiting_alone else {"quality.on_critical"})


def test_the_example_pipelines_and_a_new_project(tmp_path):
    init_project(tmp_path / "demo")
    for root in (REPOSITORY, tmp_path / "demo"):
        project = load_project(root)
        assert errors("tidegate.schema.json", (root / "tidegate.yaml").read_text(encoding="utf-8")) == []
        names = list_pipelines(project)
        assert names
        for name in names:
            assert errors("pipeline.schema.json", project.paths(name).spec.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "change",
    [
        ("format: json", "format: jsn"),
        ("version: 1", "version: 2"),
        ("watermark: 20 minutes", "watermark: 20 mins"),
        ("name: bitcoin_prices", "name: Bitcoin"),
        ("  trades:", "  Trades:"),
        ("trigger:", "triger:"),
        ("max_quarantine_share: 0.1", "max_quarantine_share: 2"),
        ("    path: data/inbox/trades", "    paht: data/inbox/trades"),
        ("{type: console}", "{type: consol}"),
        ("topic: prices", "topics: prices"),
        ("watermark_policy: min", "watermark_policy: mean"),
        ("{when: 30 minutes}", "at_once"),
        ("{when: 30 minutes}", "{when: 30}"),
        ("{when: 30 minutes}", "{after: 30 minutes}"),
    ],
)
def test_the_schema_finds_faults_too(change):
    text = CONTRACT_EXAMPLE.replace(*change)
    assert text != CONTRACT_EXAMPLE
    assert errors("pipeline.schema.json", text)
