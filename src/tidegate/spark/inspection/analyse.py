"""Having Spark analyse a pipeline's query without its data: for ``tidegate validate --spark``."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from tidegate.core.errors import TidegateError
from tidegate.spark.catalyst.fingerprint import describe_state
from tidegate.spark.driver.jvm import PINNED, driver_conf, jvm_options
from tidegate.spark.ingest.query import prepare_query
from tidegate.spark.inspection.foresee import foresee_schemas
from tidegate.spark.reading.frames import open_frames
from tidegate.spec.models import PipelineSpec
from tidegate.spec.pipeline import load_pipeline
from tidegate.spec.project import Project
from tidegate.spec.reader_options import show_option
from tidegate.state.birth import as_read, check_state, digest_transform, read_birth
from tidegate.table.log.state import read_table_state

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def analyse_pipeline(project: Project, name: str, jars: Sequence[Path] = ()) -> None:
    """Build the streaming query of ``name`` in a local session: transform, rules, suite and change of the table's
    schema are checked as in a run. No source is read and no broker is asked. The first pipeline of a process says which
    ``jars`` its session has.

    Raises UsageError (or its SpecError) for what an ingest would refuse, with the user's file and line, and
    DisagreementError STATE_CHANGED when the state kept so far is for another query.
    """
    paths = project.paths(name)
    spec = as_read(load_pipeline(project, name), paths)
    table = read_table_state(project.paths(name).table)
    spark = _session(project, spec, jars)
    with tempfile.TemporaryDirectory(prefix="tidegate-analyse-") as empty:
        foreseen = foresee_schemas(spark, project, paths, spec, Path(empty) / "waiting")
        if foreseen is None:
            return  # without a file the columns are unknown
        spec = foreseen
        nothing = replace(paths, state=Path(empty) / "none", generation=0)
        for source in spec.sources:
            nothing.intake(source).mkdir(parents=True)
        frames = {source: open_frames(spark, project, nothing, source, one) for source, one in spec.sources.items()}
        parsed = {source: frames[source].empty_stream() for source in spec.streams}
        parsed |= {source: frames[source].empty() for source in spec.statics}
        try:
            schema_json = table.schema_json if table is not None else None
            partition_by = table.partition_columns if table is not None else None
            prepared = prepare_query(spark, project, spec, parsed, "validate", schema_json, partition_by)
            birth = read_birth(paths)
            if birth is not None:
                transform = digest_transform(paths, spec)
                check_state(birth, name, describe_state(prepared.out), spark=spark.version, transform=transform)
        except TidegateError:
            raise
        except Exception as error:
            from tidegate.spark.driver.failures import explain

            raise explain(error, name, project.paths(name).job, project.paths(name).state) from error


@contextlib.contextmanager
def _kept_from_stderr() -> Iterator[None]:
    """Keep from people what the JVM that is started within, and pyspark's own loggers, write to stderr, until the
    process ends: each refusal would appear there as JSON, with the JVM's stack. It is shown when no JVM could be
    started."""
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = True
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as log:
        os.dup2(log.fileno(), 2)
        try:
            yield
        except BaseException:
            log.seek(0)
            os.write(kept, log.read())
            raise
        finally:
            os.dup2(kept, 2)
            os.close(kept)


def _session(project: Project, spec: PipelineSpec, jars: Sequence[Path]) -> SparkSession:
    """One small session for all pipelines of a command, each with its own SQL settings, as a run sets them."""
    builder = SparkSession.builder.master("local[1]").appName("tidegate validate")
    options = " ".join(jvm_options(0, None))
    for key, value in {**driver_conf(0, 0, 1), **PINNED, "spark.driver.extraJavaOptions": options}.items():
        builder = builder.config(key, value)
    if jars:
        builder = builder.config("spark.jars", ",".join(map(str, jars)))
    with _kept_from_stderr():
        session = builder.getOrCreate().newSession()
    for key, own in {**project.spec.spark.conf, **spec.spark.conf}.items():
        if key.startswith("spark.sql.") and session.conf.isModifiable(key):
            session.conf.set(key, show_option(own))
    return session
