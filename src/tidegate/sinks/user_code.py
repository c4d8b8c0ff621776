"""The user's code of a sink, ``file.py:name``, and the effects of replaced rows on each sink.

Code is checked without running it.
"""

from __future__ import annotations

import ast
import importlib.util
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, assert_never

from tidegate.core.paths import PipelinePaths
from tidegate.sinks.feed import find_fed
from tidegate.spec.faults import Fault, name_nearest
from tidegate.spec.models import ConsoleSink, ForeachBatchSink, ForeachSink, KafkaSink, PipelineSpec, SinkSpec
from tidegate.spec.project import Project
from tidegate.spec.sink_checks import USER_CODE
from tidegate.table.log.state import TableState

_BATCH_ARGUMENTS = 2
"""``write(df, batch_id)``; a third argument is ``replaces``."""


def read_user_code(project: Project, spec: PipelineSpec) -> list[Fault]:
    """List the faults of the files that the sinks name. They are parsed, never run."""
    faults: list[Fault] = []
    for sink in spec.sinks:
        if isinstance(sink, (ForeachSink, ForeachBatchSink)):
            text = sink.writer if isinstance(sink, ForeachSink) else sink.function
            if match := USER_CODE.fullmatch(text):  # else a fault of the spec
                path = project.paths(spec.name).job / match["file"]
                faults += _check_file(path, f"jobs/{spec.name}/{match['file']}", match["name"], sink)
    return faults


def load_user_code(job_folder: Path, text: str) -> Callable[..., Any]:
    """Load the function or class that ``file.py:name`` names. The file is executed, and its exceptions are raised."""
    file, _, name = text.partition(":")
    path = job_folder / file
    spec = importlib.util.spec_from_file_location(f"tidegate_sink_{job_folder.name}_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    if str(job_folder) not in sys.path:
        sys.path.insert(0, str(job_folder))  # the file may import modules of its folder
    spec.loader.exec_module(module)
    return getattr(module, name)


def takes_replaces(function: Callable[..., object]) -> bool:
    """Return whether a function of ``foreach_batch`` has a third argument, ``replaces``."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    given = [one for one in inspect.signature(function).parameters.values() if one.kind in kinds]
    return len(given) > _BATCH_ARGUMENTS


def has_replaces(job_folder: Path, sink: ForeachSink | ForeachBatchSink) -> bool:
    """Return whether the code of a sink takes ``replaces``, judged by its source: it is not run."""
    file, _, name = (sink.writer if isinstance(sink, ForeachSink) else sink.function).partition(":")
    try:
        tree = ast.parse((job_folder / file).read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return False
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            return any(isinstance(one, ast.FunctionDef) and one.name == "begin_version" for one in node.body)
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return len(node.args.posonlyargs) + len(node.args.args) > _BATCH_ARGUMENTS
    return False


def _check_file(path: Path, file: str, name: str, sink: ForeachSink | ForeachBatchSink) -> list[Fault]:
    try:
        tree = ast.parse(path.read_bytes(), filename=file)
    except FileNotFoundError:
        return [_fault(file, None, "the file is not there", f"create it with {_wanted(name, sink)}")]
    except OSError as error:
        return [_fault(file, None, f"the file cannot be read: {error.strerror}", "make it a readable file")]
    except (SyntaxError, ValueError, RecursionError) as error:
        line, reason = (error.lineno, error.msg) if isinstance(error, SyntaxError) else (None, str(error))
        return [_fault(file, line, f"not Python: {reason}", "correct the line")]
    is_class = isinstance(sink, ForeachSink)
    kinds = (ast.ClassDef,) if is_class else (ast.FunctionDef, ast.AsyncFunctionDef)
    found = [node for node in tree.body if isinstance(node, kinds)]
    mine = [node for node in found if node.name == name]
    if not mine:
        what = "class" if is_class else "function"
        nearest = name_nearest(name, [node.name for node in found])
        fix = f"name {nearest} in pipeline.yaml, or write {_wanted(name, sink)}" if nearest else _wanted(name, sink)
        return [_fault(file, None, f"the file defines no {what} named {name}", fix)]
    return _check_definition(mine[-1], file, sink)


def _check_definition(node: ast.stmt, file: str, sink: ForeachSink | ForeachBatchSink) -> list[Fault]:
    if isinstance(node, ast.ClassDef):
        methods = [one.name for one in node.body if isinstance(one, ast.FunctionDef)]
        if "process" not in methods and not node.bases:
            return [_fault(file, node.lineno, f"{node.name} has no method process", "write def process(self, row):")]
    elif isinstance(node, ast.AsyncFunctionDef):
        return [_fault(file, node.lineno, f"{node.name} is an async function", _wanted(node.name, sink))]
    elif isinstance(node, ast.FunctionDef):
        given = len(node.args.posonlyargs) + len(node.args.args)
        least = given - len(node.args.defaults)
        if least > _BATCH_ARGUMENTS + 1 or (given < _BATCH_ARGUMENTS and node.args.vararg is None):
            message = f"{node.name} takes {given} arguments"
            return [_fault(file, node.lineno, message, _wanted(node.name, sink))]
    return []


def _wanted(name: str, sink: ForeachSink | ForeachBatchSink) -> str:
    if isinstance(sink, ForeachSink):
        return f"class {name}: with def process(self, row):"
    return f"def {name}(df, batch_id, replaces):"


def _fault(file: str, line: int | None, message: str, fix: str) -> Fault:
    return Fault(file, line, "", message, fix, "BAD_SINK")


Change = Literal["rebuilt partitions", "partitions that change", "whole table", "more rows"]
_GETS: dict[Change, str] = {
    "rebuilt partitions": "gets all rows of the rebuilt partitions, each interval as one version that replaces what it "
    "has of them",
    "partitions that change": "gets all rows of the partitions that change as one version that replaces what it has of "
    "them, with the next run or `tidegate deliver {pipeline}`",
    "whole table": "gets the whole new table as one version{above}, which replaces all that it has",
    "more rows": "gets these records as one more version",
}


def describe_effects(paths: PipelinePaths, spec: PipelineSpec, table: TableState | None, change: Change) -> list[str]:
    """Describe the effect on each sink in a sentence. ``table`` is the current one."""
    return [f"sink {sink.name} {_describe(paths, spec, sink, table, change)}" for sink in spec.sinks]


def _describe(
    paths: PipelinePaths, spec: PipelineSpec, sink: SinkSpec, table: TableState | None, change: Change
) -> str:
    fed = None if table is None else find_fed(paths, sink.name, table)
    if table is not None and fed is None:
        return "was not fed yet: it starts with the next version"
    above = f" with a number above {fed.number}" if fed is not None and fed.number >= 0 else ""
    gets = _GETS[change].format(pipeline=spec.name, above=above)
    if change == "more rows" or isinstance(sink, ConsoleSink):
        return gets
    if isinstance(sink, KafkaSink):
        return f"{gets}; the records that are replaced stay in the topic, for consumers that follow `replaces`"
    if isinstance(sink, (ForeachSink, ForeachBatchSink)):
        if has_replaces(paths.job, sink):
            return gets
        return f"{gets}; but its code does not take `replaces`, so the rows that are replaced stay in it"
    assert_never(sink)
