"""Spark settings that a project or a pipeline may make."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from functools import lru_cache
from importlib.resources import files

from tidegate.spec.document import KeyPath
from tidegate.spec.findings import Finding

_MEANT = 0.93
SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"
_LOSES_ROWS = "it drops rows in silence"
_OWNED: dict[str, str] = {
    "spark.master": "the master comes from tidegate.yaml (spark.master) or the Airflow connection",
    "spark.submit.deployMode": "the deploy mode comes from the Airflow connection",
    "spark.app.name": "tidegate names the application after the pipeline and the run",
    "spark.sql.session.timeZone": "tidegate reads and writes time stamps in UTC, so that every reader agrees",
    "spark.sql.parquet.outputTimestampType": "tidegate fixes it, so that every reader agrees",
    "spark.sql.files.ignoreCorruptFiles": _LOSES_ROWS,
    "spark.sql.files.ignoreMissingFiles": _LOSES_ROWS,
    "spark.sql.orc.ignoreCorruptFiles": _LOSES_ROWS,
    "spark.sql.streaming.checkpointLocation": "tidegate keeps the checkpoint in the state folder",
    "spark.sql.streaming.fileSource.log.deletion": "tidegate keeps the checkpoint",
    "spark.sql.streaming.unsupportedOperationCheck": "it lets a query run that gives wrong results",
    "spark.sql.json.filterPushdown.enabled": "tidegate sets it, so that every record is counted",
    "spark.sql.streaming.multipleWatermarkPolicy": "the spec has a key for it, which runs without Spark read as well",
    "spark.sql.streaming.stateStore.unloadOnCommit": "runs are over before Spark's maintenance of state begins",
    "spark.sql.streaming.queryEvolution.enableSourceEvolution": "the checkpoint knows its sources by name",
    "spark.sql.streaming.offsetLog.formatVersion": "the checkpoint is read without Spark as well",
    "spark.hadoop.mapreduce.fileoutputcommitter.algorithm.version": "a late task could change what was checked",
    "spark.hadoop.fs.defaultFS": "tidegate's folders are folders, on storage that all machines see",
    "spark.jars": "tidegate passes checked jars: spark.packages in tidegate.yaml lists them",
    "spark.jars.packages": "jars are never resolved while a pipeline runs: spark.packages in tidegate.yaml lists them",
}
_INSTEAD = {
    "spark.sql.streaming.multipleWatermarkPolicy": "remove it; with watermarks on several sources write "
    "`watermark_policy: max`"
}


@lru_cache
def _list_sql_settings() -> dict[str, str]:
    names = files("tidegate.spec").joinpath("spark_sql_settings.txt").read_text("utf-8").split()
    return {name.lower(): name for name in names}


@lru_cache
def _find_meant(key: str) -> str | None:
    """The setting of Spark SQL that ``key`` was probably meant to be; None for one that is known, and for one that is
    like none of them: it may be that of a library."""
    known = _list_sql_settings() if key.startswith("spark.sql.") else {}
    if not known or known.get(key.lower()) == key:
        return None
    found = difflib.get_close_matches(key.lower(), sorted(known), n=1, cutoff=_MEANT)
    return known[found[0]] if found else None


def check_spark_conf(path: KeyPath, conf: Mapping[str, object]) -> list[Finding]:
    """What is wrong with the settings at ``path``."""
    found = []
    for key, value in conf.items():
        here = (*path, key)
        if key in _OWNED:
            message = f"tidegate sets this itself, and it cannot be overridden: {_OWNED[key]}"
            found.append(Finding(here, message, _INSTEAD.get(key, "remove it")))
        elif not key.startswith("spark.") or any(letter.isspace() or letter == "=" for letter in key):
            found.append(Finding(here, f"{key!r} is not a Spark setting", "write its whole name: spark.sql...."))
        elif key == SHUFFLE_PARTITIONS and not (str(value).isdecimal() and int(str(value)) > 0):
            found.append(Finding(here, f"{value!r} is not a number of partitions", "write a whole number from 1"))
        elif isinstance(value, str) and ("\n" in value or "\0" in value):
            found.append(Finding(here, "the value has a line break in it", "write it on one line"))
        elif (nearest := _find_meant(key)) is not None:
            found.append(Finding(here, f"Spark has no setting {key!r}, and would not say so", f"write {nearest}"))
    return found
