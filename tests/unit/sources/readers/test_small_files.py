"""Small files, whose records share a record batch: each record is as if its file were read alone."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.support.parts import lines_of
from tidegate.sources.readers import part_readers
from tidegate.sources.readers.form import Form
from tidegate.sources.readers.records import Completion
from tidegate.sources.readers.unreadable import DEFECT, PartUnreadable
from tidegate.sources.readers.worker import PartsReader

FORM = Form("json", "id INT, note STRING, day DATE", in_folders=["day"])
TEXTS = [
    *('{"id": 1}', "", '{"id": 2, "more": 1}\n\n{"id": 3, "note": "é"}\n', "\r\n", '\ufeff{"id": "x"}\r\n{"id": 5}'),
    *("{", '{"id": 6, "id": 6}\n', '{"id": 7}\n' * 30, '{"id": 8, "note": "' + "x" * 200 + '"}'),
]


def _read_together(paths: Sequence[Path], form: Form = FORM) -> list[pa.RecordBatch]:
    lines = [lines_of(path, 0, None).column(0).to_pylist()[0] for path in paths]
    return list(PartsReader(form)(iter([pa.RecordBatch.from_pydict({"value": lines})])))


def _rows(batches: Sequence[pa.RecordBatch]) -> list[dict[str, Any]]:
    for batch in batches:
        batch.validate(full=True)
    return [row for batch in batches for row in batch.to_pylist()]


def _write(folder: Path) -> list[Path]:
    paths = []
    for number, text in enumerate(TEXTS):
        path = folder / f"day=2026-01-0{number % 3 + 1}" / f"{number} %.json{'.gz' if number % 4 == 2 else ''}"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
        paths.append(path)
    return paths


@pytest.mark.parametrize("policy", ["report", "quarantine", "rescue"])
@pytest.mark.parametrize(("size", "count"), [(1 << 20, 10_000), (100, 10_000), (1 << 20, 4), (1, 1)])
def test_as_each_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: str, size: int, count: int) -> None:
    paths, form = _write(tmp_path), Form(FORM.format, FORM.ddl, policy, in_folders=FORM.in_folders)
    alone = [row for path in paths for row in _rows(_read_together([path], form))]
    assert len(alone) == 38 and len({row["_position"] for row in alone}) == 38
    monkeypatch.setattr(part_readers, "BLOCK_BYTES", size)
    monkeypatch.setattr(part_readers, "_ROWS_AT_MOST", count)
    together = _read_together(paths, form)
    assert _rows(together) == alone
    assert len(together) == 1 or (size, count) != (1 << 20, 10_000)


def test_one_of_them_is_torn(tmp_path: Path) -> None:
    paths = _write(tmp_path)
    paths[2].write_bytes(paths[2].read_bytes()[:-9])
    with pytest.raises(PartUnreadable) as caught:
        _read_together(paths)
    assert caught.value.path == str(paths[2])


def test_one_of_them_meets_a_defect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    complete = Completion.complete

    def fail(completion: Completion, found: Any, *more: Any) -> pa.RecordBatch:
        if any(json.loads(raw).get("id") == 8 for raw in found.raws if raw.startswith(b'{"id": 8')):
            raise ValueError("it cannot be")
        return complete(completion, found, *more)

    monkeypatch.setattr(Completion, "complete", fail)
    paths = _write(tmp_path)
    with pytest.raises(PartUnreadable) as caught:
        _read_together(paths)
    assert (caught.value.path, caught.value.errno) == (str(paths[-1]), DEFECT)
    assert caught.value.reason == "ValueError: it cannot be"
    assert len(_rows(_read_together(paths[:-1]))) == 37


def test_encodings_that_files_name_themselves(tmp_path: Path) -> None:
    paths = [tmp_path / f"{number}.json" for number in range(4)]
    for number, path in enumerate(paths):
        text = f'\ufeff{{"id": {number}, "note": "é"}}\n'
        path.write_bytes(text.encode("utf-16-le" if number % 2 else "utf-16-be"))
    rows = _rows(_read_together(paths, Form("json", "id INT, note STRING", options={"encoding": "UTF-16"})))
    assert [(row["id"], row["note"], row["_malformed"]) for row in rows] == [(n, "é", False) for n in range(4)]
