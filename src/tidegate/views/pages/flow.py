"""The balance of a run's rows as a flow from its sources to the table.

All figures are from the report, and as many rows enter a node as leave it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from typing_extensions import TypedDict

from tidegate.core.errors import DefectError
from tidegate.core.words import count_of
from tidegate.runs.reports.report import check_balance
from tidegate.views.faults import Unchecked

Kind = Literal["source", "step", "good", "bad", "waits", "neutral"]
"""What happens to rows at a node: they come from a source, pass, are in the table, are in quarantine, wait, or are
excluded on purpose."""


class Node(TypedDict):
    """A place that rows pass; ``note`` says what it means."""

    name: str
    kind: Kind
    rows: int
    note: str


class Link(TypedDict):
    """Rows that go from one node to another, by their names."""

    source: str
    target: str
    rows: int


class Line(TypedDict):
    """A line of the balance as text: ``sign`` is how it changes the sum above it."""

    sign: Literal["", "+", "−", "="]
    name: str
    rows: int
    kind: Kind
    note: str


class Flow(TypedDict):
    """The flow of a run. ``faults`` says where the report's counts do not add up."""

    nodes: list[Node]
    links: list[Link]
    lines: list[Line]
    faults: list[str]


_READ, _ENTERED, _TRANSFORMED, _STAGED = "Read", "Into the transform", "Out of the transform", "Staged"
_QUARANTINE = "Quarantine"


class _Drawing:
    """Collects nodes and links; those without rows are not drawn."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.links: list[Link] = []
        self.lines: list[Line] = []

    def node(self, name: str, kind: Kind, note: str = "") -> str:
        self.nodes.setdefault(name, {"name": name, "kind": kind, "rows": 0, "note": note})
        return name

    def link(self, source: str, target: str, rows: int) -> None:
        if rows > 0:
            self.links.append({"source": source, "target": target, "rows": rows})

    def line(self, sign: Literal["", "+", "−", "="], name: str, rows: int, kind: Kind, note: str = "") -> None:
        self.lines.append({"sign": sign, "name": name, "rows": rows, "kind": kind, "note": note})

    def leave(self, source: str, name: str, target: str, rows: int, kind: Kind, note: str) -> None:
        """Add rows that end here: a line, and a link to the node that they are in."""
        if rows > 0:
            self.node(target, kind, note if target == name else "")
            self.link(source, target, rows)
            self.line("−", name, rows, kind, note)

    def drawn(self) -> list[Node]:
        """The nodes with rows, each with their number."""
        for node in self.nodes.values():
            into = sum(link["rows"] for link in self.links if link["target"] == node["name"])
            out = sum(link["rows"] for link in self.links if link["source"] == node["name"])
            node["rows"] = max(into, out)
        return [node for node in self.nodes.values() if node["rows"]]


def make_flow(report: Unchecked) -> Flow:
    """Make the flow of a report.

    Counts that contradict each other are listed in ``faults``; the drawing still adds up, with separate rows for the
    difference."""
    rows = {key: max(int(value), 0) for key, value in report["rows"].items()}
    drawing = _Drawing()
    _draw_sources(drawing, report, rows["read"])
    if rows["read"]:
        drawing.line("=", _READ, rows["read"], "step", "records that came out of the sources")
        drawing.leave(
            _READ, "Malformed", _QUARANTINE, rows["malformed"], "bad", "do not parse, or do not fit the schema"
        )
    entered = max(rows["read"] - rows["malformed"], 0)
    if entered or rows["transformed"]:
        drawing.node(_ENTERED, "step")
        drawing.link(_READ, _ENTERED, entered)
        _draw_transform(drawing, rows, entered, keeps_state=bool(report.get("state")))
    if rows["staged"]:
        _draw_end(drawing, report, rows)
    faults: list[str] = []
    try:
        check_balance(rows, published=report.get("outcome") == "published" and report.get("mode") == "incremental")
    except DefectError as error:
        faults.append(str(error.message))
    return {"nodes": drawing.drawn(), "links": drawing.links, "lines": drawing.lines, "faults": faults}


def _draw_sources(drawing: _Drawing, report: Unchecked, read: int) -> None:
    """Draw the sources that the report names, and one for records that belong to none of them."""
    named = 0
    for name, source in report["sources"].items():
        count = max(int(source.get("rows", 0)), 0)
        if count and named + count <= read:
            node = drawing.node(name, "source", _describe_source(source))
            drawing.link(node, drawing.node(_READ, "step"), count)
            drawing.line("+" if named else "", name, count, "source", _describe_source(source))
            named += count
    if read > named:  # a job whose report has no sources
        drawing.link(drawing.node("Other records", "source"), drawing.node(_READ, "step"), read - named)
        drawing.line(
            "+" if named else "", "Other records", read - named, "source", "the report does not say from where"
        )


def _describe_source(source: Unchecked) -> str:
    if "files" in source:
        return count_of(int(source["files"]), "file")
    if "offsets" in source:
        topics = source["offsets"] or {}
        return f"{count_of(sum(map(len, topics.values())), 'partition')} of {', '.join(topics)}"
    return ""


def _draw_transform(drawing: _Drawing, rows: Mapping[str, int], entered: int, *, keeps_state: bool) -> None:
    late = min(rows["late"], entered)
    drawing.leave(_ENTERED, "Late", _QUARANTINE, late, "bad", "came after everything they belong to was closed")
    duplicates = min(rows["duplicates"], entered - late)
    drawing.leave(_ENTERED, "Duplicates", "Duplicates", duplicates, "neutral", "dropped by a deduplication")
    left = entered - late - duplicates
    drawing.node(_TRANSFORMED, "step")
    through = min(left, rows["transformed"])
    drawing.link(_ENTERED, _TRANSFORMED, through)
    if left > through:
        name = "Combined or kept open" if keeps_state else "Filtered or combined"
        note = (
            "the transform filtered them out, put them together into rows, or keeps them for a window that is open"
            if keeps_state
            else "the transform filtered them out, or put them together into rows"
        )
        drawing.leave(_ENTERED, name, name, left - through, "neutral", note)
    elif rows["transformed"] > through:
        more = rows["transformed"] - through
        name = "Made by the transform"
        note = "more rows than records: taken apart, in several windows, or closed now of records that came before"
        drawing.link(drawing.node(name, "neutral", note), _TRANSFORMED, more)
        drawing.line("+", name, more, "neutral", note)
    drawing.line("=", _TRANSFORMED, rows["transformed"], "step")
    drawing.leave(
        _TRANSFORMED, "Rejected", _QUARANTINE, rows["rejected"], "bad", "broke a rule with on_failure: quarantine"
    )
    if rows["staged"]:
        drawing.link(_TRANSFORMED, drawing.node(_STAGED, "step"), max(rows["transformed"] - rows["rejected"], 0))


def _draw_end(drawing: _Drawing, report: Unchecked, rows: Mapping[str, int]) -> None:
    staged = rows["staged"]
    drawing.line("=", _STAGED, staged, "step", "written, and checked as one increment")
    published = min(rows["published"], staged)
    superseded = min(rows["superseded"], staged - published)
    why = "newer rows of this run or of the table replaced them"
    drawing.leave(_STAGED, "Superseded", "Superseded", superseded, "neutral", why)
    left = staged - published - superseded
    name, kind, note = _name_rest(report)
    drawing.leave(_STAGED, name, name, left, kind, note)
    if published:
        version = (report.get("table") or {}).get("version")
        table = "Table" if version is None else f"Table, version {version}"
        drawing.link(_STAGED, drawing.node(table, "good", "published: readers see them"), published)
        drawing.line("=", "Published", published, "good", f"{table}: readers see them")


def _name_rest(report: Unchecked) -> tuple[str, Kind, str]:
    """The node of rows that were staged and are not in the table."""
    outcome = report.get("outcome")
    if report.get("published_by"):
        return "Published by another run", "good", f"run {report['published_by']} published them"
    if outcome == "held":
        return "Held", "waits", "the gate holds them until a person decides"
    if outcome == "discarded":
        return "Discarded", "bad", "a person decided not to publish them"
    if outcome is None:
        return "Not published yet", "waits", "the run is in progress"
    if outcome == "failed":
        return "Not published", "waits", "the next run continues with them"
    return "Not in the table", "neutral", "in the report they are neither published nor superseded"
