"""Packages that the core of tidegate does without: which extra brings each, and what to say when one is missing.

pip install "tidegate[spark,kafka,airflow]"
"""

from __future__ import annotations

import os
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from tidegate.core import errors
from tidegate.core.errors import UsageError, walk_causes

EXTRAS = {
    "pyspark": ("spark", "Spark"),
    "py4j": ("spark", "Spark"),
    "confluent_kafka": ("kafka", "the Kafka client"),
    "airflow": ("airflow", "Airflow"),
    "duckdb": ("sql", "DuckDB"),
}
"""Of each top-level module: the extra that brings it, and what it is."""


def explain_missing(error: BaseException) -> UsageError | None:
    """EXTRA_MISSING where the error, or one that it came from, says that a package of an extra is not installed."""
    for one in walk_causes(error):
        if isinstance(one, ModuleNotFoundError) and one.name is not None:
            known = EXTRAS.get(one.name.partition(".")[0])
            if known is not None:
                return missing_extra(one.name, *known)
    return None


def missing_extra(module: str, extra: str, what: str) -> UsageError:
    """The error for a package that is not installed, with the command that installs it."""
    return errors.EXTRA_MISSING(
        where="the Python environment that runs tidegate", subject=what, module=module, extra=extra
    )


def check_extra(module: str) -> None:
    """Raise UsageError EXTRA_MISSING when a package of an extra is not installed."""
    if find_spec(module) is None:
        raise missing_extra(module, *EXTRAS[module])


def find_differing_pair() -> tuple[str, str] | None:
    """The versions of pyspark and pyspark-client where they differ: they install into one folder, and at two versions
    one has overwritten files of the other."""
    try:
        spark, client = version("pyspark"), version("pyspark-client")
    except PackageNotFoundError:
        return None
    return None if spark == client else (spark, client)


def check_spark() -> None:
    """Raise UsageError EXTRA_MISSING without Spark, SPARK_HOME_INVALID when it is said to be where it is not, and
    SPARK_VERSIONS_DIFFER when its two packages do not fit."""
    home = os.environ.get("SPARK_HOME")
    if find_spec("pyspark") is None and not home:
        raise missing_extra("pyspark", *EXTRAS["pyspark"])
    for missing in ("bin/spark-submit", "jars"):
        if home and not (Path(home) / missing).exists():
            raise errors.SPARK_HOME_INVALID(where="the environment", home=home, missing=missing)
    if (pair := find_differing_pair()) is not None:
        spark, client = pair
        raise errors.SPARK_VERSIONS_DIFFER(
            where="the Python environment that runs tidegate", spark=spark, client=client
        )
