"""Files that cannot be read: what is said of them, and what is read in their places."""

from __future__ import annotations

import errno
import gzip
import os
from pathlib import Path

import pyarrow as pa
import pytest

from tidegate.driver.failures import explain
from tidegate.sources.files.unreadable import set_aside_unreadable, unreadable_record
from tidegate.sources.readers.unreadable import PartUnreadable
from tidegate.spec.models import FilesSource

LINK = "0000000001-0123abcd.csv"


def _raise(fault: PartUnreadable) -> str:
    return f"An exception was thrown from the Python worker:\n{PartUnreadable.__module__}.PartUnreadable: {fault}\n"


def test_what_the_disk_did_not_give_is_no_fault_of_the_file(tmp_path: Path) -> None:
    intake, kept = tmp_path / "intake", tmp_path / "unreadable"
    intake.mkdir()
    link = LINK.replace(".csv", ".zst")
    (intake / link).write_bytes(pa.compress(b"{}", "zstd", asbytes=True))
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
    tmp_path: Path, format_: str, options: dict[str, object], is_cut: bool
) -> None:
    """Where lines are no records, the end that is missing leaves no other as it was."""
    intake, kept = tmp_path / "intake", tmp_path / "unreadable"
    intake.mkdir()
    link, content = "0000000002-0123abcd.gz", gzip.compress(b'a,"b\n\nc"\nd,e\n' * 99)[:-9]
    (intake / link).write_bytes(content)
    keys = {"type": "files", "path": "in", "format": format_, "options": options}
    keys |= {"schema": "value STRING, n STRING" if format_ == "csv" else "value STRING"}
    assert len(set_aside_unreadable(kept, intake, [link], FilesSource.model_validate(keys), {})) == 1
    assert (gzip.decompress((intake / link).read_bytes()) != b"") == is_cut
    record = unreadable_record(kept, link)
    assert record is not None and (kept / record["kept"]).read_bytes() == content
