"""Columns whose values are in the names of folders."""

from __future__ import annotations

import datetime as dt
import gzip
from pathlib import Path
from typing import Any

import pytest

from tests.support.parts import lines_of
from tidegate.sources.files.forms import find_fault
from tidegate.sources.files.unreadable import find_unreadable, quarantine_whole
from tidegate.sources.readers.form import Form
from tidegate.sources.readers.unreadable import PartUnreadable
from tidegate.sources.readers.worker import PartsReader
from tidegate.spec.models import FilesSource

DDL = "id INT, day DATE, n BIGINT, t STRING, at TIMESTAMP"


def _read(path: Path, *in_folders: str, ddl: str = DDL) -> list[dict[str, Any]]:
    found = PartsReader(Form("json", ddl, in_folders=in_folders))(iter([lines_of(path, 0, None)]))
    return [row for batch in found for row in batch.to_pylist()]


def _put(folder: Path, name: str = "a.json", content: bytes = b'{"id": 1}\n{"id": 2}\n') -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(content)
    return folder / name


def test_values_are_those_of_the_folders_right_above(tmp_path: Path) -> None:
    path = _put(tmp_path / "n=9/source/day=2026-01-31/n=007/t=a%2Fb %25")
    rows = _read(path, "day", "n", "t")
    wanted = {"day": dt.date(2026, 1, 31), "n": 7, "t": "a/b %", "at": None}
    assert [{name: row[name] for name in wanted} for row in rows] == [wanted] * 2
    assert [row["id"] for row in rows] == [1, 2]
    path = _put(tmp_path / "source/t=__HIVE_DEFAULT_PARTITION__/n=1")
    assert [row["t"] for row in _read(path, "t", "n")] == [None, None]


def test_a_folder_that_does_not_fit_is_a_fault_of_its_file_alone(tmp_path: Path) -> None:
    intake, kept = tmp_path / "intake", tmp_path / "unreadable"
    spec = FilesSource(type="files", path="in", format="json", schema=DDL)
    for name, content in (
        ("0000000001-0123abcd.json", b'{"id": 1}'),
        ("0000000002-0123abcd.json.gz", gzip.compress(b'{"id": 1}')),
    ):
        link = f"at=soon/{name}"
        path = _put(intake / "at=soon", name, content)
        with pytest.raises(PartUnreadable, match="its folder says at=soon: not a TIMESTAMP"):
            _read(path, "at")
        assert find_fault(path, spec) == "its folder says at=soon: not a TIMESTAMP"
        reasons = find_unreadable(kept, intake, [link], spec)
        assert quarantine_whole(kept, intake, reasons, spec, {}, lambda: None) == [link]
        assert _read(path, "at") == [], "the stand-in is no fault any more"
    with pytest.raises(PartUnreadable, match="its folder has no n, which is NOT NULL"):
        _read(_put(tmp_path / "t=x"), "n", ddl="id INT, n INT NOT NULL")
