"""``errors.md``: the conditions of all rooms as a page."""

from __future__ import annotations

import importlib.util
import pkgutil
from collections.abc import Mapping

import tidegate
from tidegate.core.errors import Condition, TidegateError
from tidegate.spec import errors as spec_errors
from tools.docs.markdown import MADE, code, table

_HEADINGS = {
    64: "64: wrong use, or a bad spec",
    65: "65: held by the gate",
    66: "66: the source lost or never had what is asked, or may not be read",
    70: "70: a defect of tidegate",
    75: "75: try again",
    78: "78: checkpoint, table and spec disagree",
}


def list_conditions() -> Mapping[str, Condition[TidegateError]]:
    """{name: condition} of each room's ``errors.py``."""
    rooms = (f"tidegate.{room.name}" for room in pkgutil.iter_modules(tidegate.__path__) if room.ispkg)
    modules = [
        importlib.import_module(f"{room}.errors") for room in rooms if importlib.util.find_spec(f"{room}.errors")
    ]
    return {name: value for module in modules for name, value in vars(module).items() if isinstance(value, Condition)}


def render_errors() -> str:
    """The page."""
    parts = [
        MADE,
        "# Errors\n",
        "Every error has a code, says what happened, where, what the next run will do, and what fixes it. The same "
        "text is on stderr, at the end of an Airflow task's log, in the run report (`error`) and, with `--json`, on "
        "stdout. In Airflow, a task's log and the pages name the task to clear, the DAG to trigger or the button, "
        "instead of a command to repeat. `{name}` stands for a value, or for a part of the text that depends on the "
        "case.\n",
        "What to do at night: [how-to/recover.md](../how-to/recover.md).\n",
    ]
    entries = sorted(list_conditions().values(), key=lambda entry: entry.code)
    for exit_code, heading in _HEADINGS.items():
        parts.append(f"## {heading}\n")
        if exit_code == 64:
            faults = [[code(name), text] for name, text in spec_errors.FILE_FAULTS.items()]
            parts += ["Faults of files, all of a file at once:\n", table(["code", "says"], faults)]
        mine = [entry for entry in entries if entry.kind.exit_code == exit_code]
        rows = [[code(entry.code), entry.message, entry.next_run, entry.fix] for entry in mine]
        parts.append(table(["code", "message", "next run", "fix"], rows))
    return "\n".join(parts)
