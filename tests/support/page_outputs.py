"""What README.md and the how-to pages show that a program printed, and which test compares it with the program.

A block of a page is an input (a spec, code, a command), which tests/unit/tools/test_docs.py checks, or it is named
here. A test gets what the page shows from :func:`shown`; tests/unit/tools/test_page_outputs.py fails where a block is
in neither group, or is named here and no test asks for it.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
FOLLOWED = ["docs/tutorial.md", "docs/how-to/move-from-a-plain-spark-job.md"]
"""Pages that tests/e2e/test_pages.py follows word by word, which compares all that they show."""
PAGES = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs/how-to").glob("*.md"))]
PAGES = [page for page in PAGES if str(page.relative_to(REPOSITORY)) not in FOLLOWED]
LANGUAGES = {"yaml", "python", "sql", "xml"}
"""What a fence may be of that holds an input."""
_COMMANDS = (
    "tidegate ",
    "make ",
    "pip ",
    "docker ",
    "git ",
    "grep ",
    "airflow ",
    "kafka-acls.sh ",
    "python3.11 ",
    "env/bin/",
    ".venv/bin/python ",
)
_VARIABLE = re.compile(r"[A-Z][A-Z_]+=")
_FENCE = re.compile(r" *```(?P<language>\w*)$")


@dataclass(frozen=True)
class Block:
    """A fenced or indented block of a page, without its indentation. ``language`` is None where it has no fence."""

    page: str
    line: int
    language: str | None
    text: str

    @property
    def is_input(self) -> bool:
        """Whether a reader types it or writes it into a file."""
        if self.language is not None:
            return self.language in LANGUAGES
        commands = re.sub(r"'[^']*'", "''", self.text).splitlines()
        return all(line.startswith(_COMMANDS) or _VARIABLE.match(line) for line in commands)


@dataclass(frozen=True)
class Output:
    """Something that ``page`` shows and ``test`` compares. It begins with ``start``: a block, or, where ``end`` is
    given, a part of the text up to and with ``end``."""

    page: str
    start: str
    test: str
    end: str = ""


_HERE = "tests/unit/tools/test_page_outputs.py"
OUTPUTS = {
    "make run": Output("docs/how-to/make-run.md", "[    …s] kafka: starting", "tests/unit/tools/test_demo.py"),
    "make run, shortened": Output("README.md", "[    …s] round 1", "tests/unit/tools/test_demo.py"),
    "validate --spark": Output(
        "docs/how-to/schema-changes.md", "doors: the rows no longer fit", "tests/e2e/test_messages.py"
    ),
    "refresh --dry-run, columns": Output(
        "docs/how-to/schema-changes.md", "erp: 1 interval", "tests/unit/cli/test_show.py"
    ),
    "a row fails": Output("docs/how-to/your-own-data.md", "TRANSFORM_FAILED: ", "tests/streams/test_failing_rows.py"),
    "rows in quarantine": Output(
        "docs/how-to/your-own-data.md", "the transform fails on it", "tests/kafka/test_row_errors.py"
    ),
    "an xml file": Output(
        "docs/how-to/files.md", "<orders><order id=", "tests/unit/sources/readers/test_xml_file.py", end="</orders>"
    ),
    "settings": Output("docs/how-to/settings.md", "TIDEGATE__WAREHOUSE=", _HERE),
    "whole files": Output("docs/how-to/quality.md", "2 files are in quarantine whole", _HERE),
    "replay --dry-run": Output(
        "docs/how-to/quarantine.md", "orders: 383 records", "tests/unit/rework/replay/test_replay.py"
    ),
    "three causes": Output("docs/how-to/quality.md", "101 of 103 records", "tests/unit/runs/gate/test_mostly_wrong.py"),
    "waits alone": Output("docs/how-to/held.md", "deferred since", "tests/unit/runs/gate/test_waiting.py"),
    "share": Output("docs/how-to/quality.md", "share = dropped", _HERE),
    "shares": Output("docs/how-to/quality.md", "| one row per record", _HERE, end="\n\n"),
    "rollback": Output("docs/how-to/roll-back.md", "orders: back from version", "tests/model/test_rollback.py"),
    "reset": Output("docs/how-to/reset.md", "orders: nothing disagrees", "tests/model/test_rollback.py"),
    "reports": Output("docs/how-to/airflow.md", "GET /tidegate/dags", _HERE),
    "pool warning": Output("docs/how-to/airflow.md", "references non-existent", _HERE, end="pools"),
    "pool log": Output("docs/how-to/airflow.md", "Tasks using", _HERE, end="pool"),
    "to_json": Output("docs/how-to/feed-further-sinks.md", '{"start":"2026', _HERE, end="}"),
    "volume": Output("docs/how-to/from-laptop-to-team.md", "volumes:", _HERE),
    "maintain --dry-run": Output(
        "docs/how-to/maintain.md", "orders: a maintenance would", "tests/unit/rework/maintain/test_maintain_page.py"
    ),
    "an alert": Output(
        "docs/how-to/metrics-and-alerts.md", "orders is held: its run", "tests/unit/views/signals/test_alerts.py"
    ),
    "maintain": Output(
        "docs/how-to/maintain.md", "orders  run maintain__", "tests/unit/rework/maintain/test_maintain_page.py"
    ),
    "policy": Output("docs/how-to/object-stores.md", '{\n  "Version": "2012-10-17"', "tests/stores/test_rights.py"),
    "database": Output("docs/how-to/from-laptop-to-team.md", "x-database:", _HERE),
}
NOT_COMPARED = {
    (
        "docs/how-to/object-stores.md",
        '{\n  "Rules": [',
    ): "a rule of the bucket's owner; the server of the tests has none",
    ("docs/how-to/from-machine-to-cluster.md", "nas:/shop"): "a line of /etc/fstab; the tests have no NFS server",
}
"""Blocks that no program of this repository reads or prints: page and first words, with the reason."""


def list_blocks(path: Path) -> Iterator[Block]:
    """Every block of a page, in its order."""
    page, lines = str(path.relative_to(REPOSITORY)), path.read_text(encoding="utf-8").splitlines()
    number = 0
    while number < len(lines):
        begin = number
        if fence := _FENCE.match(lines[number]):
            number += 1
            while lines[number].strip() != "```":
                number += 1
            yield Block(page, begin + 1, fence["language"], _dedent(lines[begin + 1 : number]))
        elif lines[number].startswith("    ") and not (number and lines[number - 1].strip()):
            while number + 1 < len(lines) and lines[number + 1].startswith("    "):
                number += 1
            yield Block(page, begin + 1, None, _dedent(lines[begin : number + 1]))
        number += 1


def _dedent(lines: list[str]) -> str:
    return textwrap.dedent("".join(f"{line}\n" for line in lines))


def shown(name: str) -> str:
    """What the page shows as the output ``name``; KeyError or AssertionError where the page has it no more."""
    output = OUTPUTS[name]
    path = REPOSITORY / output.page
    if not output.end:
        (block,) = (block for block in list_blocks(path) if block.text.startswith(output.start))
        return block.text.rstrip("\n")
    text = path.read_text(encoding="utf-8")
    assert text.count(output.start) == 1, f"{output.page} has {output.start!r} {text.count(output.start)} times"
    begin = text.index(output.start)
    return text[begin : text.index(output.end, begin) + len(output.end)].rstrip("\n")
