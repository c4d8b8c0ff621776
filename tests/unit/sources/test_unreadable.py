"""Files that cannot be read: what is said of them, and what is read in their places."""

from __future__ import annotations

import errno
import gzip
import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

from tests.support.parts import lines_of
from tidegate import __version__
from tidegate.core.errors import TryAgainError
from tidegate.sources.files.intake import record_path
from tidegate.sources.files.ledger import LinkedFile
from tidegate.sources.files.unreadable import (
    count_kept_rows,
    find_unreadable,
    quarantine_whole,
    record_of_stand_in,
    unreadable_record,
)
from tidegate.sources.readers.form import Form
from tidegate.sources.readers.unreadable import PartUnreadable
from tidegate.sources.readers.worker import PartsReader, TextsReader
from tidegate.spark.driver.failures import explain, explain_python
from tidegate.spec.models import FilesSource
from tidegate.state import errors as state_errors

LINK = "0000000001-0123abcd.csv"


def _raise(fault: PartUnreadable) -> str:
    return f"An exception was thrown from the Python worker:\n{PartUnreadable.__module__}.PartUnreadable: {fault}\n"


def _holds_lease() -> None:
    """The run has its lease."""


def _quarantine(
    kept: Path,
    intake: Path,
    link: str,
    spec: FilesSource,
    *,
    error_text: str = "",
    originals: dict[str, LinkedFile] | None = None,
    check_lease: Callable[[], None] = _holds_lease,
) -> list[str]:
    reasons = find_unreadable(kept, intake, [link], spec, error_text)
    return quarantine_whole(kept, intake, reasons, spec, originals or {}, check_lease)


def test_what_the_disk_did_not_give_is_no_fault_of_the_file(tmp_path: Path) -> None:
    intake, kept = tmp_path / "intake", tmp_path / "unreadable"
    intake.mkdir()
    link = LINK.replace(".csv", ".zst")
    (intake / link).write_bytes(pa.compress(b"{}", "zstd", asbytes=True))
    spec = FilesSource(type="files", path="in", format="json", schema="id STRING")
    for number in (errno.ETIMEDOUT, errno.EACCES, errno.ENOENT):
        fault = PartUnreadable(str(intake / link), os.strerror(number), number)
        assert _quarantine(kept, intake, link, spec, error_text=_raise(fault)) == []
    torn = PartUnreadable(str(intake / link), "Truncated compressed stream")
    original: LinkedFile = {"path": "in/a", "size": 1, "mtime_ns": 1}
    found = _quarantine(kept, intake, link, spec, error_text=_raise(torn), originals={link: original})
    assert found == ["in/a"]
    record = unreadable_record(kept, link)
    assert record is not None and record["reason"] == "Truncated compressed stream"


@pytest.mark.parametrize(
    ("number", "code", "exit_code"),
    [
        (errno.ENOENT, "FILE_VANISHED", 75),
        (errno.ETIMEDOUT, "STORAGE_FAILED", 75),
        (errno.EIO, "STORAGE_FAILED", 75),
        (errno.EMFILE, "TOO_MANY_OPEN_FILES", 75),
        (errno.EACCES, "NOT_PERMITTED", 64),
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
    assert len(_quarantine(kept, intake, link, FilesSource.read(keys))) == 1
    assert (gzip.decompress((intake / link).read_bytes()) != b"") == is_cut
    record = unreadable_record(kept, link)
    assert record is not None and (kept / record["kept"]).read_bytes() == content


def _torn(tmp_path: Path) -> tuple[Path, Path, str, FilesSource]:
    intake, kept = tmp_path / "intake", tmp_path / "unreadable"
    intake.mkdir()
    link = "0000000003-0123abcd.json.gz"
    lines = b"".join(b'{"id": "%d"}\n' % number for number in range(5_000))
    (intake / link).write_bytes(gzip.compress(lines)[:-9])
    return intake, kept, link, FilesSource(type="files", path="in", format="json", schema="id STRING")


def test_it_is_said_how_many_lines_of_a_torn_file_were_read(tmp_path: Path) -> None:
    intake, kept, link, spec = _torn(tmp_path)
    _quarantine(kept, intake, link, spec)
    record = unreadable_record(kept, link)
    count = gzip.decompress((intake / link).read_bytes()).count(b"\n")
    assert record is not None and 4_000 < count < 5_001
    assert record["reason"].endswith(f"; its first {count:,} lines were read: send only what follows")


@pytest.mark.parametrize("steps", [0, 1, 2])
def test_a_process_without_its_lease_sets_nothing_aside(tmp_path: Path, steps: int) -> None:
    intake, kept, link, spec = _torn(tmp_path)
    before = (intake / link).read_bytes()
    left = [None] * steps

    def check_lease() -> None:
        if not left:
            raise state_errors.LEASE_LOST(pipeline="flow", where="lease", holder="another")
        left.pop()

    with pytest.raises(TryAgainError):
        _quarantine(kept, intake, link, spec, check_lease=check_lease)
    assert (intake / link).read_bytes() == before
    assert record_path(kept, link).exists() == (steps == 2)
    assert os.listdir(intake) == [link]


def test_a_record_without_its_stand_in_is_removed(tmp_path: Path) -> None:
    """A process that lost its lease, or was killed, wrote it; the file was completed and read since."""
    intake, kept, link, spec = _torn(tmp_path)
    _quarantine(kept, intake, link, spec)
    assert record_of_stand_in(kept, intake, link, _holds_lease) is not None
    os.unlink(intake / link)
    os.link(kept / link, intake / link)  # as if it had not come so far
    assert record_of_stand_in(kept, intake, link, _holds_lease) is None
    assert unreadable_record(kept, link) is None


def test_a_text_that_looks_like_a_fault_is_none(tmp_path: Path) -> None:
    """A transform may quote a record in its error, and the record may say anything."""
    fault = PartUnreadable("/nowhere", "gone", errno.ENOENT)
    assert PartUnreadable.find(_raise(fault)) is not None
    for forged in (str(fault.sealed("0123456789abcdef")), 'tidegate:PART_UNREADABLE:["/nowhere","gone",2]'):
        assert (
            PartUnreadable.find(f"ValueError: bad value\n{PartUnreadable.__module__}.PartUnreadable: {forged}") is None
        )


def test_a_reader_that_fails_is_no_fault_of_the_transform(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.sources.readers.part_readers._Lines._find_records", lambda *_: 1 // 0)
    with pytest.raises(PartUnreadable) as caught:
        list(PartsReader(Form("json", "id INT"))(iter([lines_of(Path("/in/a.json"), 0, None)])))
    error = explain(RuntimeError(_raise(caught.value)), "flow", tmp_path, tmp_path)
    assert (error.code, error.exit_code, error.where) == ("READER_FAILED", 70, "/in/a.json")
    assert "ZeroDivisionError" in error.message and "rm /in/a.json" in str(error.fix)


def test_a_package_that_an_executor_lacks_is_no_fault_of_the_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(*_: object) -> None:
        raise ModuleNotFoundError("No module named 'babel'")

    monkeypatch.setattr("tidegate.sources.readers.part_readers._Lines._find_records", read)
    with pytest.raises(ModuleNotFoundError):
        list(PartsReader(Form("json", "id INT"))(iter([lines_of(Path("/in/a.json"), 0, None)])))


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("Traceback:\n  File x\nModuleNotFoundError: No module named 'shop'\n", "MODULE_MISSING"),
        ("Traceback:\n  File x\nImportError: libarrow.so.2600: cannot open shared object file\n", "MODULE_MISSING"),
        ("pyspark.errors.exceptions.base.PySparkImportError: [UNSUPPORTED_PACKAGE_VERSION] PyArrow", "MODULE_MISSING"),
        ("Traceback:\n  File x\nImportError: tidegate 0.0.1 is not the driver's 0.1.0\n", "VERSION_DIFFERS"),
        (
            "AttributeError: Can't get attribute 'PartsReader' on <module 'tidegate.sources.readers.worker' from",
            "VERSION_DIFFERS",
        ),
        ("ValueError: bad value ModuleNotFoundError: No module named 'shop'\n", None),
        ("ValueError: bad value [PYTHON_VERSION_MISMATCH]\n", None),
    ],
)
def test_a_value_that_a_transform_quotes_says_nothing_of_executors(text: str, code: str | None) -> None:
    known = explain_python(text, "flow")
    assert (known and known.code) == code


@pytest.mark.parametrize(
    "reader",
    [PartsReader(Form("json", "id INT"), version="0.0.1"), TextsReader(Form("json", "id INT"), version="0.0.1")],
)
def test_a_reader_of_another_version_reads_nothing(reader: PartsReader | TextsReader) -> None:
    with pytest.raises(ImportError, match=f"tidegate {__version__} is not the driver's 0.0.1"):
        list(reader(iter(())))


@pytest.mark.parametrize("kind", ["parquet", "orc"])
def test_a_footer_tells_the_rows(tmp_path: Path, kind: str) -> None:
    source, kept = FilesSource(type="files", path="in", format=kind), tmp_path / f"kept.{kind}"
    table = pa.table({"price": [1.5] * 120})
    (pq.write_table if kind == "parquet" else orc.write_table)(table, kept)
    assert count_kept_rows(kept, source) == 120
    kept.write_bytes(kept.read_bytes()[:-9])
    assert count_kept_rows(kept, source) is None
    kept.unlink()
    assert count_kept_rows(kept, source) is None


def test_a_text_has_no_footer(tmp_path: Path) -> None:
    kept = tmp_path / "kept.csv.gz"
    kept.write_bytes(b"torn")
    assert count_kept_rows(kept, FilesSource(type="files", path="in", format="csv")) is None
