"""``schema: infer``: Spark's own inference, once, over the files of the first run; what it found is kept.

It is kept in the birth record before the first batch, so every later run reads with the same columns.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql.types import StructType

from tidegate.core.errors import UsageError
from tidegate.core.paths import PipelinePaths
from tidegate.sources.files.intake import copy_object
from tidegate.sources.files.partition_values import infer_value_type
from tidegate.sources.files.scan import partition_of
from tidegate.sources.readers.links import read_pointer
from tidegate.spark import errors
from tidegate.spark.catalyst.private_api import SPARK_ERRORS, infer_json_columns
from tidegate.spark.driver.order import IngestOrder, emit
from tidegate.spark.reading.frames import read_json_texts
from tidegate.spark.reading.sending import find_unseen
from tidegate.spec.as_read import is_to_infer
from tidegate.spec.checks import check_pipeline
from tidegate.spec.ddl import quote_name
from tidegate.spec.encodings import encoding_of
from tidegate.spec.models import SELF_DESCRIBING_FORMATS, FilesSource, PipelineSpec
from tidegate.spec.reader_options import parser_options
from tidegate.state.birth import as_read, keep_schemas
from tidegate.state.lease import check_token

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType


def infer_missing(spark: SparkSession, paths: PipelinePaths, order: IngestOrder, spec: PipelineSpec) -> PipelineSpec:
    """``spec`` with the columns of every source: those that no run has inferred yet are, and are kept from now on.

    Raises UsageError SCHEMA_NOT_INFERRED.
    """
    schemas = {}
    for name, source in spec.sources.items():
        if is_to_infer(source):
            links = {link: order.original(link) for link in order.links.get(name, {})}
            schemas[name] = infer_schema(spark, paths, spec, name, paths.intake(name), links)
            emit("progress", source=name, inferred=schemas[name])
    if not schemas:
        return spec
    check_token(paths, order.token)
    keep_schemas(paths, spec, schemas)
    return as_read(spec, paths)


def infer_schema(
    spark: SparkSession, paths: PipelinePaths, spec: PipelineSpec, name: str, folder: Path, links: Mapping[str, str]
) -> str:
    """The columns of the files in ``folder`` as DDL. ``links`` maps their names in it, with their ``k=v`` folders, to
    those the user knows.

    Files and records that cannot be read are skipped. Raises UsageError SCHEMA_NOT_INFERRED when none is left, when
    files contradict each other, or when a column cannot be used.
    """
    with _copied(folder, links) as here:
        return _infer(spark, paths, spec, name, here, links)


@contextlib.contextmanager
def _copied(folder: Path, links: Iterable[str]) -> Iterator[Path]:
    """The folder itself, or one with copies of the objects of a store, which Spark's own readers do not know."""
    pointers = {link: pointer for link in links if (pointer := read_pointer(folder / link)) is not None}
    if not pointers:
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="tidegate-infer-") as copies:
        for link, pointer in pointers.items():
            (Path(copies) / link).parent.mkdir(parents=True, exist_ok=True)
            copy_object(pointer, Path(copies) / link)
        yield Path(copies)


def _infer(
    spark: SparkSession, paths: PipelinePaths, spec: PipelineSpec, name: str, folder: Path, links: Mapping[str, str]
) -> str:
    from tidegate.sources.files.columnar_files import find_conflicts  # pyarrow, for the first run alone

    if find_unseen(spark, paths) is not None:
        raise _not_inferred(paths, name, "executors do not see the files that Spark would infer them from")
    source = spec.file_sources[name]
    in_folders = _infer_from_folders(links)
    options = {**parser_options(source), "ignoreCorruptFiles": "true"}
    if source.format in ("json", "csv"):
        options |= {"mode": "DROPMALFORMED", "inferSchema": "true"}
    else:
        options |= {"mergeSchema": "true"}
    try:
        if not links:
            raise _not_inferred(paths, name, "there is no file yet")
        if source.format != "json" or encoding_of(source) == "UTF-8":
            found = spark.read.format(source.format).options(**options).load(str(folder)).schema
        else:
            found = _infer_from_texts(spark, folder, links, source, options)
    except SPARK_ERRORS as error:
        conflicts = find_conflicts(folder, links, source.format) if source.format in SELF_DESCRIBING_FORMATS else None
        raise _not_inferred(paths, name, conflicts or _first_line(error)) from error
    taken = {column.lower() for column in in_folders}
    found = type(found)([field for field in found.fields if field.name.lower() not in taken])
    if not found.fields:
        raise _not_inferred(paths, name, f"none of {len(links)} files, first {min(links.values())}, holds a record")
    parts = [found.toDDL(), *(f"{quote_name(column)} {kind}" for column, kind in in_folders.items())]
    ddl = ", ".join(parts)
    inferred = spec.replace(sources={name: source.replace(schema=ddl)})
    if findings := check_pipeline(inferred):
        raise _not_inferred(paths, name, f"{ddl}: {'; '.join(finding.message for finding in findings)}")
    return ddl


def _infer_from_texts(
    spark: SparkSession, folder: Path, links: Iterable[str], source: FilesSource, options: Mapping[str, str]
) -> StructType:
    """The columns of JSON in another encoding than UTF-8, which Spark infers from its texts."""
    json_options = {key: value for key, value in options.items() if key not in ("encoding", "lineSep", "multiLine")}
    return infer_json_columns(spark, read_json_texts(spark, folder, links, source), json_options)


def _infer_from_folders(links: Mapping[str, str]) -> dict[str, str]:
    values: dict[str, list[str | None]] = {}
    for link in links:
        for column, value in partition_of(os.path.dirname(link), None).items():
            values.setdefault(column, []).append(value)
    return {column: infer_value_type(some) for column, some in values.items()}


def _first_line(error: Exception) -> str:
    text = next((line for line in str(error).splitlines() if "[" in line), str(error))
    return text.rpartition("Exception: ")[2][:400].strip()


def _not_inferred(paths: PipelinePaths, name: str, why: str) -> UsageError:
    return errors.SCHEMA_NOT_INFERRED(where=f"{paths.spec}: sources.{name}.schema", name=name, why=why)
