"""Applying the user's transform, and refusing what cannot work as a streaming query."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidegate.core.errors import TidegateError, UsageError
from tidegate.spark import errors
from tidegate.spark.catalyst.operations import OutputMode, check_operations, describe_refusal, unsupported
from tidegate.spark.catalyst.plans import inline_ctes
from tidegate.spark.catalyst.trace import trace_frames
from tidegate.spark.driver.spark_text import first_lines, user_line
from tidegate.spark.ingest.user_modules import send_modules

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class TransformContext:
    """The value of a transform's argument ``context`` (unless a source has that name)."""

    pipeline: str
    run_id: str


def apply_transform(
    spark: SparkSession,
    job_folder: Path,
    transform: str | None,
    frames: Mapping[str, DataFrame],
    context: TransformContext,
    mode: OutputMode,
) -> DataFrame:
    """The rows that leave the transform. ``frames`` maps source names to frames.

    Without a transform the one source passes unchanged. Raises UsageError TRANSFORM_FAILED with the user's file and
    line, UNSUPPORTED_OPERATION for what a streaming query with the output mode ``mode`` cannot do (frames of a batch,
    for a second look, are not asked again).
    """
    if transform is None:
        return next(iter(frames.values()))
    path = job_folder / transform
    if not path.is_file():
        raise errors.TRANSFORM_MISSING(where=str(path), file=path.name, pipeline=job_folder.name)
    is_streaming = any(frame.isStreaming for frame in frames.values())
    steps: Sequence[tuple[str, Any]] = ()
    if path.suffix == ".sql":
        result = _apply_sql(spark, path, frames)
    else:
        if is_streaming:
            send_modules(spark, path)
        try:
            function, arguments = _load_function(path), dict[str, Any](frames)
            if "context" not in frames and "context" in inspect.signature(function).parameters:
                arguments["context"] = context
            with trace_frames(path.parent) as steps:
                result = function(**arguments)
        except TidegateError:
            raise
        except Exception as error:
            raise _explain(error, path, mode if is_streaming else None) from error
        if not hasattr(type(result), "writeStream"):  # asking a batch frame itself raises
            raise errors.TRANSFORM_RETURNS_NO_DATAFRAME(where=str(path), kind=type(result).__name__)
    if is_streaming:
        check_operations(result, mode, path, steps)
    return inline_ctes(result)


def _apply_sql(spark: SparkSession, path: Path, frames: Mapping[str, DataFrame]) -> DataFrame:
    for name, frame in frames.items():
        frame.createOrReplaceTempView(name)
    try:
        return spark.sql(path.read_text(encoding="utf-8").strip().rstrip(";"))
    except Exception as error:
        raise errors.TRANSFORM_FAILED(
            where=str(path),
            kind="Spark refuses the query",
            error=first_lines(error),
            file=path.name,
            pipeline=path.parent.name,
        ) from error


def _explain(error: Exception, path: Path, streaming_mode: OutputMode | None) -> UsageError:
    """The error that the user's code raised, or the operation that Spark refused to a streaming frame."""
    by_spark = type(error).__name__ in ("AnalysisException", "IllegalArgumentException")
    refused = describe_refusal(error) if streaming_mode is not None and by_spark else None
    if streaming_mode is not None and refused is not None:
        operation, why, fix = refused
        return unsupported(operation, streaming_mode, why, user_line(error, path), fix)
    return errors.TRANSFORM_FAILED(
        where=user_line(error, path),
        kind=type(error).__name__,
        error=first_lines(error),
        file=path.name,
        pipeline=path.parent.name,
    )


def _load_function(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(f"tidegate_transform_{path.parent.name}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    spec.loader.exec_module(module)
    return module.transform
