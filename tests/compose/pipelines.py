"""The pipelines of the stack: the examples, run by hand only, and two that they do not have: one that takes its time,
and one that takes memory.
"""

from __future__ import annotations

import re
from pathlib import Path

_SPEC = """version: 1
name: {name}
schedule: null
sources:
  numbers: {{type: files, path: data/inbox/{name}, format: csv, schema: n INT, settle: 0 seconds}}
transform: transform.py
"""
_DAG = """from tidegate.airflow import build_dag

dag = build_dag("{name}")
"""
_TRANSFORMS = {
    # Each record takes its value in seconds, or until a file says that it need not.
    "slow": """import time
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


@F.udf("int")
def wait(seconds):
    until = time.monotonic() + seconds
    while time.monotonic() < until and not Path("/opt/tidegate/data/be_quick").exists():
        time.sleep(1)
    return seconds


def transform(numbers: DataFrame) -> DataFrame:
    return numbers.select(wait("n").alias("n"))
""",
    # The driver takes all the memory there is, as long as a file says so.
    "greedy": """from pathlib import Path

from pyspark.sql import DataFrame


def transform(numbers: DataFrame) -> DataFrame:
    taken = []
    while Path("/opt/tidegate/data/be_greedy").exists():
        taken.append(bytearray(b"x" * (64 << 20)))
    return numbers
""",
}


def prepare_pipelines(checkout: Path) -> None:
    """Write them into a checkout. No tick of a schedule takes what a test has made for a run of its own."""
    for path in checkout.glob("jobs/*/pipeline.yaml"):
        text, count = re.subn(r"^schedule: .*$", "schedule: null", path.read_text(), flags=re.MULTILINE)
        assert count == 1, path
        path.write_text(text)
    for name, transform in _TRANSFORMS.items():
        for path, text in (
            (f"jobs/{name}/pipeline.yaml", _SPEC.format(name=name)),
            (f"jobs/{name}/transform.py", transform),
            (f"dags/{name}.py", _DAG.format(name=name)),
        ):
            (checkout / path).parent.mkdir(parents=True, exist_ok=True)
            (checkout / path).write_text(text)
