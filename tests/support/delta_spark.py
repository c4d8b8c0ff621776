"""Spark with Delta, as another team has it: a process of its own, for the Spark of the tests knows no Delta.

with DeltaSpark() as delta:
    delta.sql("DELETE FROM delta.`/path` WHERE id = 1")
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import Any


class DeltaSparkError(Exception):
    """What Spark said."""


class DeltaSpark:
    """One session for many tables; statements are answered one after another."""

    def __init__(self) -> None:
        from tools.jars import GROUPS, ensure_jars

        ensure_jars(["delta-reader"])
        jars = ",".join(str(path) for path in sorted(GROUPS["delta-reader"].folder.glob("*.jar")))
        self._process = subprocess.Popen(
            [sys.executable, __file__, jars],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._said: list[str] = []
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self._process.stderr is not None
        self._said.extend(self._process.stderr)

    def sql(self, *statements: str) -> list[dict[str, Any]]:
        """The rows of the last statement. Raises DeltaSparkError."""
        rows: list[dict[str, Any]] = []
        for statement in statements:
            assert self._process.stdin is not None and self._process.stdout is not None
            self._process.stdin.write(json.dumps(statement) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
            answer = json.loads(line) if line else {"error": "".join(self._said[-20:])}
            if "error" in answer:
                raise DeltaSparkError(answer["error"])
            rows = answer["rows"]
        return rows

    def read(self, table: Path) -> list[dict[str, Any]]:
        """The rows of a table at its newest version."""
        return self.sql(f"SELECT * FROM delta.`{table}`")

    def __enter__(self) -> DeltaSpark:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate()  # nothing more comes in: it ends


def _serve(jars: str) -> None:
    from pyspark.sql import SparkSession

    settings = {
        "spark.jars": jars,
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.retentionDurationCheck.enabled": "false",
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.sql.shuffle.partitions": "1",
        "spark.default.parallelism": "1",
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "1",
        "spark.databricks.delta.vacuum.parallelDelete.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.enabled": "false",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xmn200m",
    }
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever the JVM says is no answer
    builder = SparkSession.builder.master("local[1]")
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    for line in sys.stdin:
        try:
            rows = [row.asDict(recursive=True) for row in session.sql(json.loads(line)).collect()]
            answer: dict[str, Any] = {"rows": rows}
        except Exception as error:
            answer = {"error": str(error)}
        answers.write(json.dumps(answer, default=str) + "\n")
        answers.flush()
    session.stop()


if __name__ == "__main__":
    _serve(sys.argv[1])
