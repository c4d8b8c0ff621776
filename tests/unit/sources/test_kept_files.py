"""The rows of a file that is in quarantine whole."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

from tidegate.sources.files.unreadable import count_kept_rows
from tidegate.spec.models import FilesSource


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
