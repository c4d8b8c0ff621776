"""``errors.md``: the catalogue of errors as a page."""

from __future__ import annotations

from collections.abc import Mapping

from tidegate.core.errors import Condition, TidegateError, catalogue
from tools.docs.markdown import MADE, code, table

_HEADINGS = {
    64: "64: wrong use, or a bad spec",
    65: "65: held by the gate",
    66: "66: the source lost, or never had, what is asked",
    70: "70: a defect of tidegate",
    75: "75: try again",
    78: "78: checkpoint, table and spec disagree",
}


def list_entries() -> Mapping[str, Condition[TidegateError]]:
    """{name: entry} of the whole catalogue, in its order."""
    return {name: entry for name, entry in vars(catalogue).items() if isinstance(entry, Condition)}


def render_errors() -> str:
    """The page."""
    parts = [
        MADE,
        "# Errors\n",
        "Every error has a code, says what happened, where, what the next run will do, and what fixes it. The same "
        "text is on stderr, at the end of an Airflow task's log, in the run report (`error`) and, with `--json`, on "
        "stdout. `{name}` stands for a value, or for a part of the text that depends on the case.\n",
        "What to do at night: [how-to/recover.md](../how-to/recover.md).\n",
    ]
    met = (entry for entry in list_entries().values() if entry.code not in catalogue.INTERNAL)
    entries = sorted(met, key=lambda entry: entry.code)
    for exit_code, heading in _HEADINGS.items():
        parts.append(f"## {heading}\n")
        if exit_code == 64:
            faults = [[code(name), text] for name, text in catalogue.FILE_FAULTS.items()]
            parts += ["Faults of files, all of a file at once:\n", table(["code", "says"], faults)]
        mine = [entry for entry in entries if entry.kind.exit_code == exit_code]
        rows = [[code(entry.code), entry.message, entry.next_run or "", entry.fix or ""] for entry in mine]
        parts.append(table(["code", "message", "next run", "fix"], rows))
    return "\n".join(parts)
