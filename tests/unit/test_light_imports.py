"""What an idle run, the command line, a DAG file and the driver's start leave out of memory: each costs a tenth of a
second or more, and an idle tick happens every few minutes for every pipeline."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = {
    "duckdb",
    "pyspark",
    "pyarrow",
    "pandas",
    "numpy",
    "great_expectations",
    "deltalake",
    "confluent_kafka",
    "airflow",
}


@pytest.mark.parametrize(
    ("module", "allowed"),
    [
        ("tidegate.cli.main", set[str]()),
        ("tidegate.airflow", set[str]()),
        ("tidegate.runs.steps", set[str]()),
        ("tidegate.runs.drain", set[str]()),
        ("tidegate.runs.deliver", set[str]()),
        ("tidegate.views.status", set[str]()),
        ("tidegate.views.outlook", set[str]()),
        ("tidegate.runs.restart.repair", set[str]()),
        ("tidegate.spark.application", set[str]()),
        ("tidegate.spark.ingest.job", {"pyspark", "numpy"}),
    ],
)
def test_a_light_path_leaves_the_heavy_libraries_out(module: str, allowed: set[str]) -> None:
    code = f"import sys, {module}; print(*sorted({HEAVY!r} & set(sys.modules)))"
    if module == "tidegate.spark.ingest.job":  # as the application does it, before the first import of pyspark
        code = "from tidegate.spark.session.light_start import start_light; start_light(); " + code
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) <= allowed


NOT_OF_AN_IDLE_TICK = {
    *HEAVY,
    *("typer", "http", "ssl", "xml", "ctypes", "concurrent", "pydantic", "pydantic_core"),
    *(
        "tidegate.core.outputs",
        "tidegate.quality",
        "tidegate.runs.gate",
        "tidegate.runs.order",
        "tidegate.runs.deliver",
    ),
    *(
        "tidegate.spark.driver.submit",
        "tidegate.runs.restart.repair",
        "tidegate.sources.kafka",
        "tidegate.sources.generators",
    ),
}
OWN_MODULES_AT_MOST = 180


def test_an_idle_tick_imports_what_it_uses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tidegate.yaml").write_text("version: 1\n")
    monkeypatch.setenv("TIDEGATE__AIRFLOW__SLOTS", "8")
    monkeypatch.setenv("TIDEGATE__UI__SHOW_DATA", "true")
    (tmp_path / "in").mkdir()
    (tmp_path / "jobs" / "flow").mkdir(parents=True)
    source = "{type: files, path: in, format: csv, schema: id STRING}"
    spec = f"version: 1\nname: flow\nschedule: null\nsources:\n  s: {source}\n"
    (tmp_path / "jobs" / "flow" / "pipeline.yaml").write_text(spec)
    code = (
        "import sys; from tidegate.cli.main import main\n"
        f"sys.argv = ['tidegate', '--project', {str(tmp_path)!r}, 'run', 'flow', '--json']\n"
        "try: main()\n"
        "finally: print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert '"outcome": "nothing_new"' in done.stdout
    imported = done.stderr.split()
    assert NOT_OF_AN_IDLE_TICK & set(imported) == set()
    assert len([name for name in imported if name.startswith("tidegate")]) <= OWN_MODULES_AT_MOST
