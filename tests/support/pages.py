"""Follow a page of the docs as its reader would: run its commands, write its files, and compare what is printed.

What a page may hold:

- commands: lines that are indented by four blanks; the ``text`` block right behind them is what they print;
- files: a fenced block behind a sentence with "Write `PATH`" or "to the end of `PATH`";
- an edit that the text around it describes, for whoever follows the page word by word, in a comment:
  ``<!-- edit PATH: old -> new -->``.

Blocks of any other kind are examples, and are passed over. Figures that differ from run to run (times, ids, durations,
people, the folder of the project) are masked on both sides. Where a page shows no progress lines, none are compared.

``python -m tests.support.pages docs/tutorial.md`` follows a page and writes what is printed into it.
"""

from __future__ import annotations

import difflib
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

_MASKS = [
    (re.compile(pattern), word)
    for pattern, word in [
        (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.]\d+)?(?:Z|[+]\d\d(?::\d\d)?)?", "TIME"),
        (r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", "UUID"),
        (r"(?<=attempt: )[0-9a-f]+", "ATTEMPT"),
        (r"(?<=session: )[\d.]+(?= seconds)", "SECONDS"),
        (r"(?<= )[\d,.]+(?= rows? per second)", "PACE"),
        (r"(?<=[(])[\d,.]+(?=/s[)])", "PACE"),
        (r"(?<=seconds: ).*", "DURATIONS"),
        (r"(?<=  id:   )[0-9a-f]+", "ID"),
        (r"(?<= by )[^\s@]+@[^\s:]+", "PERSON"),
    ]
]
_PROGRESS = re.compile(r"^(?:start|session|progress|ingest): ")
_TASKS = re.compile(r"^(?:progress: tasks|ingest): ")
_COMMENT = re.compile(r"^<!-- edit (?P<path>\S+): (?P<old>.*) -> (?P<new>.*) -->$")
_FILE = re.compile(r"(?P<how>[Ww]rite|to the end of)\s+`(?P<path>[^`\s]+[./][^`\s]*)`")


@dataclass(frozen=True)
class Step:
    """Something to do: ``text`` is the command, or what goes into the file at ``path``; ``shown`` is what the page says
    that the command prints, None where it says nothing. ``line`` counts from 1."""

    kind: Literal["command", "write", "append", "edit"]
    text: str
    line: int
    path: str = ""
    old: str = ""
    shown: str | None = None


def read_steps(page: str) -> Iterator[Step]:
    """The steps of a page, in its order."""
    lines = page.splitlines()
    paragraph, number = "", 0
    while number < len(lines):
        line, here = lines[number], number + 1
        if line.startswith("```"):
            block, number = _take_block(lines, number)
            named = list(_FILE.finditer(paragraph))
            if named and line != "```text":
                is_more = named[-1]["how"] == "to the end of"
                yield Step("append" if is_more else "write", block, here, path=named[-1]["path"])
            paragraph = ""
        elif line.startswith("    ") and (number == 0 or not lines[number - 1].strip()):
            commands = []
            while number < len(lines) and lines[number].startswith("    "):
                commands.append(lines[number][4:])
                number += 1
            shown = None
            if lines[number + 1 : number + 2] == ["```text"]:
                shown, number = _take_block(lines, number + 1)
            yield Step("command", "\n".join(commands), here, shown=shown)
        elif found := _COMMENT.match(line):
            yield Step("edit", found["new"], here, path=found["path"], old=found["old"])
            number += 1
        else:
            paragraph = "" if not line.strip() and not paragraph.endswith(":") else f"{paragraph} {line}".strip()
            number += 1


def _take_block(lines: list[str], number: int) -> tuple[str, int]:
    """The fenced block that begins at index ``number``, and the index behind it."""
    end = lines.index("```", number + 1)
    return "".join(f"{line}\n" for line in lines[number + 1 : end]), end + 1


class Reader:
    """Somebody who follows a page, in ``folder``."""

    def __init__(self, folder: Path) -> None:
        self.top = self.here = folder
        self.different: list[tuple[Step, list[str]]] = []
        """What is shown wrongly, with the lines that were printed."""
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self._environment = {**os.environ, "PATH": path, "TZ": "UTC", "PYTHONPATH": ""}

    def follow(self, page: Path) -> None:
        """Do every step; :attr:`different` tells what was printed otherwise than it is shown."""
        for step in read_steps(page.read_text(encoding="utf-8")):
            if step.kind == "command":
                self._run(step)
                continue
            path = self.here / step.path
            if step.kind == "edit":
                text = path.read_text()
                assert text.count(step.old) == 1, f"line {step.line}: {step.path} does not have {step.old!r} once"
                path.write_text(text.replace(step.old, step.text))
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                with path.open("a" if step.kind == "append" else "w") as file:
                    file.write(step.text)

    def _run(self, step: Step) -> None:
        script = f"{step.text}\npwd > '{self.top}/.here'"
        done = subprocess.run(
            ["/bin/sh", "-c", script],
            cwd=self.here,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
            check=False,
        )
        self.here = Path((self.top / ".here").read_text().strip())
        if step.shown is None:
            return
        printed = done.stdout.replace(f"{self.top}/", "").rstrip().splitlines()
        if not any(_PROGRESS.match(line) for line in step.shown.splitlines()):
            printed = [line for line in printed if not _PROGRESS.match(line)]
        if _mask(step.shown.splitlines()) != _mask(printed):
            self.different.append((step, printed))


def _mask(lines: list[str]) -> list[str]:
    masked = [line.rstrip() for line in lines if not _TASKS.match(line)]
    for pattern, word in _MASKS:
        masked = [pattern.sub(word, line) for line in masked]
    return masked


def describe(different: list[tuple[Step, list[str]]]) -> str:
    """The differences for a person, as the lines that only the page has (-) and that only the program printed (+)."""
    return "\n".join(
        "\n".join(
            [f"line {step.line}: {step.text}", *difflib.ndiff(_mask((step.shown or "").splitlines()), _mask(printed))]
        )
        for step, printed in different
    )


def main(page: Path) -> None:
    """Follow the page, and write what is printed into it."""
    with tempfile.TemporaryDirectory() as folder:
        reader = Reader(Path(folder))
        reader.follow(page)
    text = page.read_text(encoding="utf-8")
    for step, printed in reader.different:
        lines = [re.sub(r"(?<= by )[^\s@]+@[^\s:]+", "ada@workstation", line) for line in printed]
        above = f"    {step.text.splitlines()[-1]}\n\n```text\n"
        below = "".join(f"{line}\n" for line in lines)
        text = text.replace(f"{above}{step.shown}```", f"{above}{below}```", 1)
    page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
