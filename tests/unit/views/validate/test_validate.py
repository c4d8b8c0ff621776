"""``validate --spark``: a pipeline whose files are wrong is told so once, and Spark is not asked about it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.texts import write_project
from tidegate.views.validate import list_notes, validate_pipelines

_SPEC = (
    "version: 1\nname: {}\nschedule: null\nsources:\n  s: {{type: files, path: in, format: csv, schema: id STRING}}\n"
)


def test_all_sinks_are_checked_where_one_is_of_no_known_type(tmp_path: Path) -> None:
    sinks = (
        "{type: webhook}", "{type: kafka, topic: a b}", "{type: 5}", "{type: foreach, writer: sinks}",
        "{type: foreach_batch, function: 'sinks.py:write'}", "{type: console}", "{type: console}",
    )  # fmt: skip
    spec = _SPEC.format("fed") + "sinks:\n" + "".join(f"  - {one}\n" for one in sinks)
    found = validate_pipelines(write_project(tmp_path, {"jobs/fed/pipeline.yaml": spec}), None, with_spark=False)
    assert [(fault.file, fault.line, fault.key) for fault in found] == [
        *(("jobs/fed/pipeline.yaml", 7 + index, f"sinks[{index}]{key}")
          for index, key in ((0, ".type"), (1, ".topic"), (2, ".type"), (3, ".writer"), (6, ""))),
        ("jobs/fed/sinks.py", None, ""),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        ("", "rule 'in_range' reads the column 'celsuis', which the pipeline's rows do not have"),
        ("transform: transform.sql\n", None),
        ("schema: infer", None),
        (
            "schema: celsuis STRING",
            "rule 'in_range': the column 'celsuis' is of type string, and `max_value` is a number",
        ),
    ],
)
def test_columns_of_rules_are_checked_where_the_spec_has_them(tmp_path: Path, changed: str, line: str | None) -> None:
    spec = (
        _SPEC.format("temps").replace("schema: id STRING", changed)
        if "schema" in changed
        else (_SPEC.format("temps") + changed)
    )
    suite = (
        "name: temps\nexpectations:\n  - type: expect_column_values_to_be_between\n"
        "    kwargs: {column: celsuis, max_value: 60}\n    meta: {rule: in_range}\n"
    )
    texts = {"jobs/temps/pipeline.yaml": spec, "expectations/temps.yaml": suite}
    texts["jobs/temps/transform.sql"] = "SELECT 1 AS celsuis FROM s"
    found = validate_pipelines(write_project(tmp_path, texts), None, with_spark=False)
    assert [(fault.where, fault.message) for fault in found] == (
        [] if line is None else [("expectations/temps.yaml:3", line)]
    )


def test_lost_backslashes_are_noted_also_beside_faults(tmp_path: Path) -> None:
    spec = _SPEC.format("logs").replace("null", "never") + "transform: transform.sql\n"
    texts = {"jobs/logs/pipeline.yaml": spec, "jobs/logs/transform.sql": "SELECT '\\d' FROM s"}
    project = write_project(tmp_path, {**texts, "jobs/torn/pipeline.yaml": "a: ["})
    [note] = list_notes(project, None)
    assert note.startswith("jobs/logs/transform.sql:1: Spark does not keep the backslash of \\d")
    assert list_notes(project, ["torn", "none", "NO"]) == []


def test_spark_looks_at_sound_pipelines_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {"expectations/bad_suite.yaml": "name: bad_suite\nexpectations: []\n"}
    texts |= {f"jobs/{name}/pipeline.yaml": _SPEC.format(name) for name in ("sound", "bad_suite", "bad_transform")}
    texts["jobs/bad_transform/transform.sql"] = "DROP TABLE s"
    texts["jobs/bad_transform/pipeline.yaml"] += "transform: transform.sql\n"
    project = write_project(tmp_path, texts)
    analysed: list[str] = []
    monkeypatch.setattr(
        "tidegate.spark.inspection.analyse.analyse_pipeline", lambda project, name, jars: analysed.append(name)
    )
    faults = validate_pipelines(project, None, with_spark=True)
    assert {fault.file for fault in faults} == {"jobs/bad_transform/transform.sql", "expectations/bad_suite.yaml"}
    assert analysed == ["sound"]
