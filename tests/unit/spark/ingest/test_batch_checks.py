"""What refuses a batch that Spark plans again: other records, files that are gone, rows that differ."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit.manifests import manifest
from tidegate.core import storage
from tidegate.core.errors import DisagreementError, UsageError
from tidegate.spark.driver.order import IngestOrder
from tidegate.spark.ingest.batch_checks import BatchChecks
from tidegate.spec.models import PipelineSpec, ProjectSpec
from tidegate.spec.project import Project
from tidegate.state.manifest import SourceRange, Taken, write_manifest
from tidegate.state.topics import FilePart

NAME = "orders"
LINK = {"path": "/inbox/a.json", "size": 3, "mtime_ns": 1}
CLASSES = {"type": "files", "path": "classes", "format": "csv", "schema": "name STRING", "static": True}


@pytest.fixture
def checks(tmp_path: Path) -> BatchChecks:
    """Of a pipeline whose source has one pending file, under the link ``a``."""
    sources = {"s": {"type": "files", "path": "inbox", "format": "text"}, "classes": CLASSES}
    spec = PipelineSpec.read({"version": 1, "name": NAME, "sources": sources})
    statics = {
        "classes": {"version": "v1", "folder": "/state/v1.0abc", "links": ["b.csv"], "files": ["/classes/b.csv"]}
    }
    order = IngestOrder(str(tmp_path), NAME, "R", "1-x", links={"s": {"a": LINK}}, statics=statics)
    return BatchChecks(spec, Project(tmp_path, ProjectSpec()).paths(NAME), order)


def stage(checks: BatchChecks, **figures: Any) -> Path:
    """The manifest of batch 4, which read the link ``a``."""
    sources = {"s": SourceRange(rows=1, malformed=0, files=[{**LINK, "link": "a"}])}
    staged = replace(manifest(4), sources=sources, **figures)
    path = checks.paths.manifest(staged.query_id, staged.batch_id)
    assert write_manifest(path, staged)
    return path


def test_a_file_that_is_not_pending(checks: BatchChecks) -> None:
    checks.check_pending(4, {"s": Taken([FilePart("a")])})
    with pytest.raises(DisagreementError, match="CHECKPOINT_DIVERGED: batch 4 would read 1 files of source s again"):
        checks.check_pending(4, {"s": Taken([FilePart("a"), FilePart("read-before")])})


def test_a_file_whose_link_is_gone_before_the_state_was_committed(checks: BatchChecks) -> None:
    link = checks.paths.intake("s") / "a"
    storage.replace(link, b"{}\n")
    checks.check_present(4, {"s": Taken([FilePart("a")])})
    link.unlink()
    with pytest.raises(DisagreementError) as refused:
        checks.check_present(4, {"s": Taken([FilePart("a")])})
    assert refused.value.code == "STATE_INPUT_GONE" and "1 files of source s" in refused.value.message


def test_other_records_than_those_that_were_staged(checks: BatchChecks) -> None:
    path = stage(checks)
    checks.check_same_ranges(path, {"s": Taken([FilePart("a")])})
    with pytest.raises(DisagreementError, match="CHECKPOINT_DIVERGED: batch 4 was staged with other records"):
        checks.check_same_ranges(path, {"s": Taken()})


def test_another_number_of_rows_than_was_staged(checks: BatchChecks) -> None:
    path = stage(checks, transformed=2, staged=2)
    checks.check_same_rows(path, {"transformed": 2})
    with pytest.raises(
        DisagreementError, match="BATCH_NOT_REPEATABLE: batch 4 had 2 rows when it was staged, and has 3"
    ):
        checks.check_same_rows(path, {"transformed": 3})


@pytest.mark.parametrize("line", ["", "#0+7"])
def test_a_malformed_record_of_a_static_source(checks: BatchChecks, line: str) -> None:
    checks.check_statics({"static:classes": {"malformed": 0}})
    first = {"_position": f"file:///state/v1.0abc/b.csv{line}", "_detail": "name: not a STRING", "_raw": "x"}
    with pytest.raises(UsageError) as refused:
        checks.check_statics({"static:classes": {"malformed": 1, "first": first}})
    assert (refused.value.code, refused.value.where) == ("STATIC_MALFORMED", "/classes/b.csv")
