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

from tidegate.core.errors import SourceLostError
from tidegate.core.paths import PipelinePaths
from tidegate.core.words import count_of, list_first
from tidegate.sources.files.content import NotTaken
from tidegate.sources.files.forms import find_fault
from tidegate.sources.files.intake import link_file
from tidegate.sources.files.ledger import open_ledger, shown_path
from tidegate.sources.files.partition_values import partition_folder
from tidegate.sources.files.scan import scan_files
from tidegate.spark import errors
from tidegate.spark.catalyst.fingerprint import describe_state
from tidegate.spark.catalyst.private_api import SPARK_ERRORS
from tidegate.spark.driver.failures import explain
from tidegate.spark.driver.jvm import PINNED, driver_conf, jvm_options
from tidegate.spark.driver.order import IngestOrder
from tidegate.spark.ingest.infer import infer_schema
from tidegate.spark.ingest.query import prepare_query
from tidegate.spark.reading.frames import Frames
from tidegate.spec.as_read import is_to_infer
from tidegate.spec.models import SELF_DESCRIBING_FORMATS, FilesSource, PipelineSpec
from tidegate.spec.pipeline import load_pipeline
from tidegate.spec.project import Project
from tidegate.spec.reader_options import show_option
from tidegate.state.birth import as_read, check_state, digest_transform, read_birth
from tidegate.table.log.state import read_table_state

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def analyse_pipeline(
    project: Project, name: str, jars: Sequence[Path] = (), *, replaces_all: bool = False
) -> str | None:
    """Build the streaming query of ``name`` in a local session, and return the schema of its rows for the table.

    Transform, rules, suite and change of the table's schema are checked as in a run; with ``replaces_all`` as in a
    refresh, which may change schema and state. No source is read and no broker is asked. The first pipeline of a
    process says which ``jars`` its session has. None where the columns are unknown: there is no file to infer them
    from.

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
            return None
        spec = foreseen
        nothing = replace(paths, state=Path(empty) / "none", generation=0)
        for source in spec.sources:
            nothing.intake(source).mkdir(parents=True)
        frames = {source: Frames(spark, project, nothing, source, one) for source, one in spec.sources.items()}
        parsed = {source: frames[source].empty_stream() for source in spec.streams}
        parsed |= {source: frames[source].empty() for source in spec.statics}
        try:
            order = IngestOrder(str(project.root), name, run_id="validate", token="")
            if table is not None:
                schema = None if replaces_all else table.schema_json
                order = replace(order, table_schema_json=schema, table_partition_by=table.partition_columns)
            prepared = prepare_query(spark, project, spec, order, parsed)
            birth = read_birth(paths)
            if birth is not None and not replaces_all:
                transform = digest_transform(paths, spec)
                check_state(birth, name, describe_state(prepared.out), spark=spark.version, transform=transform)
        except SPARK_ERRORS as error:
            raise explain(error, name, project.paths(name).job, project.paths(name).state) from error
        return prepared.schema_json


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
        is_started = False
        try:
            yield
            is_started = True
        finally:
            if not is_started:
                log.seek(0)
                os.write(kept, log.read())
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


def foresee_schemas(
    spark: SparkSession, project: Project, paths: PipelinePaths, spec: PipelineSpec, folder: Path
) -> PipelineSpec | None:
    """``spec`` with the columns that a first run would infer now; None when there is no file to infer from.

    ``folder`` is an empty one, for links. Raises UsageError SCHEMA_NOT_INFERRED as that run would, and SCHEMA_DRIFT
    when files that wait do not fit the columns that are kept.
    """
    sources = dict(spec.sources)
    for name, source in spec.file_sources.items():
        if not is_to_infer(source) and not source.is_kept:
            continue
        here = folder / name
        links = _link_waiting(project, paths, name, source, here)
        if source.is_kept:
            _refuse_drift(paths, name, source, here, links)
        elif not links:
            return None
        else:
            schema = infer_schema(spark, paths, spec, name, here, links)
            sources[name] = source.replace(schema=schema)
    return spec.replace(sources=sources)


def _link_waiting(
    project: Project, paths: PipelinePaths, name: str, source: FilesSource, folder: Path
) -> dict[str, str]:
    """Links in ``folder`` to the files that were not taken yet, as the intake would have them: {link: path}."""
    try:
        with open_ledger(paths, read_only=True) as ledger:
            entries = scan_files(project, paths, name, source, ledger).new
    except SourceLostError:
        return {}
    links = {}
    for number, entry in enumerate(entries):
        suffix = os.path.splitext(shown_path(entry.path))[1].lower()
        link = os.path.join(partition_folder(entry.partition), f"{number:010d}{suffix}")
        (folder / link).parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(OSError, NotTaken):
            link_file(entry, folder / link)
            links[link] = shown_path(entry.path)
    return links


def _refuse_drift(paths: PipelinePaths, name: str, source: FilesSource, folder: Path, links: dict[str, str]) -> None:
    if source.format not in SELF_DESCRIBING_FORMATS:
        return
    faults = [
        f"{path}: {fault}" for link, path in links.items() if (fault := find_fault(folder / link, source)) is not None
    ]
    if not faults:
        return
    raise errors.SCHEMA_DRIFT(
        where=str(paths.spec),
        files=count_of(len(faults), "file"),
        source=name,
        do="does" if len(faults) == 1 else "do",
        differences=list_first(faults, between="; "),
        pipeline=paths.name,
    )
