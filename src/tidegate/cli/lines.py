"""Lines that several commands print."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from tidegate.core.words import count_of, escape_line
from tidegate.sources.readers.times import FORMATS
from tidegate.spec.ddl import is_infer, parse_ddl
from tidegate.spec.reader_options import parser_options
from tidegate.state.manifest import UNKNOWN_NAMES_AT_MOST

if TYPE_CHECKING:
    from tidegate.core.outputs import Error, OpenState, SourceReport
    from tidegate.spec.models import FilesSource, KafkaSource

_OPTIONS_FOR = {
    "a quote that is not closed": "options: {multiLine: true}, where fields have line breaks",
    "has to be escaped in JSON": "options: {allowUnquotedControlChars: true}",
    "not a JSON object": "options: {multiLine: true}, where a file is an array of objects",
    "not valid UTF-8": "options: {encoding: ...}, such as UTF-16 or windows-1252",
}
"""{cause of malformed records: options that the source may lack}."""
_NOT_A_DATE = re.compile(r"(?:^|; )([^;]+?): not a (DATE|TIMESTAMP_NTZ|TIMESTAMP)(?=;|$)")
_OTHER_HEADER = re.compile(r"its header is (.*); the schema wants ([^;]*)")


def state_line(state: OpenState) -> str:
    windows = state["open_windows"]
    line = f"{count_of(state['rows'], 'row')}, {count_of(state['memory_bytes'], 'byte')}"
    if not windows:
        return line
    return f"{line}, {count_of(len(windows), 'window')} open from {windows[0][0]} to {windows[-1][1]}"


def source_line(source: SourceReport) -> str:
    parts = [count_of(source.get("rows", 0), "row")]
    if "files" in source:
        parts.append(count_of(source["files"], "file"))
    if source.get("bytes"):
        parts.append(count_of(source["bytes"], "byte"))
    if source.get("offsets"):
        spans = [
            f"{topic}[{partition}] {span[0]}..{span[1]}"
            for topic, partitions in source["offsets"].items()
            for partition, span in partitions.items()
            if span[0] != span[1]
        ]
        parts.append(", ".join(spans))
    return ", ".join(part for part in parts if part)


def source_notes(source: SourceReport) -> list[str]:
    notes = []
    if source.get("schema"):
        kept = "not known yet: the first run infers them" if source["schema"] == "infer" else source["schema"]
        notes.append(f"columns: {kept}")
    if unknown := source.get("unknown_fields"):
        named = [f"{field} (seen in {place})" if place else field for field, place in unknown.items()]
        is_cut = len(named) >= UNKNOWN_NAMES_AT_MOST
        notes.append(first_of("fields the schema does not have", named, "at least " if is_cut else ""))
    if before := source.get("before_start"):
        size = f"{count_of(before['files'], 'file')}, {count_of(before['bytes'], 'byte')}"
        what = f"there before the start ({before['start']}), not read: {size}"
        first = ", ".join(before.get("paths", ())[:5])
        notes.append(f"{what}, first {first}" if first else what)
    skipped = source.get("skipped", [])
    changed = [
        f"{one['path']} ({one['how']}, {count_of(one['unread_bytes'], 'byte')})" for one in source.get("changed", ())
    ]
    for what, files in (
        ("cannot be read", [f"{one['path']} ({one['why']})" for one in skipped if "fix" in one]),
        ("skipped", [f"{one['path']} ({one['why']})" for one in skipped if "fix" not in one]),
        ("still settling", [f"{one['path']} ({one['why']})" for one in source.get("settling", ())]),
        ("changed after it was read; not read again", changed),
        ("vanished after it was taken", source.get("vanished", [])),
        ("gone before it was read", source.get("lost", [])),
    ):
        if files:
            notes.append(first_of(what, files))
    return notes


def first_of(what: str, named: Sequence[str], least: str = "") -> str:
    more = f" and {least}{len(named) - 5} more" if len(named) > 5 else ""
    return f"{what}: {', '.join(map(escape_line, named[:5]))}{more}"


def show_hindrance(error: Error | None, indent: str = "  ") -> None:
    """Print the error that a dry run has found, and its fix."""
    if error is None:
        return
    print(f"{indent}cannot be done: {error['code']}: {error['message']}")
    if error["fix"]:
        print(f"{indent}  fix: {error['fix']}")


def show_options(detail: str | None, example: str | None, source: FilesSource | KafkaSource | None) -> None:
    """Print options of ``source`` that may allow records to be read that are malformed for ``detail``; ``example`` is
    the text of one."""
    for options in _find_options(detail or ""):
        print(f"  if they are right as they are: {options} (docs/how-to/files.md)")
    if source is not None and example is not None:
        for column, kind in _NOT_A_DATE.findall(detail or ""):
            text = _find_text(source, column, example)
            if text is not None and (hint := _find_date_hint(text, kind.lower(), source)) is not None:
                print(escape_line(f"  {hint}"))


def _find_options(detail: str) -> Iterator[str]:
    yield from (options for fault, options in _OPTIONS_FOR.items() if fault in detail)
    if (header := _OTHER_HEADER.search(detail)) is not None:
        separators = [one for one in (";", "|", "\\t", ",") if header[1].split(one) == header[2].split(", ")]
        yield from (f"options: {{sep: '{one}'}}" for one in separators)


def _find_text(source: FilesSource | KafkaSource, column: str, record: str) -> str | None:
    """The text of a column in a record of csv or JSON; None where it cannot be found."""
    from tidegate.sources.readers.csv_values import CsvOptions  # pyarrow, for malformed dates alone

    if source.format == "json":
        try:
            fields = json.loads(record)
        except ValueError:
            return None
        text = fields.get(column) if isinstance(fields, dict) else None
        return text if isinstance(text, str) else None
    if source.format != "csv" or source.schema is None or is_infer(source.schema):
        return None
    layout = CsvOptions.of(parser_options(source))
    names = [one.name for one in parse_ddl(source.schema)]
    if len(layout.separator) != 1 or column not in names:
        return None
    cells = next(csv.reader([record], delimiter=layout.separator, quotechar=layout.quote or None), [])
    return cells[names.index(column)].strip() if len(cells) == len(names) else None


def _find_date_hint(text: str, kind: str, source: FilesSource | KafkaSource) -> str | None:
    """What to do about ``text``, which is no date or time of the type ``kind`` as the source is read now."""
    from tidegate.cli.scaffold.local_forms import list_forms  # pyarrow, for malformed dates alone
    from tidegate.sources.readers.ways import Ways

    option, options = FORMATS[kind], parser_options(source)
    pattern = Ways.of(options).patterns.get(kind)
    if pattern is not None and pattern.take_apart(text) is not None:
        return f"{text} is written as {option}: {options[option]} says, but there is no such day or time"
    forms = [] if kind == "date" and " " in text else list_forms(text)
    if not forms:
        return None
    instead = f", instead of {options[option]} for all records" if option in options else ""
    found = " or ".join(f"{{{option}: {form}}}" for form in forms)
    return f"if they are right as they are: options: {found}{instead} (docs/how-to/files.md)"


def cell(value: object) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def show_lines(kind: str, lines: Iterable[str]) -> None:
    """Print lines with what they are before each."""
    for line in lines:
        print(f"  {kind}: {line}")


def show_table(rows: Sequence[Mapping[str, object]]) -> None:
    """Print rows in columns. Lines are never broken or cut, since run ids are copied from them."""
    if not rows:
        print("nothing")
        return
    lines = [list(rows[0])]
    for row in rows:
        texts = {name: "" if value is None else str(value) for name, value in row.items()}
        lines.append([text[:19] if name.endswith("_at") else escape_line(text) for name, text in texts.items()])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        print("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip())
