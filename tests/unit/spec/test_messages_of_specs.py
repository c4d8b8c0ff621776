"""What ``validate`` says of files that people wrote, whole, and what it says to write tried."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from tidegate.cli.main import main
from tidegate.quality.suite import load_suite
from tidegate.spec.project import load_project
from tidegate.spec.spark_settings import check_spark_conf
from tools.spark_settings import TARGET, read_settings

_SPEC = """\
version: 1
name: orders
schedule: null
sources:
  s: {type: files, path: inbox, format: json, schema: id STRING}
"""
_OLD_SUITE = """{
  "data_asset_type": null,
  "expectation_suite_name": "orders.warning",
  "expectations": [
    {"expectation_type": "expect_column_values_to_not_be_null",
     "kwargs": {"column": "id", "result_format": "BASIC"}, "meta": {"rule": "id_there"}},
    {"expectation_type": "expect_column_values_to_be_in_set", "ge_cloud_id": null,
     "kwargs": {"column": "id", "value_set": ["\u00e4", "b"], "mostly": 0.9}, "meta": {}}
  ],
  "ge_cloud_id": null,
  "meta": {"great_expectations_version": "0.18.22"}
}
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write(tmp_path, "tidegate.yaml", "version: 1\n")
    write(tmp_path, "jobs/orders/pipeline.yaml", _SPEC)
    return tmp_path


def write(root: Path, name: str, text: str) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text)


def tidegate(root: Path, command: str, capsys: pytest.CaptureFixture[str]) -> tuple[object, str, str]:
    """(exit code, stdout, stderr) of a command line."""
    with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit) as ended:
        patch.setattr(sys, "argv", ["tidegate", "--project", str(root), *shlex.split(command)[1:]])
        main()
    return ended.value.code, *capsys.readouterr()


SOUND = "specs and suites are valid; columns and code were not checked: `tidegate validate --spark`\n"

SPECS = {
    "an empty file": (
        "",
        """\
jobs/orders/pipeline.yaml:1: version: the key is missing
    fix: add `version: ...`; allowed: 1
jobs/orders/pipeline.yaml:1: name: the key is missing
    fix: add `name: ...`
jobs/orders/pipeline.yaml:1: sources: the key is missing
    fix: add `sources: ...`, for example `sources: {events: {type: files, path: data/inbox, \
format: json, schema: id STRING}}`
""",
    ),
    "a type and a format that are not known": (
        _SPEC.replace("type: files", "type: file").replace("json", "jsn"),
        """\
jobs/orders/pipeline.yaml:5: sources.s.type: 'file' is not a type of source
    fix: write files; allowed: files, kafka, rate, socket
jobs/orders/pipeline.yaml:5: sources.s.format: 'jsn' is not allowed
    fix: write json; allowed: json, csv, text, xml, parquet, orc, avro
""",
    ),
    "another name than the folder's": (
        _SPEC.replace("name: orders", "name: ordres") + "transform: transform.py\n",
        """\
jobs/orders/pipeline.yaml:2: name: the folder is named 'orders', the pipeline 'ordres'
    fix: write name: orders
""",
    ),
}


@pytest.mark.parametrize("case", SPECS)
def test_a_spec(case: str, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, told = SPECS[case]
    write(root, "jobs/orders/pipeline.yaml", text)
    write(root, "jobs/orders/transform.py", "def transform(s):\n    return s\n")
    assert tidegate(root, "tidegate validate", capsys) == (64, told, "")


@pytest.mark.parametrize("text", ["name: orders\n\tschedule: null\n", "name: a\n  \tschedule: null\n", "\tname: a\n"])
def test_a_line_that_is_indented_with_a_tab(text: str, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(root, "jobs/orders/pipeline.yaml", text)
    line = 1 + text.split("\t")[0].count("\n")
    told = f"jobs/orders/pipeline.yaml:{line}: not YAML: the line is indented with a tab\n    fix: use spaces\n"
    assert tidegate(root, "tidegate validate", capsys) == (64, told, "")


def test_expectations_that_are_no_list(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(root, "expectations/orders.yaml", "name: orders\nexpectations: {a: b}\n")
    assert tidegate(root, "tidegate validate", capsys) == (
        64,
        "expectations/orders.yaml:2: expectations: a mapping is not a list of expectations\n    fix: write a list: "
        "`- type: expect_column_values_to_not_be_null`, and below it `kwargs: {column: id}`\n",
        "",
    )


def test_the_example_of_a_source_can_be_written(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    example = SPECS["an empty file"][1].rpartition("for example `")[2].partition("`")[0]
    write(root, "jobs/orders/pipeline.yaml", f"version: 1\nname: orders\nschedule: null\n{example}\n")
    assert tidegate(root, "tidegate validate", capsys) == (0, SOUND, "")


def test_a_suite_of_great_expectations_before_1_0(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(root, "expectations/orders.yaml", _OLD_SUITE)
    code, told, _ = tidegate(root, "tidegate validate", capsys)
    assert (code, told) == (
        64,
        "expectations/orders.yaml:3: expectation_suite_name: the file has the form of Great Expectations before 1.0; "
        "since then expectation_suite_name is name, expectation_type is type\n"
        "    fix: `tidegate validate orders --upgrade-suite` rewrites it, and keeps the old file next to it\n",
    )
    command = told.partition("fix: `")[2].partition("`")[0]
    suite = root / "expectations/orders.yaml"
    assert tidegate(root, command, capsys) == (
        0,
        SOUND.replace("validate --spark", "validate orders --spark"),
        f"rewrote {suite}; as it was: {suite}.before\n",
    )
    assert (root / "expectations/orders.yaml.before").read_text() == _OLD_SUITE
    read = load_suite(load_project(root), "orders")
    assert read is not None
    assert [(rule.rule, rule.type, rule.kwargs) for rule in read.rules] == [
        ("id_there", "expect_column_values_to_not_be_null", {"column": "id"}),
        (
            "column_values_to_be_in_set(id)",
            "expect_column_values_to_be_in_set",
            {"column": "id", "value_set": ["\u00e4", "b"], "mostly": 0.9},
        ),
    ]
    written = suite.read_bytes()
    assert tidegate(root, command, capsys)[2] == "" and suite.read_bytes() == written


def test_a_setting_that_spark_does_not_have(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    conf = "spark:\n  conf:\n    spark.sql.shufle.partitions: 8\n"
    write(root, "jobs/orders/pipeline.yaml", _SPEC + conf)
    assert tidegate(root, "tidegate validate", capsys) == (
        64,
        "jobs/orders/pipeline.yaml:8: spark.conf.spark.sql.shufle.partitions: Spark has no setting "
        "'spark.sql.shufle.partitions', and would not say so\n    fix: write spark.sql.shuffle.partitions\n",
        "",
    )
    known = "{spark.sql.catalog.lake: org.Lake, spark.sql.ansi.enabled: false, spark.hadoop.fs.s3a.endpoint: e}"
    write(root, "jobs/orders/pipeline.yaml", _SPEC + f"spark: {{conf: {known}}}\n")
    assert tidegate(root, "tidegate validate", capsys) == (0, SOUND, "")


def test_the_settings_that_are_known_are_those_of_the_installed_spark() -> None:
    assert TARGET.read_text().split() == read_settings()
    for name in read_settings():
        findings = check_spark_conf((), {name: "true" if name.endswith(".enabled") else "1"})
        assert findings == [] or "cannot be overridden" in findings[0].message
