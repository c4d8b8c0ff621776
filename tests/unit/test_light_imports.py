"""What an idle run, the command line, a DAG file and the driver's start leave out of memory: each costs a tenth of a
second or more, and an idle tick happens every few minutes for every pipeline."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = {"pyspark", "pyarrow", "pandas", "numpy", "great_expectations", "deltalake", "confluent_kafka", "airflow"}


@pytest.mark.parametrize(
    ("module", "allowed"),
    [
        ("tidegate.cli.main", set[str]()),
        ("tidegate.airflow", set[str]()),
        ("tidegate.run.steps", set[str]()),
        ("tidegate.run.drain", set[str]()),
        ("tidegate.run.deliver", set[str]()),
        ("tidegate.operate.status", set[str]()),
        ("tidegate.operate.outlook", set[str]()),
        ("tidegate.restart.repair", set[str]()),
        ("tidegate.application", set[str]()),
        ("tidegate.ingest.job", {"pyspark", "numpy"}),
    ],
)
def test_a_light_path_leaves_the_heavy_libraries_out(module: str, allowed: set[str]) -> None:
    code = f"import sys, {module}; print(*sorted({HEAVY!r} & set(sys.modules)))"
    if module == "tidegate.ingest.job":  # as the application does it, before the first import of pyspark
        code = "from tidegate.session.light_start import start_light; start_light(); " + code
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) <= allowed
