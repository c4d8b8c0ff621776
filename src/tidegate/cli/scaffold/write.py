"""``tidegate init DIR`` and ``tidegate new NAME``: write files that run unchanged. Nothing is overwritten."""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import yaml

from tidegate.cli import errors
from tidegate.cli.scaffold.plain_names import write_renames
from tidegate.core.errors import UsageError
from tidegate.core.words import count_of
from tidegate.sources.files.scan import check_no_table
from tidegate.spec.ddl import is_infer, parse_ddl
from tidegate.spec.faults import SpecError
from tidegate.spec.models import FilesSource
from tidegate.spec.pipeline import check_document, check_name
from tidegate.spec.project import PROJECT_FILE, Project
from tidegate.spec.source_checks import describe_unusable_path
from tidegate.spec.yaml_file import parse_document

if TYPE_CHECKING:
    from tidegate.cli.scaffold.infer_columns import Inferred

Yaml: TypeAlias = dict[str, Any]
"""A part of a spec to write."""
EXAMPLE = "temperatures"
"""The pipeline that a new project begins with."""

_PROJECT_FILES = {
    "project/tidegate.yaml.tmpl": PROJECT_FILE,
    "project/gitignore.tmpl": ".gitignore",
    "project/README.md.tmpl": "README.md",
    "project/dags/tidegate_maintenance.py.tmpl": "dags/tidegate_maintenance.py",
    "project/plugins/tidegate_plugin.py.tmpl": "plugins/tidegate_plugin.py",
    "project/tests/test_pipelines.py.tmpl": "tests/test_pipelines.py",
}
_PIPELINE_FILES = {
    "pipeline/dag.py.tmpl": "dags/@NAME@.py",
    "pipeline/pipeline.yaml.tmpl": "jobs/@NAME@/pipeline.yaml",
    "pipeline/transform.py.tmpl": "jobs/@NAME@/transform.py",
    "pipeline/suite.yaml.tmpl": "expectations/@NAME@.yaml",
    "pipeline/sample.json.tmpl": "data/inbox/@NAME@/sample.json",
    "pipeline/test_transform.py.tmpl": "tests/test_@NAME@.py",
}
_MARK = "@NAME@"


@dataclass(frozen=True)
class Scaffold:
    """What was written: the root of the project, the pipeline, the files relative to the root, the next commands."""

    root: Path
    pipeline: str
    files: tuple[str, ...]
    next_commands: tuple[str, ...]
    columns: str | None = None
    """The columns that were inferred, as DDL."""
    inferred_from: str | None = None
    """What the columns were inferred from."""
    notes: tuple[str, ...] = ()
    """Remarks on these columns."""


def init_project(folder: Path | str, name: str = EXAMPLE) -> Scaffold:
    """Write a new project with one pipeline into ``folder``, which is made when it is not there.

    Raises UsageError: BAD_NAME, BAD_PROJECT_PATH, FILE_EXISTS (nothing was written then).
    """
    check_name(name)
    root = Path(os.path.abspath(folder))
    if unusable := describe_unusable_path(str(root)):
        raise errors.BAD_NEW_PROJECT_PATH(where=repr(str(root)), unusable=unusable, root=str(root))
    written = _write(root, _render({**_PROJECT_FILES, **_PIPELINE_FILES}, name))
    return Scaffold(root, name, written, (f"cd {folder}", f"tidegate plan {name}", f"tidegate run {name}"))


def new_pipeline(project: Project, name: str) -> Scaffold:
    """Write a new pipeline, with a few lines of sample input, into ``project``.

    Raises UsageError: BAD_NAME, FILE_EXISTS (nothing was written then).
    """
    check_name(name)
    written = _write(project.root, _render(_PIPELINE_FILES, name))
    return Scaffold(project.root, name, written, (f"tidegate plan {name}", f"tidegate run {name}"))


def new_bare_pipeline(project: Project, name: str, format_: str | None = None, sample: Path | None = None) -> Scaffold:
    """Write a spec and a DAG without an example: for the folder of the file ``sample``, with the columns that it has,
    or for a new inbox whose columns the first run infers.

    Raises UsageError: BAD_NAME, FILE_EXISTS, NO_SUCH_FILE, BAD_OPTIONS, CANNOT_INFER, SOURCE_IS_TABLE, or a
    SpecError for columns that no schema may have (nothing was written then).
    """
    from tidegate.cli.scaffold.infer_columns import choose_format, infer_columns

    check_name(name)
    found: Inferred | None = None
    inbox = f"data/inbox/{name}"
    if sample is not None:
        if not sample.is_file():
            raise errors.NO_SUCH_FILE(where=str(sample), sample=sample)
        folder = os.path.abspath(sample.parent)
        root = os.path.abspath(project.root)
        inbox = os.path.relpath(folder, root) if os.path.commonpath([folder, root]) == root else folder
        check_no_table(project, project.paths(name), name, FilesSource(type="files", path=inbox, format="json"))
        format_ = format_ or choose_format(sample)
        found = infer_columns(sample, format_)
    source: Yaml = {"type": "files", "path": inbox, "format": format_ or "json"}
    source["schema"] = found.columns if found else "value STRING" if format_ == "text" else "infer"
    if found and found.options:
        source["options"] = found.options
    by_hand = f"tidegate new {name} --bare --format {format_}, and write path and columns in jobs/{name}/pipeline.yaml"
    fix = f"rename these columns in the file, or write the schema by hand: {by_hand}"
    written = _write_bare(project, name, source, fix, found.notes if found else ())
    if sample is None:
        (project.root / inbox).mkdir(parents=True, exist_ok=True)
    if found is None:
        return Scaffold(project.root, name, written, _next_commands(name))
    return Scaffold(project.root, name, written, _next_commands(name), found.columns, found.inferred_from, found.notes)


def new_topic_pipeline(project: Project, name: str, topic: str) -> Scaffold:
    """Write a spec and a DAG for a Kafka topic of JSON records, with the columns that its newest records have.

    Raises UsageError: BAD_NAME, FILE_EXISTS, CANNOT_INFER, or what the brokers say; SourceLostError TOPIC_MISSING; a
    SpecError for columns that no schema may have (nothing was written then).
    """
    from tidegate.cli.scaffold.infer_columns import infer_record_columns
    from tidegate.sources.kafka.records import sample_topic

    check_name(name)
    values = sample_topic(project.spec.kafka, topic)
    found, count = infer_record_columns(values, f"topic {topic}")
    left = len(values) - count
    inferred_from = f"the newest {count_of(count, 'record')}" + (
        f"; {left:,} others are not JSON objects" if left else ""
    )
    source = {"type": "kafka", "topics": [topic], "format": "json", "schema": found.columns}
    written = _write_bare(project, name, source, "write the source by hand: docs/how-to/kafka.md", found.notes)
    return Scaffold(project.root, name, written, _next_commands(name), found.columns, inferred_from, found.notes)


def _next_commands(name: str) -> tuple[str, str]:
    return f"tidegate try {name}", f"tidegate run {name}"


def _write_bare(project: Project, name: str, source: Yaml, fix: str, notes: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Write a spec with one source, its DAG, and a transform where columns need other names in the table.

    ``fix`` is the fix of an error for columns that no schema may have; ``notes`` are written above the schema.
    """
    document: Yaml = {"version": 1, "name": name, "schedule": None, "sources": {name: source}}
    renames = None if is_infer(source["schema"]) else write_renames(name, parse_ddl(source["schema"]))
    if renames is not None:
        document["transform"] = "transform.py"
    text = yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=120)
    for note in notes:
        text = text.replace("    schema: ", f"    # {' '.join(note.split())}\n    schema: ", 1)
    found = parse_document(text.encode(), f"jobs/{name}/pipeline.yaml")
    check_document(found, name)
    if found.faults:
        raise SpecError(found.faults, fix=fix)
    dag = _render({"pipeline/dag.py.tmpl": _PIPELINE_FILES["pipeline/dag.py.tmpl"]}, name)
    transform = {} if renames is None else {f"jobs/{name}/transform.py": renames}
    return _write(project.root, {**dag, f"jobs/{name}/pipeline.yaml": text, **transform})


def _render(paths: dict[str, str], name: str) -> dict[str, str]:
    """The texts to write, by path relative to the root."""
    folder = files("tidegate.cli.scaffold.templates")
    return {
        target.replace(_MARK, name): folder.joinpath(template).read_text(encoding="utf-8").replace(_MARK, name)
        for template, target in paths.items()
    }


def _write(root: Path, texts: dict[str, str]) -> tuple[str, ...]:
    taken = [path for path in texts if os.path.lexists(root / path)]
    if taken:
        raise _refuse_existing(root, taken)
    if os.path.lexists(root) and not root.is_dir():
        raise _refuse_writing(root, root, "it is not a folder")
    try:
        for path, text in texts.items():
            target = root / path
            target.parent.mkdir(parents=True, exist_ok=True)
            with open(target, "x", encoding="utf-8") as handle:
                handle.write(text)
    except FileExistsError as error:
        raise _refuse_existing(root, [os.path.relpath(str(error.filename), root)]) from error
    except OSError as error:
        raise _refuse_writing(root, error.filename, error.strerror) from error
    return tuple(texts)


def _refuse_writing(root: Path, path: object, reason: str | None) -> UsageError:
    return errors.CANNOT_WRITE(where=str(root), path=path, reason=reason)


def _refuse_existing(root: Path, taken: list[str]) -> UsageError:
    exist = "exists" if len(taken) == 1 else "exist"
    return errors.FILE_EXISTS(where=str(root), taken=", ".join(taken), exist=exist)
