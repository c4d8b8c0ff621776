"""``tidegate init DIR`` and ``tidegate new NAME``: files that run as they are. Nothing that exists is overwritten."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from tidegate.errors import UsageError
from tidegate.project import PROJECT_FILE, Project
from tidegate.spec.load import check_name
from tidegate.spec.paths import describe_unusable_path

EXAMPLE = "temperatures"
"""The pipeline that a new project begins with."""

_PROJECT_FILES = {
    "project/tidegate.yaml.tmpl": PROJECT_FILE,
    "project/gitignore.tmpl": ".gitignore",
    "project/README.md.tmpl": "README.md",
    "project/plugins/tidegate_plugin.py.tmpl": "plugins/tidegate_plugin.py",
    "project/jobs/tidegate_job.py.tmpl": "jobs/tidegate_job.py",
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

    def __iter__(self) -> Iterator[str]:
        return iter(self.files)

    def __len__(self) -> int:
        return len(self.files)


def init_project(folder: Path | str, name: str = EXAMPLE) -> Scaffold:
    """Write a new project with one pipeline into ``folder``, which is made when it is not there.

    Raises UsageError: BAD_NAME, BAD_PROJECT_PATH, FILE_EXISTS (nothing was written then).
    """
    check_name(name)
    root = Path(os.path.abspath(folder))
    if unusable := describe_unusable_path(str(root)):
        raise UsageError(
            "BAD_PROJECT_PATH",
            f"the path of the project {unusable}: {str(root)!r}",
            where=repr(str(root)),
            fix="choose a folder with a plain name",
        )
    written = _write(root, _render({**_PROJECT_FILES, **_PIPELINE_FILES}, name))
    return Scaffold(root, name, written, (f"cd {folder}", f"tidegate plan {name}", f"tidegate run {name}"))


def new_pipeline(project: Project, name: str) -> Scaffold:
    """Write a new pipeline, with a few lines of sample input, into ``project``.

    Raises UsageError: BAD_NAME, FILE_EXISTS (nothing was written then).
    """
    check_name(name)
    written = _write(project.root, _render(_PIPELINE_FILES, name))
    return Scaffold(project.root, name, written, (f"tidegate plan {name}", f"tidegate run {name}"))


def _render(paths: dict[str, str], name: str) -> dict[str, str]:
    """The texts to write, by path relative to the root."""
    folder = files("tidegate.templates")
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
    return UsageError(
        "CANNOT_WRITE",
        f"{path} cannot be written: {reason}",
        where=str(root),
        next_run="is refused again",
        fix="choose a folder that you may write to",
    )


def _refuse_existing(root: Path, taken: list[str]) -> UsageError:
    return UsageError(
        "FILE_EXISTS",
        f"{', '.join(taken)} {'is' if len(taken) == 1 else 'are'} there already; nothing is overwritten",
        where=str(root),
        next_run="is refused again",
        fix="choose another name, or remove what is there",
    )
