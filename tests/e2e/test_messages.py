"""What Spark's analyser finds, as the real command line tells it: in words of the user's files, and nothing else."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
from deltalake import write_deltalake

from tests.support.page_outputs import shown

_SPEC = """\
version: 1
name: {name}
schedule: null
sources:
  readings: {{type: files, path: inbox, format: json, schema: "id STRING, celsius DOUBLE"}}
transform: {transform}
"""
_SUITE = """\
name: rules
expectations:
  - type: expect_column_values_to_not_be_null
    kwargs: {column: id}
  - type: expect_column_values_to_be_between
    kwargs: {column: celsuis, min_value: -60, max_value: 60}
    meta: {rule: in_range, on_failure: quarantine}
"""
_FILES = {
    "tidegate.yaml": "version: 1\n",
    "inbox/a.json": "",
    "jobs/rules/pipeline.yaml": _SPEC.format(name="rules", transform="transform.sql"),
    "jobs/rules/transform.sql": "SELECT * FROM readings\n",
    "expectations/rules.yaml": _SUITE,
    "jobs/doors/pipeline.yaml": _SPEC.format(name="doors", transform="transform.sql"),
    "jobs/doors/transform.sql": "SELECT id, id AS measured_at FROM readings\n",
    "jobs/query/pipeline.yaml": _SPEC.format(name="query", transform="transform.sql"),
    "jobs/query/transform.sql": "SELECT id, celsuis FROM readings\n",
    "jobs/code/pipeline.yaml": _SPEC.format(name="code", transform="transform.py"),
    "jobs/code/transform.py": "def transform(readings):\n    return readings.select('id', 'celsuis')\n",
}

TOLD = """\
{root}/jobs/code/transform.py:2: AnalysisException: [UNRESOLVED_COLUMN.WITH_SUGGESTION] A column, variable, or \
function parameter with name `celsuis` cannot be resolved. Did you mean one of the following? [`celsius`, `id`]. \
SQLSTATE: 42703;
    fix: correct transform.py, then `tidegate validate code --spark`
{doors}
{root}/jobs/query/transform.sql: Spark refuses the query: [UNRESOLVED_COLUMN.WITH_SUGGESTION] A column, variable, or \
function parameter with name `celsuis` cannot be resolved. Did you mean one of the following? [`celsius`, `id`]. \
SQLSTATE: 42703; line 1 pos 11;
    fix: correct transform.sql, then `tidegate validate query --spark`
expectations/rules.yaml:5: kwargs: rule 'in_range' reads the column 'celsuis', which the pipeline's rows do not have
    fix: write celsius; allowed: id, celsius
"""


def _tidegate(root: Path, *command: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "tidegate.cli.main", *command], cwd=root, capture_output=True, text=True, timeout=300
    )
    return done.returncode, done.stdout, done.stderr


def test_columns_that_do_not_exist(tmp_path: Path) -> None:
    for name, text in _FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    # The table's column is a TIMESTAMP, as docs/how-to/schema-changes.md has it.
    table = pa.table(
        {"id": ["a"], "measured_at": pa.array([datetime(2026, 3, 2, tzinfo=UTC)], pa.timestamp("us", "UTC"))}
    )
    write_deltalake(tmp_path / "data/warehouse/doors", table)
    code, told, noise = _tidegate(tmp_path, "validate", "--spark")
    assert told == TOLD.format(root=tmp_path, doors=shown("validate --spark"))
    assert (code, noise) == (64, "")
