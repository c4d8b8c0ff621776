"""Quarantine files of several writers: a column that may be null in one need not be in another."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tests.support.many_runs import make_many
from tidegate.table.quarantine.read import list_quarantine, show_quarantine


def test_files_that_differ_in_what_may_be_null_are_counted_together(tmp_path: Path) -> None:
    made = make_many(tmp_path / "p", 11, 2, kafka_share=0)
    folder = made.project.paths(made.scenes["well"]).quarantine
    file = pq.read_table(folder / "part-0.parquet")
    strict = pa.schema([field.with_nullable(field.name == "position") for field in file.schema])
    pq.write_table(file.cast(strict), tmp_path / "staged.parquet")
    found = list_quarantine(folder, None, [tmp_path / "staged.parquet"])
    assert sum(one["records"] for one in found) == 2 * file.num_rows
    assert len(show_quarantine(folder, None, 200, [tmp_path / "staged.parquet"])) == 2 * file.num_rows
