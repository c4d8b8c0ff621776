"""Files that cannot be read: what is said of them, and what Spark is given in their places."""

from __future__ import annotations

import errno
import gzip
import os
from pathlib import Path

import pytest

from tidegate.driver.failures import explain
from tidegate.sources.files import long_lines
from tidegate.sources.files.unreadable import set_aside_unreadable, unreadable_record
from tidegate.sources.readers.unreadable import PartUnreadable
from tidegate.spec.models import FilesSource

LINK = "0000000001-0123abcd.csv"
ERROR = f"""[FAILED_READ_FILE.NO_HINT] Encountered error while reading file file:///s/{LINK}.  SQLSTATE: KD001
Caused by: com.univocity.parsers.common.TextParsingException: Length of parsed input (1001) exceeds the maximum \
number of characters defined in your parser settings (1000).
Identified line separator characters in the parsed content. This may be the cause of the error.
Parser Configuration: CsvParserSettings:
Internal state when error was thrown: line=169, column=2, record=2, charIndex=1022, headers=[id, n, note], content=open
	... 14 more
Caused by: java.lang.ArrayIndexOutOfBoundsException: Index 1000 out of bounds for length 1000
"""


def test_a_csv_field_beyond_its_bound_is_told_with_its_place(tmp_path: Path) -> None:
    intake, kept = tmp_path / "intake", tmp_path / "unreadable"
    intake.mkdir()
    (intake / LINK).write_text('id,n,note\na,1,x\nb,2,"open\n')
    options = {"header": True, "multiLine": True}
    spec = FilesSource(type="files", path="in", format="csv", schema="id STRING, n INT, note STRING", options=options)
    assert set_aside_unreadable(kept, intake, [LINK], spec, {LINK: {"path": "in/a.csv"}}, ERROR) == ["in/a.csv"]
    record = unreadable_record(kept, LINK)
    assert record is not None and record["reason"] == (
        "after 2 records (a header is one), field 3 of the next has more than 1,000 characters: is its quote closed?"
    )
    assert (kept / record["kept"]).read_text().startswith("id,n,note") and (intake / LINK).read_bytes() == b""


def _raise(fault: PartUnreadable) -> str:
    return f"An exception was thrown from the Python worker:\n{PartUnreadable.__module__}.PartUnreadable: {fault}\n"


def test_what_the_disk_did_not_give_is_no_fault_of_the_file(tmp_path: Path) -> None:
    intake, kept = tmp_path / "intake", tmp_path / "unreadable"
    intake.mkdir()
    link = LINK.replace(".csv", ".zst")
    (intake / link).write_bytes(b"torn")
    spec = FilesSource(type="files", path="in", format="json", schema="id STRING")
    for number in (errno.ETIMEDOUT, errno.EACCES, errno.ENOENT):
        fault = PartUnreadable(str(intake / link), os.strerror(number), number)
        assert set_aside_unreadable(kept, intake, [link], spec, {}, _raise(fault)) == []
    torn = PartUnreadable(str(intake / link), "Truncated compressed stream")
    assert set_aside_unreadable(kept, intake, [link], spec, {link: {"path": "in/a"}}, _raise(torn)) == ["in/a"]
    record = unreadable_record(kept, link)
    assert record is not None and record["reason"] == "Truncated compressed stream"


@pytest.mark.parametrize(
    ("number", "code", "exit_code"),
    [
        (errno.ENOENT, "FILE_VANISHED", 75),
        (errno.ETIMEDOUT, "STORAGE_FAILED", 75),
        (errno.EIO, "STORAGE_FAILED", 75),
        (errno.EMFILE, "TOO_MANY_OPEN_FILES", 75),
        (errno.EACCES, "NOT_WRITABLE", 75),
    ],
)
def test_what_the_disk_said_is_reported(tmp_path: Path, number: int, code: str, exit_code: int) -> None:
    file = tmp_path / "a b.json"
    file.touch()
    fault = PartUnreadable(str(file), os.strerror(number), number)
    error = explain(RuntimeError(_raise(fault)), "flow", tmp_path / "jobs/flow", tmp_path)
    assert str(file) in f"{error.where} {error.message}" and "tidegate:" not in str(error)
    assert (error.code, error.exit_code) == (code, exit_code)


@pytest.mark.parametrize(
    ("format_", "options", "is_cut"),
    [
        ("json", {}, True),
        ("csv", {}, True),
        ("csv", {"encoding": "ISO-8859-1"}, True),
        ("csv", {"multiLine": True}, False),
        ("csv", {"encoding": "UTF-16LE"}, False),
        ("text", {}, True),
        ("text", {"wholetext": True}, False),
    ],
)
def test_no_record_is_made_of_parts_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format_: str, options: dict[str, object], is_cut: bool
) -> None:
    """Where lines are no records, one that is too long, or the end that is missing, leaves no other as it was."""
    monkeypatch.setattr(long_lines, "LONGEST_LINE_BYTES", 20)
    monkeypatch.setattr(long_lines, "_CHUNK_BYTES", 8)
    intake, kept = tmp_path / "intake", tmp_path / "unreadable"
    intake.mkdir()
    text = 'a,"b\n' + "x" * 21 + '\nc"\nd,e\n'
    packed = gzip.compress(text.replace("x", "").encode())[:-9]
    contents = {LINK: text.encode(), "0000000002-0123abcd.gz": packed}
    for link, content in contents.items():
        (intake / link).write_bytes(content)
    spec = FilesSource.model_validate({"type": "files", "path": "in", "format": format_, "options": options})
    assert len(set_aside_unreadable(kept, intake, contents, spec, {})) == 2
    found = [(intake / LINK).read_bytes(), gzip.decompress((intake / "0000000002-0123abcd.gz").read_bytes())]
    assert (b"" not in found) if is_cut else (found == [b"", b""])
    for link, content in contents.items():
        record = unreadable_record(kept, link)
        assert record is not None and (kept / record["kept"]).read_bytes() == content
        assert ("other lines of this file are read" in record["reason"]) == (is_cut and link == LINK)
