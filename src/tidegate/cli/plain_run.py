"""``tidegate run NAME`` as a scheduler starts it, parsed without typer.

To import typer and build every command takes as long as a run that finds nothing new. Everything else, including help
and wrong use, is left to typer.
"""

from __future__ import annotations

import gc
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tidegate.cli.work import command_line, name_work, open_project, run_one, run_step

_WITH_VALUE = ("--run-id", "--accept-loss")


class PlainRun(NamedTuple):
    """The arguments of a run of one pipeline."""

    name: str
    project: Path | None
    run_id: str | None
    accept_loss: str | None
    as_json: bool


def read_plain_run(arguments: Sequence[str]) -> PlainRun | None:
    """Read ``[--project DIR] run NAME [--run-id ID] [--accept-loss REASON] [--json]``; None for anything else."""
    project, words = None, iter(arguments)
    word = next(words, None)
    if word == "--project":
        project, word = next(words, ""), next(words, None)
    if word != "run" or project == "" or (project or "").startswith("-"):
        return None
    names: list[str] = []
    values: dict[str, str] = {}
    as_json = False
    for word in words:
        if word == "--json":
            as_json = True
        elif word in _WITH_VALUE:
            value = next(words, "-")
            if word in values or value.startswith("-"):
                return None
            values[word] = value
        elif word == "" or word.startswith("-"):
            return None
        else:
            names.append(word)
    if len(names) != 1:
        return None
    folder = None if project is None else Path(project)
    return PlainRun(names[0], folder, values.get("--run-id"), values.get("--accept-loss"), as_json)


def run_plainly(given: PlainRun) -> None:
    """Run the pipeline as ``tidegate run`` does."""
    command_line.project = given.project
    _import_ahead()
    project = open_project()
    run_id = name_work("manual", given.run_id)
    run_step(
        lambda: run_one(project, given.name, run_id, given.accept_loss), project, given.name, run_id, given.as_json
    )


def _import_ahead() -> None:
    """Import what every run uses, and exclude it from garbage collection.

    There is no garbage in it, and the collections take a fifth of a run that finds nothing new."""
    gc.disable()
    try:
        import tidegate.runs.steps  # noqa: F401
    finally:
        gc.freeze()
        gc.enable()
