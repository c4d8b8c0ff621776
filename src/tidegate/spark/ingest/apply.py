"""Applying the user's transform, and refusing what cannot work as a streaming query."""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import io
import os
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tidegate.core.errors import TidegateError, UsageError
from tidegate.spark import errors
from tidegate.spark.catalyst.operations import OutputMode, Step, check_operations, describe_refusal, trace_frames
from tidegate.spark.catalyst.plans import inline_ctes
from tidegate.spark.catalyst.private_api import SPARK_ERRORS
from tidegate.spark.driver.failures import NOT_UTF8, first_lines, user_line
from tidegate.spec.ddl import Node, quote_column

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
        raise _failed(path, f"{path.name}, which `transform:` names", "is not there")
    is_streaming = any(frame.isStreaming for frame in frames.values())
    steps: Sequence[Step] = ()
    if path.suffix == ".sql":
        result = _apply_sql(spark, path, frames)
    else:
        if is_streaming:
            send_modules(spark, path)
        try:
            function, arguments = _load_function(path), dict[str, object](frames)
            if "context" not in frames and "context" in inspect.signature(function).parameters:
                arguments["context"] = context
            with trace_frames(path.parent) as steps:
                result = function(**arguments)
        except TidegateError:
            raise
        except Exception as error:  # it is the user's code
            raise _explain(error, path, mode if is_streaming else None) from error
        if not hasattr(type(result), "writeStream"):  # asking a batch frame itself raises
            raise _failed(path, "not a DataFrame", f"transform returned {type(result).__name__}")
    if is_streaming:
        check_operations(result, mode, path, steps)
    return inline_ctes(result)


def _apply_sql(spark: SparkSession, path: Path, frames: Mapping[str, DataFrame]) -> DataFrame:
    for name, frame in frames.items():
        frame.createOrReplaceTempView(name)
    try:
        return spark.sql(path.read_text(encoding="utf-8").strip().rstrip(";"))
    except SPARK_ERRORS as error:
        raise _failed(path, "Spark refuses the query", first_lines(error)) from error


def _explain(error: Exception, path: Path, streaming_mode: OutputMode | None) -> UsageError:
    """The error that the user's code raised, or the operation that Spark refused to a streaming frame."""
    by_spark = type(error).__name__ in ("AnalysisException", "IllegalArgumentException")
    refused = describe_refusal(error) if streaming_mode is not None and by_spark else None
    if streaming_mode is not None and refused is not None:
        operation, why, fix = refused
        return errors.UNSUPPORTED_OPERATION(
            where=user_line(error, path), operation=operation, mode=streaming_mode, why=why, fix=fix
        )
    return _failed(path, type(error).__name__, first_lines(error), where=user_line(error, path))


def _failed(path: Path, kind: str, error: str, where: str = "") -> UsageError:
    return errors.TRANSFORM_FAILED(
        where=where or str(path), fault=f"{kind}: {error}", fix=f"correct {path.name}", pipeline=path.parent.name
    )


def _load_function(path: Path) -> Callable[..., DataFrame]:
    spec = importlib.util.spec_from_file_location(f"tidegate_transform_{path.parent.name}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    spec.loader.exec_module(module)
    function: Callable[..., DataFrame] = module.transform
    return function


_NO_TIME = (1980, 1, 1, 0, 0, 0)


def send_modules(spark: SparkSession, transform: Path) -> None:
    """Have Spark put the modules and packages next to the transform onto the path of its workers."""
    packed = pack_modules(transform)
    if packed is None:
        return
    # Named by content: Spark refuses a second file of one name that differs.
    name = f"{transform.parent.name}-{hashlib.sha256(packed).hexdigest()[:12]}.zip"
    if name in (spark.sparkContext._python_includes or ()):
        return
    # The driver serves the file from where it lies, so it stays until Spark's own folder goes.
    folder = Path(tempfile.mkdtemp(prefix="tidegate-modules-", dir=spark.sparkContext._temp_dir))
    (folder / name).write_bytes(packed)
    spark.sparkContext.addPyFile(str(folder / name))


def pack_modules(transform: Path) -> bytes | None:
    """A zip of them, the same for the same content; None when there are none. Raises UsageError TRANSFORM_FAILED."""
    root = transform.parent
    files = [file for file in _list_modules(root) if file != transform]
    if not files:
        return None
    packed = io.BytesIO()
    try:
        with zipfile.ZipFile(packed, "w") as archive:
            # A package without __init__.py is found in a zip by the entry of its folder alone.
            for folder in sorted({folder for file in files for folder in file.relative_to(root).parents} - {Path()}):
                archive.writestr(zipfile.ZipInfo(f"{folder.as_posix()}/", _NO_TIME), b"")
            for file in files:
                archive.writestr(zipfile.ZipInfo(file.relative_to(root).as_posix(), _NO_TIME), file.read_bytes())
    except OSError as error:
        raise _failed(
            Path(error.filename), "a file next to the transform cannot be read", str(error.strerror)
        ) from error
    return packed.getvalue()


def _list_modules(folder: Path) -> list[Path]:
    """The Python files in and below the folder; virtual environments are not looked into."""
    found = []
    for place, folders, names in os.walk(folder):
        if "pyvenv.cfg" in names:
            folders[:] = []
            continue
        folders[:] = sorted(name for name in folders if not name.startswith((".", "__pycache__", "site-packages")))
        found += [path for name in sorted(names) if name.endswith(".py") and (path := Path(place, name)).is_file()]
    return found


_TEXTS = ("string", "varchar", "char")


def find_broken_text(node: Node, value: str, path: str, depth: int = 0) -> str | None:
    """SQL: the first text inside ``value`` (SQL, of the type ``node``, in the column ``path``) that is not UTF-8, with
    its path, else NULL. None when the type holds no text."""
    if node.kind in _TEXTS:
        text = f"{path}: {NOT_UTF8}".replace("\\", "\\\\").replace("'", "\\'").replace("$", "\\u0024")
        return f"CASE WHEN NOT is_valid_utf8({value}) THEN '{text}' END"
    found = list(_inside(node, value, path, depth))
    return f"coalesce({', '.join(found)})" if len(found) > 1 else (found[0] if found else None)


def _inside(node: Node, value: str, path: str, depth: int) -> Iterator[str]:
    if node.kind == "struct":
        for name, inner in node.fields:
            found = find_broken_text(inner, f"{value}.{quote_column(name)}", f"{path}.{name}", depth)
            if found is not None:
                yield found
        return
    if not node.fields:
        return
    lists = [(node.item, value, f"{path}[]")]
    if node.kind == "map":
        assert node.key is not None
        lists = [(node.key, f"map_keys({value})", f"{path}{{}}"), (node.item, f"map_values({value})", f"{path}{{}}")]
    for inner, values, place in lists:
        one = f"v{depth}"
        found = find_broken_text(inner, one, place, depth + 1)
        if found is not None:
            yield f"get(array_compact(transform({values}, {one} -> {found})), 0)"
