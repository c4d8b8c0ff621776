"""Applying the user's transform, and refusing what would give wrong numbers across runs."""

from __future__ import annotations

import importlib.util
import inspect
import sys
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidegate.errors import TidegateError, UsageError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Logical operators that need state, or an order, over more than one micro-batch.
_STATEFUL = {
    "Aggregate": "an aggregation",
    "Deduplicate": "a deduplication",
    "DeduplicateWithinWatermark": "a deduplication",
    "Distinct": "distinct()",
    "Join": "a join",
    "AsOfJoin": "a join",
    "LateralJoin": "a join",
    "Window": "a window function",
    "Sort": "a sort",
    "GlobalLimit": "a limit",
    "LocalLimit": "a limit",
    "Offset": "an offset",
    "Tail": "a tail",
    "Except": "EXCEPT",
    "Intersect": "INTERSECT",
    "FlatMapGroupsWithState": "arbitrary state",
    "FlatMapGroupsInPandasWithState": "arbitrary state",
    "TransformWithState": "arbitrary state",
    "TransformWithStateInPySpark": "arbitrary state",
    "FlatMapGroupsInPandas": "a grouped map",
    "MapGroups": "a grouped map",
    "CollectMetrics": "observe()",
}


@dataclass(frozen=True)
class TransformContext:
    """What a transform gets when it has an argument named ``context`` (and no source is named so)."""

    pipeline: str
    run_id: str


def apply_transform(
    spark: SparkSession,
    job_folder: Path,
    transform: str | None,
    frames: Mapping[str, DataFrame],
    context: TransformContext,
) -> DataFrame:
    """The rows that leave the transform. ``frames`` maps source names to frames.

    Without a transform the one source passes unchanged. Raises UsageError TRANSFORM_FAILED with the user's file and
    line.
    """
    if transform is None:
        return next(iter(frames.values()))
    path = job_folder / transform
    if path.suffix == ".sql":
        for name, frame in frames.items():
            frame.createOrReplaceTempView(name)
        try:
            return spark.sql(path.read_text(encoding="utf-8").strip().rstrip(";"))
        except Exception as error:
            raise UsageError(
                "TRANSFORM_FAILED",
                f"Spark refuses the query: {first_lines(error)}",
                where=str(path),
                next_run="fails in the same way; nothing was read",
                fix=f"correct {path.name}, then `tidegate validate {job_folder.name}`",
            ) from error
    try:
        function = _load_function(path)
        arguments: dict[str, Any] = dict(frames)
        if "context" not in frames and "context" in inspect.signature(function).parameters:
            arguments["context"] = context
        result = function(**arguments)
    except TidegateError:
        raise
    except Exception as error:
        raise UsageError(
            "TRANSFORM_FAILED",
            f"{type(error).__name__}: {first_lines(error)}",
            where=user_line(error, path),
            next_run="fails in the same way; nothing was read",
            fix=f"correct {path.name}, then `tidegate validate {job_folder.name}`",
        ) from error
    if not hasattr(type(result), "writeStream"):  # asking a batch frame itself raises
        raise UsageError(
            "TRANSFORM_FAILED",
            f"transform returned {type(result).__name__}, not a DataFrame",
            where=str(path),
            fix="end transform() with `return <DataFrame>`",
        )
    return result


def _load_function(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(f"tidegate_transform_{path.parent.name}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.parent))
    spec.loader.exec_module(module)
    return module.transform


def user_line(error: BaseException, path: Path) -> str:
    """``file:line`` of the last frame of ``error`` that lies in the user's file, else the file alone."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if Path(frame.filename) == path:
            return f"{path}:{frame.lineno}"
    return str(path)


def first_lines(error: BaseException, limit: int = 600) -> str:
    """The head of an exception's text, without the Java trace or the query plan."""
    text = str(error).split("\n\tat ")[0].split("JVM stacktrace")[0].strip()
    lines = [line for line in text.splitlines() if line.strip()]
    kept = []
    for line in lines:
        if line.lstrip().startswith(("'Project", "Project [", "+-", "== SQL", "Traceback")):
            break
        kept.append(line)
    return (" ".join(kept) or text)[:limit]


def refuse_stateful(frame: DataFrame, path: Path) -> None:
    """Raise UsageError NOT_SUPPORTED_YET when the transform's plan keeps state over batches."""
    found = sorted({_STATEFUL[name] for name in _operators(frame) if name in _STATEFUL})
    if found:
        raise UsageError(
            "NOT_SUPPORTED_YET",
            f"the transform contains {', '.join(found)}; this version runs stateless transforms only "
            "(select, filter, withColumn, explode, SQL without grouping, UDFs)",
            where=str(path),
            next_run="fails in the same way; nothing was read",
            fix="take it out of the transform, and do it when reading the table",
        )


def _operators(frame: DataFrame) -> list[str]:
    """Class names of the logical operators the *user* put on top of the source (those below our observe are ours)."""
    names: list[str] = []

    def walk(node: Any) -> None:
        name = node.getClass().getSimpleName()
        if name == "CollectMetrics" and str(node.name()).startswith("source:"):
            return
        names.append(name)
        children = node.children()
        for index in range(children.size()):
            walk(children.apply(index))

    walk(frame._jdf.queryExecution().analyzed())
    return names
